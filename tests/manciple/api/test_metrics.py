"""/metrics of an API process: who may read it, and what it counts of requests and watches."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import httpx
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from manciple.access.authentication import tokens
from manciple.api import auditing
from manciple.api.flow_control import FairQueues, FlowLimits
from tests.e2e.processes import wait_for
from tests.exposition import samples
from tests.manciple.api.requests import Api
from tests.manciple.api.server import ApiServer

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


def test_members_of_the_monitoring_group_read_the_metrics(api: Api) -> None:
    assert Api(tokens.issue("alice", ["team"])).get("/metrics").code == 403
    answer = Api(tokens.issue("prometheus", ["system:monitoring"])).get("/metrics")
    assert (answer.code, answer.header("Content-Type")) == (200, "text/plain; version=0.0.4; charset=utf-8")
    assert "# TYPE scheduler_pending_pods gauge" in answer.text
    everything = Api(tokens.issue("prometheus", ["system:monitoring"])).get("/metrics?processes=all")
    assert 'manciple_processes{role="api"} 1.0' in everything.text
    assert api.get("/metrics?processes=some").code == 400
    assert api.post("/metrics", {}).code == 405


def counted(client: httpx.Client) -> dict[tuple[str, ...], float]:
    """(name, label=value, ...) -> value, without labels that say nothing."""
    text = client.get("/metrics").text
    return {
        sample_key(sample): sample.value for family in text_string_to_metric_families(text) for sample in family.samples
    }


def sample_key(sample: Sample) -> tuple[str, ...]:
    return (sample.name, *(f"{label}={value}" for label, value in sorted(sample.labels.items()) if value))


REQUESTS = "apiserver_request_total"
OURS = "component=apiserver"


def test_requests_and_watches_are_counted_as_the_reference_counts_them(api_server: ApiServer) -> None:
    document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}}
    with api_server.client() as client:
        before = counted(client)
        assert client.post(CONFIG_MAPS, json=document).status_code == 201
        assert (
            client.post(f"{CONFIG_MAPS}?dryRun=All", json={**document, "metadata": {"name": "two"}}).status_code == 201
        )
        assert client.get(CONFIG_MAPS).status_code == 200
        assert client.get(f"{CONFIG_MAPS}/none").status_code == 404
        patch = {"content-type": "application/apply-patch+yaml"}
        applied = client.patch(f"{CONFIG_MAPS}/one?fieldManager=me", content=json.dumps(document), headers=patch)
        assert applied.status_code == 200
        assert client.get("/apis/nobody.example.com/v1/things").status_code == 404
        assert client.get("/apis/nobody.example.com/v1/others").status_code == 404
        assert client.get("/readyz").status_code == 200
        assert client.get("/login").status_code in (200, 400)
        expected = {
            ("code=201", OURS, "resource=configmaps", "scope=resource", "verb=POST", "version=v1"): 1,
            ("code=201", OURS, "dry_run=All", "resource=configmaps", "scope=resource", "verb=POST", "version=v1"): 1,
            ("code=200", OURS, "resource=configmaps", "scope=namespace", "verb=LIST", "version=v1"): 1,
            ("code=404", OURS, "resource=configmaps", "scope=resource", "verb=GET", "version=v1"): 1,
            ("code=200", OURS, "resource=configmaps", "scope=resource", "verb=APPLY", "version=v1"): 1,
            ("code=404", OURS, "verb=GET"): 2,
            ("code=200", OURS, "subresource=/readyz", "verb=GET"): 1,
        }

        def told() -> dict[tuple[str, ...], float]:
            """So much more than before, of requests; the dashboard's together. They are counted once answered."""
            new = {key[1:]: value - before.get(key, 0) for key, value in counted(client).items() if key[0] == REQUESTS}
            dashboard = sum(value for key, value in new.items() if "component=dashboard" in key)
            return {key: new.get(key, 0) for key in expected} | {("dashboard",): dashboard}

        wait_for("the requests to be counted", lambda: told() == {**expected, ("dashboard",): 1})
        after = counted(client)
        durations = [
            key for key in after if key[0] == "apiserver_request_duration_seconds_count" and "verb=LIST" in key
        ]
        assert any("resource=configmaps" in key for key in durations)
        assert after["apiserver_current_inflight_requests", "request_kind=readOnly"] >= 1
        assert after["apiserver_flowcontrol_dispatched_requests_total", "flow_schema=api", "priority_level=exempt"] > 0


def test_events_of_a_watch_are_counted_and_the_watch_when_it_ends(api_server: ApiServer) -> None:
    what = ("resource=configmaps", "version=v1")
    with api_server.client() as client, ThreadPoolExecutor(1) as pool:
        before = counted(client)
        watching = pool.submit(_read_one_event, api_server)
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "one-"}}
        wait_for("an event", lambda: client.post(CONFIG_MAPS, json=body) and watching.done())
        assert watching.result()["type"] in ("ADDED", "BOOKMARK")

        def new(name: str, *labels: str) -> float:
            told = {sample_key(sample): sample.value for sample in samples(client.get("/metrics").text, name)}
            return told.get((name, *labels), 0) - before.get((name, *labels), 0)

        wait_for("the event to be counted", lambda: new("apiserver_watch_events_total", *what) >= 1)
        wait_for("its size", lambda: new("apiserver_watch_events_sizes_count", *what) >= 1)
        received = "apiserver_watch_cache_events_received_total"
        wait_for("what came out of the log", lambda: new(received, "resource=configmaps") >= 1)
        labels = ("code=200", OURS, "resource=configmaps", "scope=namespace", "verb=WATCH", "version=v1")
        wait_for("the watch to be counted", lambda: new(REQUESTS, *labels) == 1)
        assert not any(
            key[0].startswith("apiserver_request_duration") and "verb=WATCH" in key for key in counted(client)
        )


def _read_one_event(server: ApiServer) -> dict[str, object]:
    with server.client() as client, client.stream("GET", f"{CONFIG_MAPS}?watch=true") as answer:
        found: dict[str, object] = json.loads(next(answer.iter_lines()))
        return found


def test_a_second_lane_of_a_name_does_not_hide_the_first() -> None:
    lanes = [FairQueues(FlowLimits(seats=4)) for _ in range(2)]
    for lane in lanes:
        auditing.watch_queues("twice", lane)
    del lane
    lanes.pop()
    told = {one.labels.get("flow_schema") for family in auditing._of_queues() for one in family.samples}
    assert "twice" in told

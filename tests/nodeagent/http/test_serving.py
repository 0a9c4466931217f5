"""A running agent, asked over its endpoint: health, metrics, logs; who is let in; what its Node tells."""

from __future__ import annotations

import errno
import hashlib
import itertools
import re
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import httpx
import pytest

from nodeagent.agent import Agent
from nodeagent.config import AgentConfig, ListenAddress
from nodeagent.failures import ListenFailed
from nodeagent.http import routes
from nodeagent.http.routes import AgentHealth, Unhealthy
from nodeagent.http.sessions import SessionCount
from nodeagent.node.registration import CERTIFICATE_ANNOTATION
from nodeagent.options import configuration, parser
from nodeagent.storage import Disk
from tests.e2e.processes import wait_for
from tests.nodeagent.http.served import ReviewingApi, agent_of, client, port_of, running
from tests.nodeagent.objects import NODE, claim, container, pod

LOGS = "/containerLogs/default/p/main"


@pytest.fixture
def api() -> ReviewingApi:
    return ReviewingApi()


@pytest.fixture
def agent(api: ReviewingApi, tmp_path: Path) -> Iterator[Agent]:
    """A node on which pod p runs with a claim."""
    api.put("resourceclaims", claim("of-p", "gpu-0", pods=("uid-p",)))
    api.put("pods", pod("p", claims={"gpus": "of-p"}))
    made = agent_of(api, tmp_path)
    with running(made):
        wait_for("the pod to run", lambda: made.runtime.runs("uid-p"))
        yield made


@pytest.fixture
def port(api: ReviewingApi, agent: Agent) -> int:
    assert agent.ready.is_set()
    return port_of(api)


# The Node.


def test_the_node_tells_port_and_certificate(api: ReviewingApi, port: int) -> None:
    node = api.find("nodes", NODE)
    assert node is not None
    shown = ssl.PEM_cert_to_DER_cert(ssl.get_server_certificate(("127.0.0.1", port)))
    assert node["metadata"]["annotations"][CERTIFICATE_ANNOTATION] == hashlib.sha256(shown).hexdigest()


def test_an_agent_that_serves_nothing_any_more_tells_so(api: ReviewingApi, agent: Agent, tmp_path: Path) -> None:
    assert port_of(api)
    silent = Agent(
        AgentConfig(
            server="http://api",
            token="t",
            node_name=NODE,
            state_dir=tmp_path / "state",
            cdi_dir=tmp_path / "cdi" / NODE,
        ),
        [],
        transport=api,
    )
    silent.register()
    node = api.find("nodes", NODE)
    assert node is not None
    assert port_of(api) == 0
    assert not node["metadata"].get("annotations")


# Health.


def test_a_healthy_agent_says_ok_to_anybody(port: int, api: ReviewingApi) -> None:
    with client(port) as http:
        assert (http.get("/healthz").status_code, http.get("/healthz").text) == (200, "ok")
        verbose = http.get("/healthz?verbose").text
    assert verbose == "[+]ping ok\n[+]watches ok\n[+]checkpoint ok\n[+]lease ok\nhealthz check passed\n"
    assert api.reviewed == []


def test_an_agent_whose_node_is_not_registered_is_not_healthy(api: ReviewingApi, tmp_path: Path) -> None:
    agent, stop = agent_of(api, tmp_path), threading.Event()
    api.reachable = False
    thread = threading.Thread(target=agent.run, args=(stop,))
    thread.start()
    try:
        server = agent._server
        assert server is not None
        endpoint = wait_for("the endpoint", lambda: server._endpoint)
        with client(endpoint.port) as http:
            answer = http.get("/healthz")
    finally:
        stop.set()
        thread.join(20)
    assert answer.status_code == 500
    assert "[-]watches failed: the node is not registered yet" in answer.text
    assert "[-]lease failed: the node's lease was never renewed" in answer.text
    assert answer.text.endswith("healthz check failed\n")


def test_a_watch_that_ended_is_told() -> None:
    ended = threading.Thread(target=lambda: None)
    ended.start()
    ended.join()
    with pytest.raises(Unhealthy, match="1 of 2 watches and workers have ended; restart the agent"):
        routes.threads_run(lambda: [threading.current_thread(), ended])()


def test_a_lease_that_is_not_renewed_is_told() -> None:
    with pytest.raises(Unhealthy, match=r"last renewed .* s ago; is the API server reachable"):
        routes.lease_renewed(lambda: -100.0, within=40)()


class FullDisk(Disk):
    full = True
    writes = 0

    def fill(self, path: Path, content: bytes, *, flushed: bool, mode: int | None = None) -> None:
        self.writes += 1
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        super().fill(path, content, flushed=flushed, mode=mode)


def test_a_full_disk_is_told_and_looked_at_now_and_then_only(tmp_path: Path) -> None:
    disk, seconds = FullDisk(), itertools.count(step=2)
    check = routes.writable(tmp_path, disk, clock=lambda: next(seconds))
    for _ in range(3):
        with pytest.raises(Unhealthy, match="the checkpoint cannot be written: No space left on device"):
            check()
    assert disk.writes == 1
    disk.full = False
    for _ in range(2):
        next(seconds)
    check()
    assert disk.writes == 2
    assert list(tmp_path.iterdir()) == []


def test_only_what_fails_is_named_failed() -> None:
    def fail() -> None:
        raise Unhealthy("because")

    assert AgentHealth({"a": lambda: None, "b": fail}).answer(verbose=False) == (
        500,
        "[+]ping ok\n[+]a ok\n[-]b failed: because\nhealthz check failed\n",
    )


# Who is let in.

DOORS = {
    ("/metrics", ""): 401,
    ("/metrics", "stranger"): 401,
    ("/metrics", "scraper"): 200,
    ("/metrics", "server"): 200,
    (LOGS, ""): 401,
    (LOGS, "stranger"): 401,
    (LOGS, "scraper"): 403,
    (LOGS, "server"): 200,
    (LOGS, "root"): 200,
    **{
        (path, token): code
        for path in ("/exec/default/p/main?command=true&stdout=true", "/attach/default/p/main?stdout=true")
        for token, code in {"": 401, "stranger": 401, "scraper": 403, "server": 400, "root": 400}.items()
    },
    ("/portForward/default/p?port=80", "scraper"): 403,
    ("/portForward/default/p?port=80", "server"): 400,
    **{
        ("/usage", token): code
        for token, code in {"": 401, "stranger": 401, "scraper": 403, "server": 200, "root": 200}.items()
    },
    ("/run/default/p/main", "root"): 404,
    ("/run/default/p/main", ""): 401,
}


def test_each_path_is_for_those_it_is_for(port: int) -> None:
    found = {}
    for path, token in DOORS:
        with client(port, token) as http:
            found[path, token] = http.get(path).status_code
    assert found == DOORS


def test_a_forbidden_user_is_told_what_is_forbidden(port: int) -> None:
    with client(port, "scraper") as http:
        text = http.get(LOGS).text
    assert text == "Forbidden (user=prometheus, verb=get, resource=nodes, subresource(s)=[proxy])"


def test_a_token_is_reviewed_once_in_a_while(port: int, api: ReviewingApi) -> None:
    with client(port, "server") as http:
        assert [http.get(LOGS).status_code for _ in range(3)] == [200] * 3
    assert api.reviewed == ["server"]


def test_a_token_that_cannot_be_reviewed_lets_nobody_in(port: int, api: ReviewingApi) -> None:
    api.reachable = False
    with client(port, "root") as http:
        answer = http.get("/metrics")
    assert answer.status_code == 500
    assert "API server" in answer.text


def test_a_token_meant_for_others_lets_nobody_in(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for_another = {"authenticated": True, "user": {"username": "system:kube-apiserver"}, "audiences": ["other"]}
    monkeypatch.setattr("tests.nodeagent.http.served.answered", lambda _user, _audiences: for_another)
    with client(port, "server") as http:
        assert http.get(LOGS).status_code == 401


# Metrics.


def samples(port: int) -> dict[str, float]:
    with client(port, "scraper") as http:
        answer = http.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = (line.rpartition(" ") for line in answer.text.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, _, value in lines}


def test_claims_are_counted_by_kubelets_names(port: int, agent: Agent, api: ReviewingApi) -> None:
    assert samples(port)['dra_resource_claims_in_use{driver_name="gpu.example.com"}'] == 1
    assert samples(port)['dra_resource_claims_in_use{driver_name="<any>"}'] == 1
    assert samples(port)['manciple_claims{state="Prepared"}'] == 1
    api.delete("pods", "p", grace=0)
    wait_for("the claim to be given back", lambda: not agent.preparer.records())
    found = samples(port)
    assert found['dra_resource_claims_in_use{driver_name="<any>"}'] == 0
    assert 'dra_resource_claims_in_use{driver_name="gpu.example.com"}' not in found
    for operation in ("PrepareResources", "UnprepareResources"):
        assert found[f'dra_operations_duration_seconds_count{{is_error="false",operation_name="{operation}"}}'] == 1
        called = f'driver_name="gpu.example.com",grpc_status_code="OK",method_name="Node{operation}"'
        assert found[f"dra_operations_seconds_count{{{called}}}"] == 1
    assert found['kubelet_started_containers_total{container_type="container"}'] == 1


def test_a_failing_operation_is_counted_as_an_error(port: int, api: ReviewingApi) -> None:
    api.put("pods", pod("q", claims={"gpus": "missing"}))
    name = 'dra_operations_duration_seconds_count{is_error="true",operation_name="PrepareResources"}'
    wait_for("an error", lambda: samples(port).get(name, 0) >= 1)
    assert samples(port)['workqueue_retries_total{name="agent"}'] >= 0


def test_requests_pods_slices_and_the_process_are_counted(port: int) -> None:
    found = samples(port)
    assert found['manciple_pods{phase="Running"}'] == 1
    assert found['rest_client_requests_total{code="200",host="api",method="GET"}'] > 0
    assert found["process_resident_memory_bytes"] > 0
    assert found['manciple_driver_call_duration_seconds_count{driver_name="gpu.example.com",is_error="false",operation_name="PrepareResources"}'] == 1  # fmt: skip  # noqa: E501
    wait_for("the slice", lambda: samples(port).get('manciple_resource_slices{driver_name="gpu.example.com"}') == 1)


def test_two_agents_of_one_process_count_for_themselves(port: int, tmp_path: Path) -> None:
    other = agent_of(ReviewingApi(), tmp_path / "other")
    assert samples(port)['dra_resource_claims_in_use{driver_name="<any>"}'] == 1
    assert b'dra_resource_claims_in_use{driver_name="<any>"} 0.0' in other.metrics.text()


# Logs.


def read(port: int, path: str = LOGS, **query: str) -> httpx.Response:
    with client(port, "server") as http:
        return http.get(path, params=query)


def test_the_log_of_a_container_is_read(port: int) -> None:
    answer = read(port)
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain")
    assert 'declare -x GPU_DEVICE_0="gpu-0"' in answer.text.splitlines()


QUERIES = {
    "tailLines": ({"tailLines": "1"}, r"declare -x \S+\n"),
    "limitBytes": ({"limitBytes": "6"}, r"# main"),
    "timestamps": ({"timestamps": "true", "tailLines": "1"}, r"\d{4}-\S+Z declare -x \S+\n"),
    "sinceSeconds": ({"sinceSeconds": "3600", "tailLines": "1"}, r"declare -x \S+\n"),
    "sinceTime in the future": ({"sinceTime": "2999-01-01T00:00:00Z"}, ""),
    "one stream": ({"stream": "Stderr"}, ""),
    "a flag that is off": ({"timestamps": "false", "tailLines": "1"}, r"declare -x \S+\n"),
}


@pytest.mark.parametrize("case", QUERIES)
def test_of_the_log_comes_what_was_asked_for(port: int, case: str) -> None:
    query, expected = QUERIES[case]
    assert re.fullmatch(expected, read(port, **query).text)


def test_an_agent_that_has_just_started_says_of_no_pod_that_it_is_not_there(
    agent: Agent, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent._pods.replace([])
    monkeypatch.setattr(agent._pods, "_listed", False)
    answer = read(port)
    assert (answer.status_code, "just started" in answer.text) == (503, True)
    monkeypatch.setattr(agent._pods, "_listed", True)
    assert read(port).status_code == 404


REFUSED = {
    "another pod": ("/containerLogs/default/q/main", {}, 404, 'pod "q" does not exist'),
    "another namespace": ("/containerLogs/other/p/main", {}, 404, 'pod "p" does not exist'),
    "another container": ("/containerLogs/default/p/x", {}, 404, 'container "x" not found in pod "p"'),
    "no earlier attempt": (
        LOGS,
        {"previous": "true"},
        400,
        'previous terminated container "main" in pod "p" not found',
    ),
    "no number": (LOGS, {"tailLines": "x"}, 400, "tailLines: 'x'"),
    "a negative number": (LOGS, {"tailLines": "-1"}, 422, "must be greater than or equal to 0"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_shown_is_told_in_kubelets_words(port: int, case: str) -> None:
    path, query, code, message = REFUSED[case]
    answer = read(port, path, **query)
    assert answer.status_code == code
    assert message in answer.text


def test_a_container_that_waits_has_no_log_and_says_why(port: int, api: ReviewingApi) -> None:
    api.put("pods", pod("q", claims={"gpus": "missing"}))
    wait_for("the pod to be reported", lambda: (api.find("pods", "q") or {})["status"].get("containerStatuses"))
    path = "/containerLogs/default/q/main"
    wait_for("the agent to see it", lambda: read(port, path).status_code == 400)
    said = wait_for("the reason", lambda: (text := read(port, path).text) and "Creating" in text and text)
    assert said == 'container "main" in pod "q" is waiting to start: ContainerCreating'


WAITING = {
    "ErrImagePull": "image can't be pulled",
    "ImagePullBackOff": "trying and failing to pull image",
    "InvalidImageName": "InvalidImageName",
}


@pytest.mark.parametrize("reason", WAITING)
def test_a_container_without_its_image_has_no_log_and_says_so(port: int, api: ReviewingApi, reason: str) -> None:
    api.put("pods", pod("q", metadata={"annotations": {"manciple.dev/start-failure": reason}}))
    path, words = "/containerLogs/default/q/main", WAITING[reason]
    said = wait_for("the reason", lambda: (text := read(port, path).text) and words in text and text)
    assert said == f'container "main" in pod "q" is waiting to start: {words}'


def test_the_latest_attempt_is_the_previous_one_until_the_next_begins(port: int, api: ReviewingApi) -> None:
    annotations = {"manciple.dev/run-seconds": "0", "manciple.dev/exit-code": "1"}
    api.put("pods", pod("q", container("main"), metadata={"annotations": annotations}))

    def restarting() -> bool:
        status = (api.find("pods", "q") or {})["status"].get("containerStatuses", [{}])[0]
        return bool(status.get("state", {}).get("waiting", {}).get("reason") == "CrashLoopBackOff")

    wait_for("the first attempt to end", restarting)
    path = "/containerLogs/default/q/main"
    wait_for("the agent to see it", lambda: read(port, path, previous="true").status_code == 200)
    assert read(port, path, previous="true").text.startswith("#")


def test_following_goes_on_until_the_pod_is_gone(port: int, api: ReviewingApi) -> None:
    with client(port, "server") as http, http.stream("GET", LOGS, params={"follow": "true"}) as response:
        lines = response.iter_lines()
        assert next(lines).startswith("#")
        api.delete("pods", "p", grace=0)
        assert any("GPU_DEVICE_0" in line for line in lines)


def test_logs_take_a_part_of_the_agent_and_no_more(
    api: ReviewingApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes, "SessionCount", partial(SessionCount, most=4))
    api.put("pods", pod("p"))
    made = agent_of(api, tmp_path)
    with running(made), ExitStack() as held:
        wait_for("the pod to run", lambda: made.runtime.runs("uid-p"))
        http = held.enter_context(client(port_of(api), "server"))
        follow, bob = {"follow": "true"}, {"X-Remote-User": "bob"}
        with ExitStack() as read:
            for _ in range(2):
                assert read.enter_context(http.stream("GET", LOGS, params=follow, headers=bob)).status_code == 200
            refused = http.get(LOGS, headers=bob)
            assert (refused.status_code, "you have 2" in refused.text) == (429, True)
            assert http.get(LOGS, headers={"X-Remote-User": "alice"}).status_code == 200
            assert http.get("/metrics").status_code == 200
        wait_for("room", lambda: http.get(LOGS, headers=bob).status_code == 200)


# Where to listen.


def test_an_address_that_is_taken_stops_the_agent_before_it_does_anything(api: ReviewingApi, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        config = AgentConfig(
            server="http://api",
            token="t",
            node_name=NODE,
            state_dir=tmp_path,
            cdi_dir=tmp_path / "cdi",
            listen=ListenAddress("127.0.0.1", taken.getsockname()[1]),
        )
        with pytest.raises(ListenFailed, match="choose an address of this machine with --listen ADDRESS:PORT"):
            Agent(config, [], transport=api).run(threading.Event())
    assert api.requests == []


LISTEN: dict[str, tuple[tuple[str, ...], ListenAddress | None]] = {
    "by default on the node's address": (("--node-ip", "10.0.0.5"), ListenAddress("10.0.0.5", 0)),
    "where told to": (("--listen", "0.0.0.0:10250"), ListenAddress("0.0.0.0", 10250)),
    "on IPv6": (("--listen", "[::1]:0"), ListenAddress("::1", 0)),
    "nowhere": (("--listen", ""), None),
}


@pytest.mark.parametrize("case", LISTEN)
def test_the_command_line_says_where_to_listen(case: str, tmp_path: Path) -> None:
    arguments, expected = LISTEN[case]
    (tmp_path / "token").write_text("t")
    server = ("--node-name", "n", "--server", "https://api", "--token-file", str(tmp_path / "token"))
    config = configuration(parser().parse_args([*server, *arguments]))
    assert config.listen == expected


@pytest.mark.parametrize("text", ["10250", ":1", "a:b", "127.0.0.1:99999"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=f"^{text!r}"):
        ListenAddress.parse(text)

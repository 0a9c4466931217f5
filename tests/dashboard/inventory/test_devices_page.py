"""The device pages as the server draws them: filters, groups, live lines, and what a person may not see."""

from __future__ import annotations

import html
import re
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlencode

import pytest
from django.test import Client
from msgspec import structs

from claims.devices.cache import read_devices
from claims.models import PastAllocation
from dashboard.inventory.devices.queries import strip_of
from dashboard.templatetags.kit import clock
from scheduling.cel import DeviceView, compile_selector
from tests.builders import make_class, make_device, make_device_taint, make_node, make_slice
from tests.claims.devices.scene import DRIVER, hold, publish, put, remove, run, signed_in
from tests.dashboard import texts

pytestmark = pytest.mark.django_db

AT = f"{DRIVER}/node-1/gpu-0"


@pytest.fixture
def browser() -> Client:
    return signed_in("admin", staff=True)


def page(browser: Client, path: str = "/devices", **query: Any) -> str:
    answer = browser.get(f"{path}?{urlencode(query, doseq=True)}" if query else path)
    assert answer.status_code == 200
    return answer.content.decode()


def text(markup: str) -> str:
    return html.unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", markup)))


def dim(markup: str) -> list[str]:
    """The devices that do not match."""
    return re.findall(r'class="tile[^"]* dim"[^>]*data-at="[^"]*/([^"/]*/[^"/]*)"', markup)


@pytest.fixture
def lab() -> None:
    """node-1: two A100s, the first held in namespace lab; node-2: an H100, tainted."""
    put(make_class("hopper", expressions=[f'device.attributes["{DRIVER}"].model == "H100"']))
    put(make_node())
    publish()
    h100 = make_device(
        "gpu-0", attributes={"model": "H100"}, capacity={"memory": "141Gi"}, taints=[make_device_taint()]
    )
    publish("node-2", devices=[h100])
    hold(pods=[run()])


ALL = {"node-1/gpu-0", "node-1/gpu-1", "node-2/gpu-0"}


#: what is asked for -> (the query, the devices that match)
FILTERS: dict[str, tuple[dict[str, Any], set[str]]] = {
    "nothing": ({}, ALL),
    "a state": ({"state": "free"}, {"node-1/gpu-1"}),
    "either of two states": ({"state": ["free", "taint"]}, {"node-1/gpu-1", "node-2/gpu-0"}),
    "a model": ({"model": "A100"}, {"node-1/gpu-0", "node-1/gpu-1"}),
    "a model and a state": ({"model": "A100", "state": "reserved"}, {"node-1/gpu-0"}),
    "who holds it": ({"ns": "lab"}, {"node-1/gpu-0"}),
    "another driver": ({"driver": "other.example.com"}, set()),
    "a class": ({"class": "hopper"}, {"node-2/gpu-0"}),
    "an attribute": ({"attr": "model:H100"}, {"node-2/gpu-0"}),
    "two attributes": ({"attr": ["memory:80Gi", "index:1"]}, {"node-1/gpu-1"}),
    "either of two values": ({"attr": ["memory:80Gi", "memory:141Gi"]}, ALL),
    "an expression": (
        {"cel": f'device.capacity["{DRIVER}"].memory.compareTo(quantity("100Gi")) > 0'}, {"node-2/gpu-0"},
    ),
    "one without a value for some": ({"cel": f'device.attributes["{DRIVER}"].index == 1'}, {"node-1/gpu-1"}),
    "one that does not compile": ({"cel": "device.driver =="}, ALL),
}  # fmt: skip


def test_a_filter_dims_what_does_not_match(browser: Client, lab: None) -> None:
    for case, (query, matching) in FILTERS.items():
        assert set(dim(page(browser, **query))) == ALL - matching, case
        answer = page(browser, "/devices/matches", **query)
        dims = "".join(re.findall(r"(?:&quot;|\")(?:[^&\"]*)(?:&quot;|\"):(?:&quot;|\")([01]+)", answer))
        assert dims.count("0") == len(matching), case
        lines = page(browser, "/devices/lines", topic=f"pool:{DRIVER}/node-1", **query)
        assert set(dim(lines)) == {one for one in ALL - matching if one.startswith("node-1")}, case


def test_an_expression_that_fails_is_told_with_its_place_or_how_many_have_no_value(browser: Client, lab: None) -> None:
    shown = page(browser, cel="device.drivr == 1")
    assert "Line 1, column 7" in text(shown)
    assert "undefined field 'drivr'" in text(shown)
    assert "......^" in shown
    assert 'aria-invalid="true"' in shown
    shown = text(page(browser, cel=f'device.attributes["{DRIVER}"].index == 1'))
    assert "1 of 3 match" in shown
    assert texts.EXPRESSION_WITHOUT_VALUE("1 device", "index") in shown


COUNTS = {
    ("state", "free"): 1,
    ("class", "hopper"): 1,
    ("model", "A100"): 2,
    ("ns", "lab"): 1,
    ("attr", "memory:80Gi"): 2,
}
GROUPS = {
    "model": ["A100", "H100"],
    "class": ["hopper", "In no class"],
    "namespace": ["lab", "Held by nobody"],
    "node": ["Nodes"],
    "nonsense": ["A100", "H100"],
}


def test_filters_come_with_their_counts_and_the_grid_is_grouped_as_the_link_says(browser: Client, lab: None) -> None:
    shown = page(browser)
    boxes = re.findall(
        r'name="(\w+)" value="([^"]*)"[^>]*><span[^>]*>[^<]*</span><span class="c"><span[^>]*>(\d+)', shown
    )
    counts = {(name, value): int(count) for name, value, count in boxes}
    assert counts.items() >= COUNTS.items()
    assert not any(name == "attr" and value.startswith("uuid") for name, value in counts)
    titles = {by: re.findall(r"<h2>([^<]*)</h2>\s*<span", page(browser, group=by)) for by in GROUPS}
    assert titles == GROUPS
    shown = page(browser, "/devices/lines", topic=f"pool:{DRIVER}/node-2")
    assert re.findall(r'<div class="[^"]*" role="row" id="([^"]*)"', shown) == ["line-h100-node-2"]
    assert re.search(r'data-count="free"><span[^>]*>1<', shown)


def drawn(markup: str) -> list[str]:
    """The names of the lines."""
    return re.findall(r'role="row" id="line-[^"]*?-(node-[^"]*)"', markup)


def test_topics_choose_lines_for_a_live_page_and_nothing_of_the_page_itself(browser: Client, lab: None) -> None:
    topic = f"pool:{DRIVER}/node-2"
    assert drawn(page(browser, "/devices/lines", topic=topic)) == ["node-2"]
    assert drawn(page(browser, "/devices/lines")) == []
    assert drawn(page(browser, topic=topic)) == drawn(page(browser)) == ["node-1", "node-2"]


def test_a_page_reads_with_few_queries_whatever_the_size(browser: Client, django_assert_max_num_queries: Any) -> None:
    for index in range(30):
        publish(f"node-{index}")
    page(browser)
    with django_assert_max_num_queries(7):
        page(browser)
    with django_assert_max_num_queries(7):
        page(browser, "/devices/lines", topic=f"pool:{DRIVER}/node-7")


# What a person may not see -------------------------------------------------------------------------------------------


@pytest.fixture
def secret() -> None:
    publish(count=3)
    hold("covert-claim", "gpu-0", "gpu-1", namespace="secret", pods=[run("covert-pod", namespace="secret")])
    hold("own-claim", "gpu-2", namespace="lab", pods=[run("own-pod")])
    PastAllocation.objects.create(
        driver=DRIVER, pool="node-1", device="gpu-2", device_class="", claim_uid="u", namespace="secret",
        claim="covert-past", pods=["covert-worker"], admin_access=False, share_id="", consumed_capacity={},
        began_at=datetime.now(UTC) - timedelta(days=3), ended_at=datetime.now(UTC) - timedelta(days=2),
    )  # fmt: skip


#: Pages that show devices of others.
SHARED = (
    "/devices", "/devices?group=namespace", "/devices?ns=secret", f"/devices?at={AT}", "/devices/matches?state=free",
    f"/devices/lines?topic=pool:{DRIVER}/node-1", f"/devices/panel?at={AT}", f"/devices/d/{AT}",
    f"/devices/d/{DRIVER}/node-1/gpu-2", f"/devices/panel?at={DRIVER}/node-1/gpu-2", "/devices.csv",
)  # fmt: skip


def test_who_sees_one_namespace_is_told_that_a_device_is_held_and_not_by_whom(secret: None) -> None:
    held = [holders for pool in read_devices().pools.values() for holders in pool.holders.values()]
    uids = {holder.claim_uid for holders in held for holder in holders if holder.namespace == "secret"}
    limited = signed_in("limited", "lab")
    for path in SHARED:
        shown = page(limited, path).replace("?ns=secret", "").replace("ns=secret", "")
        hidden = ["covert", *uids] if "ns=secret" in path else ["covert", *uids, "secret"]
        assert [word for word in hidden if word in shown] == [], path
    shown = page(limited)
    assert "data-j" not in shown, "devices of others have no runs"
    assert texts.DEVICE_OF_ANOTHER_NAMESPACE("gpu-0", "node-1") in shown
    assert "gpu-2 on node-1, reserved, lab/own-pod" in shown
    assert dim(page(limited, ns="secret")) == ["node-1/gpu-0", "node-1/gpu-1", "node-1/gpu-2"]
    path = f"/devices/d/{DRIVER}/node-1/gpu-2"
    assert texts.HOLDER_NOT_VISIBLE in text(page(limited, path)), "its history has times and no names"
    assert "covert-past" in text(page(signed_in("everything"), path))


# A device ------------------------------------------------------------------------------------------------------------


def test_a_page_says_who_holds_the_device_since_when_and_in_which_cdi_file(browser: Client, lab: None) -> None:
    shown = page(browser, f"/devices/d/{AT}")
    since = clock("2026-11-20T12:00:00Z")
    (holder,) = read_devices().held_by((DRIVER, "node-1", "gpu-0", "node-1"))
    assert f"since {since}" in text(shown)
    assert texts.FREE_AGAIN_UNKNOWN in text(shown)
    assert f"k8s.{DRIVER}-claim_{holder.claim_uid}.json" in shown
    for link in ("/claims/lab/training", "/pods/lab/web", "/namespaces/lab", "/nodes/node-1", f"/drivers/{DRIVER}"):
        assert f'href="{link}"' in shown


#: (its pod is being deleted, its claim is) -> who is, as page and panel say
LEAVING = {
    (False, False): "",
    (True, False): "Pod web is",
    (False, True): "The claim is",
    (True, True): "The claim and pod web are",
}


@pytest.mark.parametrize("going", LEAVING)
def test_a_holder_that_is_being_deleted_is_said_to_be(browser: Client, lab: None, going: tuple[bool, bool]) -> None:
    pod = run()
    claim = hold(pods=[pod])
    put(structs.replace(claim, metadata=structs.replace(claim.metadata, finalizers=("example.org/report",))))
    for one in (one for one, goes in zip((pod, claim), going, strict=True) if goes):
        remove(one, grace_seconds=30)
    says = texts.BEING_DELETED(LEAVING[going])
    for path in (f"/devices/panel?at={AT}", f"/devices/d/{AT}"):
        shown = text(page(browser, path))
        assert (says in shown) == any(going), path
        assert ("no time limit" in shown) != going[0], "it ends because it is deleted"


def test_an_address_of_no_device_says_so_on_the_grid(browser: Client, lab: None) -> None:
    shown = page(browser, at=f"{DRIVER}/node-1/gpu-77")
    assert texts.NO_SUCH_DEVICE(f"{DRIVER}/node-1/gpu-77") in text(shown)
    assert "/find?q=" in shown
    assert 'role="alert"' not in page(browser, at=AT)


def test_a_device_of_a_pool_with_slashes_has_a_page_and_an_unknown_one_none(browser: Client) -> None:
    assert browser.get(f"/devices/d/{AT}").status_code == 404
    for at in (AT, "nonsense"):
        assert text(page(browser, "/devices/panel", at=at)).strip() == ""
    put(make_slice("fabric", node=None, pool="fabric/a", all_nodes=True))
    assert "fabric/a, generation 1" in text(page(browser, f"/devices/d/{DRIVER}/fabric/a/gpu-1"))
    publish()
    hold()
    assert texts.CLAIM_EXPLAINS_ITS_HOLD in text(page(browser, "/devices/panel", at=AT)), "no pod uses the claim"


def test_the_copied_selector_accepts_the_device_and_its_like_alone(browser: Client, lab: None) -> None:
    shown = page(browser, "/devices/panel", at=f"{DRIVER}/node-1/gpu-1")
    found = re.search(r'data-copy="([^"]*)"', shown)
    assert found is not None
    linked = re.search(r'href="(/classes/new\?selector=[^"]*)"', shown)
    assert linked is not None
    made = browser.get(linked[1]).content.decode()
    assert found[1] in made
    selector = compile_selector(html.unescape(found[1]))
    matching = {
        candidate.address
        for candidate in read_devices().candidates
        if selector.matches(DeviceView.of(DRIVER, candidate.device))
    }
    assert matching == {f"{DRIVER}/node-1/gpu-0", f"{DRIVER}/node-1/gpu-1"}


def test_taints_are_told_with_who_set_them_and_an_unhealthy_one_as_health(browser: Client) -> None:
    publish(devices=[make_device("gpu-0", taints=[make_device_taint("gpu.example.com/unhealthy", "the fan stands")])])
    shown = text(page(browser, "/devices/panel", at=AT))
    assert f"set by driver {DRIVER}" in shown
    assert "the fan stands" in shown.partition("Unhealthy")[2]


NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("held", "marks", "percent"),
    [
        ([], ["free"], 0),
        ([(-8, 0)], ["reserved"], 100),
        ([(-8, -5), (-2, 0)], ["reserved", "free", "reserved"], 57),
        ([(-4, -2), (-3, -1)], ["free", "reserved", "free"], 43),
        ([(-30, -20)], ["free"], 0),
    ],
    ids=["never held", "held all the time", "twice", "by two claims at once", "long ago"],
)
def test_the_strip_shows_a_week(held: list[tuple[int, int]], marks: list[str], percent: int) -> None:
    spans = [(NOW + timedelta(days=began), NOW + timedelta(days=ended)) for began, ended in held]
    strip = strip_of(spans, start=NOW - timedelta(days=7), now=NOW)
    assert [mark.state for mark in strip.marks] == marks
    assert strip.held == percent
    assert sum(mark.weight for mark in strip.marks) == 7 * 86400
    assert strip.days == ("15 Nov", "17", "19", "21", "now")


@pytest.mark.usefixtures("lab")
def test_a_cordoned_node_has_a_mark_a_word_and_a_place_in_the_legend(browser: Client) -> None:
    node = make_node("node-1")
    put(node)
    assert "Cordoned" not in text(page(browser))
    put(structs.replace(node, spec=structs.replace(node.spec, unschedulable=True)))
    markup = page(browser)
    assert re.search(r'<div class="node cordoned"[^>]*id="line-[^"]*-node-1"', markup)
    assert texts.NOTE_OF_A_CORDONED_NODE("node-1") in text(markup)
    assert "Cordoned nodes 1" in text(markup)
    assert 'href="/nodes?state=cordoned"' in markup
    touched = page(browser, "/devices/lines", topic="node:node-1")
    assert drawn(touched) == ["node-1"]


#: what a node has -> (GPUs, NICs, whether its line goes on below, the room that its NICs take)
LINES = {
    "as many as a column holds": (8, 2, False, []),
    "more devices": (9, 0, True, []),
    "a NIC for each GPU": (8, 8, True, ["--nics:8"]),
    "more NICs than a column grows for": (8, 20, True, ["--nics:8"]),
}


def test_a_line_of_many_devices_goes_on_below_its_first_row(browser: Client) -> None:
    for case, (gpus, nics, goes_on_below, room) in LINES.items():
        devices = [make_device(f"gpu-{index}", attributes={"model": "A100"}) for index in range(gpus)]
        publish(devices=devices + [make_device(f"nic-{index}", attributes={"ifName": "eth"}) for index in range(nics)])
        markup = page(browser)
        assert ('<div class="node many"' in markup) is goes_on_below, case
        assert re.findall(r"--nics:\d+", markup) == room, case


def test_pages_and_what_they_load_come_compressed(browser: Client, lab: None) -> None:
    for path in ("/devices", "/static/manciple/kit/manciple.css"):
        plain = browser.get(path)
        packed = browser.get(path, headers={"Accept-Encoding": "gzip"})
        assert "Content-Encoding" not in plain.headers
        assert packed.headers["Content-Encoding"] == "gzip"
        assert "Accept-Encoding" in packed.headers["Vary"]
        assert len(packed.getvalue()) < len(plain.getvalue()) / 3
    for path in ("/version", "/timeline.csv"):  # the API's answers, and files that are written as they are read
        assert "Content-Encoding" not in browser.get(path, headers={"Accept-Encoding": "gzip"}).headers

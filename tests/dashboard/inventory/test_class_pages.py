"""The class pages as the server draws them; Chromium uses them in tests/e2e/pages/test_classes.py."""

from __future__ import annotations

import html
import json
import re
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from dashboard.inventory.classes import views
from dashboard.kit.differences import MINUS
from inventory.kinds import gates
from inventory.kinds.devices import DeviceClass
from manciple.store import objects
from manciple.wire.resources import CLASSES, kind
from tests.builders import (
    CLASS,
    DRIVER,
    make_claim,
    make_class,
    make_device,
    make_node,
    make_pod,
    make_request,
    make_slice,
)
from tests.dashboard import texts
from tests.dashboard.browsing import admin, member, viewer
from tests.scheduling.cluster import Cluster, with_spec

__all__ = ["admin", "viewer"]

LARGE = f'device.capacity["{DRIVER}"].memory.compareTo(quantity("120Gi")) >= 0'
OF_DRIVER = f'device.driver == "{DRIVER}"'


@pytest.fixture
def shelf(cluster: Cluster) -> Cluster:
    """Two nodes: two large GPUs, two small ones; a class of the driver's devices."""
    cluster.create(make_class(expressions=[OF_DRIVER]))
    for node, memory in (("node-1", "141Gi"), ("node-2", "80Gi")):
        devices = [
            make_device(f"gpu-{index}", attributes={"model": "H"}, capacity={"memory": memory}) for index in range(2)
        ]
        cluster.create(make_node(node))
        cluster.create(make_slice(node=node, devices=devices))
    return cluster


def _words(answer: Any) -> str:
    """The page's words, tags left out and blanks joined."""
    text = answer.content.decode()
    main = text.partition("<main")[2] or text
    return html.unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", main)))


def _verdicts(client: Client, *selectors: str, editing: str = CLASS, **fields: Any) -> Any:
    form = {"selector": list(selectors), "name": editing, "editing": editing, **fields}
    answer = client.post("/classes/verdicts", form)
    assert answer.status_code == 200
    return answer


def _judged(client: Client, *selectors: str, editing: str = CLASS, **fields: Any) -> str:
    return _words(_verdicts(client, *selectors, editing=editing, **fields))


def _stored(name: str = CLASS) -> DeviceClass:
    stored = objects.get(kind(CLASSES), "", name)
    assert stored is not None
    decoded = objects.decode(kind(CLASSES), stored.text)
    assert isinstance(decoded, DeviceClass)
    return decoded


# The list ------------------------------------------------------------------------------------------------------------


def test_the_list_counts_devices_by_state_and_who_uses_them(admin: Client, shelf: Cluster) -> None:
    shelf.create(make_claim("waits", requests=[make_request(count=9)]))
    page = admin.get("/classes")
    assert "4 of 4 4 4 0 1 pending claim" in _words(page)  # match, free, fit, pods that wait, used by
    assert 'aria-label="4 free"' in page.content.decode()


def _names(client: Client, query: str = "") -> list[str]:
    return re.findall(r'<tr id="class-([^"]+)"', client.get(f"/classes{query}").content.decode())


def test_the_list_is_searched_by_name_extended_resource_and_expression(admin: Client, shelf: Cluster) -> None:
    shelf.create(make_class("by-name", expressions=["true"]))
    shelf.create(make_class("quotes", expressions=[OF_DRIVER, 'device.driver == "grün"']))
    shelf.create(with_spec(make_class("served", expressions=["true"]), extended_resource_name="acme.example.com/card"))
    for query, found in (
        ("?q=BY-NA", ["by-name"]),
        ("?q=acme", ["served"]),
        ('?q=driver+%3D%3D+"gr%C3%BCn"', ["quotes"]),
        ("?q=driver+%3D%3D", [CLASS, "quotes"]),
        ("?q=100%25", []),
        ("?q=expression", []),  # a word of the document, not of what it says
        ("?q=cel", []),
    ):
        assert _names(admin, query) == found, query


def test_the_list_is_sorted_by_what_no_column_has_too_and_has_pages(
    admin: Client, shelf: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf.create(make_class("large", expressions=[LARGE]))
    shelf.create(make_class("none", expressions=["false"]))
    orders = {
        "": [CLASS, "large", "none"],
        "?sort=-name": ["none", "large", CLASS],
        "?sort=match": ["none", "large", CLASS],
    }
    assert {query: _names(admin, query) for query in orders} == orders
    assert 'rel="next"' not in admin.get("/classes").content.decode()
    monkeypatch.setattr(views, "ROWS", 2)
    assert _names(admin, "?sort=match&page=1") == ["none", "large"]
    assert _names(admin, "?sort=match&page=2") == _names(admin, "?page=9&sort=-name") == [CLASS]
    assert len(admin.get("/classes.csv").content.splitlines()) == 4


# Verdicts ------------------------------------------------------------------------------------------------------------


def test_the_verdicts_name_the_operand_the_value_and_the_nodes(admin: Client, viewer: Client, shelf: Cluster) -> None:
    said = _judged(admin, OF_DRIVER, LARGE)
    assert "keeps 4 of 4" in said
    assert "keeps 2 of 4" in said
    assert "node-2 memory >= 120Gi 80Gi 2" in said
    assert texts.CLASS_FITS(2, 4, 2, 2) in said
    with CaptureQueriesContext(connection) as asked:
        assert "2 of 4" in _judged(viewer, LARGE), "whoever may not save may try"
    assert not [query for query in asked if "inventory_device" in query["sql"] and "class" not in query["sql"]]
    shelf.create(make_slice(node="node-3", devices=[make_device("gpu-0")]))
    assert texts.CLASS_FITS(5, 5, 4, 4) in _judged(admin, OF_DRIVER), "nothing is free where there is no node"
    shelf.delete(make_slice(node="node-3"))
    assert texts.CLASS_FITS(4, 4, 4, 4) in _judged(admin, OF_DRIVER)


def test_an_error_on_a_device_offers_a_guard_that_mends_it(admin: Client, shelf: Cluster) -> None:
    selector = f'device.attributes["{DRIVER}"].rack == "a" || device.attributes["{DRIVER}"].rack == "b"'
    page = admin.post(f"/classes/c/{CLASS}", {"selector": selector, "name": CLASS, "guard": "0"})
    assert page.status_code == 200
    said = _words(page)
    assert f'"rack" in device.attributes["{DRIVER}"] && ({selector})' in said
    assert "Raise an error" not in said


def test_what_does_not_compile_or_lacks_a_driver_is_told_where_it_is_and_cannot_be_saved(
    admin: Client, shelf: Cluster
) -> None:
    said = _judged(admin, OF_DRIVER, "device.driver ==")
    assert texts.NOT_SAVED_AS_NOT_COMPILED(2) in said
    assert texts.SELECTOR_LEFT_OUT(2) in said
    assert texts.COST_UNKNOWN in said
    form = {"name": "x", "selector": "true", "driver": "", "parameters": "kind: GpuConfig"}
    page = admin.post("/classes/verdicts", form).content.decode()
    assert "Required value" in page.partition('id="error-driver-0"')[2].partition("</div>")[0]


def test_an_error_quotes_no_regular_expression(admin: Client, shelf: Cluster) -> None:
    said = _judged(admin, f'device.capacity["{DRIVER}"].memory.isGreaterThan(quantity("80GB"))')
    assert "10Gi" in said
    assert "^" not in said


@pytest.mark.parametrize(
    ("selectors", "are_judged"),
    [((), True), ((OF_DRIVER,), True), ((OF_DRIVER, "device.driver =="), True), (("device.driver ==",), False)],
)
def test_no_device_matches_or_fails_while_no_selector_compiles(
    admin: Client, shelf: Cluster, selectors: tuple[str, ...], are_judged: bool
) -> None:
    page = admin.post("/classes/verdicts", {"name": "x", "selector": list(selectors)}).content.decode()
    assert ('id="match-count"' in page) is are_judged
    assert ('class="verdict-map"' in page) is are_judged


def test_check_shows_the_verdicts_without_script_and_stores_nothing(
    admin: Client, viewer: Client, shelf: Cluster
) -> None:
    before = _stored()
    answer = admin.post(f"/classes/c/{CLASS}", {"selector": LARGE, "name": CLASS, "check": ""})
    assert "2 of 4" in answer.content.decode().partition('id="verdicts"')[2]
    assert 'action="/classes/check"' in viewer.get(f"/classes/c/{CLASS}").content.decode()
    checked = viewer.post("/classes/check", {"editing": CLASS, "name": CLASS, "selector": LARGE, "check": "1"})
    assert re.search(r'id="count-\d+">\s*\w+ 2 \w+ 4\b', checked.content.decode())
    assert _stored() == before


def test_the_palette_lists_what_devices_really_have(admin: Client, shelf: Cluster) -> None:
    page = admin.get(f"/classes/c/{CLASS}").content.decode()
    assert 'data-insert="device.capacity[&quot;gpu.example.com&quot;].memory"' in page
    assert "80Gi, 141Gi" in page
    table = json.loads(admin.get("/classes/completions").content)["after"]
    assert {"label": '"H"'} in table[f'device.attributes["{DRIVER}"].model==']


# What saving would change --------------------------------------------------------------------------------------------


def test_the_difference_says_what_waiting_and_held_claims_would_see(admin: Client, shelf: Cluster) -> None:
    shelf.create(make_claim("holds"))
    shelf.create(make_pod("runs", claims={"gpu": "holds"}))
    shelf.settle()
    shelf.create(make_claim("waits"))
    shelf.create(make_claim("looks-elsewhere", requests=[make_request(expressions=[LARGE])]))
    answer = _verdicts(admin, OF_DRIVER, LARGE)
    said, impact = _words(answer), answer.context["bench"].impact
    assert (impact.before, impact.after, impact.held) == (4, 2, 1)
    assert [effect.claim.name for effect in impact.fewer] == ["waits"]
    assert impact.sentence in said
    assert "default/waits sees 4 → 2 devices" in said
    assert "+ expression: " in said


def test_nobody_is_told_of_claims_in_namespaces_that_they_do_not_see(admin: Client, shelf: Cluster) -> None:
    shelf.create(make_claim("secret", namespace="hidden"))
    shelf.create(make_claim("mine", namespace="open"))
    mia = member("mia", "open")
    for text in (_words(mia.get(f"/classes/c/{CLASS}")), _judged(mia, LARGE), _words(mia.get("/classes"))):
        assert "hidden" not in text
        assert "secret" not in text
    shown = {
        client: {effect.claim.name for effect in _verdicts(client, LARGE).context["bench"].impact.fewer}
        for client in (mia, admin)
    }
    assert shown == {mia: {"mine"}, admin: {"mine", "secret"}}


# Saving --------------------------------------------------------------------------------------------------------------


def test_a_class_is_saved_with_its_extended_resource_name_if_it_is_one(admin: Client, shelf: Cluster) -> None:
    for name in ("big", "kubernetes.io/big", "requests.example.com/big"):
        said = _judged(admin, LARGE, editing="", name="big", extended=name)
        assert texts.EXTENDED_NAME_INVALID in said, name
        assert texts.NOT_SAVED_AS_FIELD_INVALID in said, name
        saved = admin.post("/classes/new", {"name": "big", "selector": LARGE, "extended": name})
        assert saved.status_code == 422, name
    fields = {"name": "big", "selector": LARGE, "extended": "example.com/big"}
    assert admin.post("/classes/new", fields).headers["Location"] == "/classes/c/big"
    assert _stored("big").spec.extended_resource_name == "example.com/big"


def test_nothing_is_written_while_all_of_dra_is_off(admin: Client, shelf: Cluster) -> None:
    with gates.using(DynamicResourceAllocation=False):
        page = admin.post("/classes/new", {"name": "big", "selector": LARGE})
        assert page.status_code == 422
        assert texts.FIELDS_NOT_SERVED in _words(page)
        refused = admin.post(f"/classes/c/{CLASS}/delete")
        assert refused.headers["Location"] == f"/classes/c/{CLASS}"  # where the message is, and not the list
    assert [one.metadata.name for one in shelf.all(DeviceClass)] == [CLASS]


def test_who_saves_what_somebody_else_changed_meanwhile_is_not_told_of_a_wrong_field(
    admin: Client, shelf: Cluster
) -> None:
    fields = {"selector": LARGE, "resource_version": _stored().metadata.resource_version}
    assert admin.post(f"/classes/c/{CLASS}", fields).status_code == 302
    late = admin.post(f"/classes/c/{CLASS}", fields | {"selector": OF_DRIVER})
    assert late.status_code == 422
    assert late.context["bench"].form.non_field_errors()
    assert texts.NOT_SAVED_AS_REFUSED in _words(late)


# YAML and history ----------------------------------------------------------------------------------------------------


def _diagnosed(client: Client, what: str, text: str, **fields: str) -> list[tuple[int, int, str]]:
    found = client.post(f"/classes/diagnostics/{what}", {"text": text, **fields}).json()
    return [(one["line"], one["column"], one["message"]) for one in found]


def test_a_class_is_saved_as_yaml_and_its_history_tells_each_change(admin: Client, shelf: Cluster) -> None:
    page = admin.get(f"/classes/c/{CLASS}?tab=yaml").content.decode()
    text = html.unescape(page.partition('id="yaml"')[2].partition(">")[2].partition("</textarea>")[0])
    wanted = text.replace(OF_DRIVER, "1 == 1")
    assert wanted != text
    assert admin.post(f"/classes/c/{CLASS}/yaml", {"yaml": wanted}).status_code == 302
    cel = _stored().spec.selectors[0].cel
    assert cel is not None
    assert cel.expression == "1 == 1"
    refused = admin.post(f"/classes/c/{CLASS}/yaml", {"yaml": wanted})
    assert refused.status_code == 422
    assert texts.CLASS_CHANGED_MEANWHILE in _words(refused)
    said = _words(admin.get(f"/classes/c/{CLASS}?tab=history"))
    assert said.index("changed spec.selectors") < said.index("created it")
    assert f"{MINUS} expression: {OF_DRIVER}" in said.replace("'", "")


#: a text -> where its first fault is, and what
WRONG = {
    "kind: [": (1, 8, "Expected the node content"),
    "apiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {name: other}": (3, 12, "The name stays"),
    f"metadata: {{name: {CLASS}}}\nspec:\n  colour: red": (3, 3, 'unknown field "spec.colour"'),
    f"metadata: {{name: {CLASS}}}\nspec:\n  selectors:\n  - cel: {{expression: nonsense}}": (4, 11, "undeclared"),
    "- a": (1, 1, "is a mapping"),
}


def test_yaml_that_is_no_class_is_told_where(admin: Client, shelf: Cluster) -> None:
    for text, (line, column, message) in WRONG.items():
        first = _diagnosed(admin, "class", text, editing=CLASS)[0]
        assert first[:2] == (line, column), text
        assert message in first[2], text


# The end of a class --------------------------------------------------------------------------------------------------


def test_deleting_a_class_says_first_who_would_wait(admin: Client, shelf: Cluster) -> None:
    shelf.create(make_claim("waits", requests=[make_request(count=9)]))
    said = _words(admin.get(f"/classes/c/{CLASS}/delete"))
    assert texts.COULD_NOT_BE_ALLOCATED(1, "default/waits") in said
    assert "Cancel" in said
    assert admin.post(f"/classes/c/{CLASS}/delete").headers["Location"] == "/classes"
    assert objects.get(kind(CLASSES), "", CLASS) is None
    assert admin.get(f"/classes/c/{CLASS}").status_code == 404


def test_a_class_with_a_long_name_is_told_by_what_it_can_be_requested(admin: Client, shelf: Cluster) -> None:
    for length, is_long in ((63, False), (64, True)):
        name = "x" * length
        shelf.create(make_class(name))
        page = admin.get(f"/classes/c/{name}").content.decode()
        assert (texts.ONLY_BY_THE_GIVEN_NAME in page) == is_long

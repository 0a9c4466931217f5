"""Devices that are alike share what is kept and what is derived of them."""

from __future__ import annotations

import gc
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inventory.kinds.devices import Device, ResourceSlice
from manciple.wire.codec import decode_text, decode_value
from scheduling.allocator import Inventory, NodeView, place, requests
from scheduling.allocator.published import PublishedDevice
from scheduling.allocator.requests import projection_of
from scheduling.cel import DeviceView, EvaluationError, Selector, compile_selector
from tests.examples import some
from tests.scheduling.allocator.cases import GPU, Json, answer, device, make_claim, make_inventory, make_slice, request

#: 256 MiB for 100,000 devices.
BYTES_A_DEVICE = 256 * 2**20 // 100_000

EXPRESSIONS = [
    'device.attributes["gpu.example.com"].model == "A"',
    '"model" in device.attributes["gpu.example.com"]',
    'device.attributes["other.example.com"].?model.orValue("none") == "B"',
    'device.driver == "gpu.example.com" && device.attributes["gpu.example.com"].size > 1',
    'device.capacity["gpu.example.com"].memory.compareTo(quantity("2Gi")) > 0',
    "device.allowMultipleAllocations == true",
    'has(device.attributes["gpu.example.com"].version) && device.attributes["gpu.example.com"].model == "B"',
]


def _verdict(expression: str, published: Json) -> bool | str:
    """By the expression itself."""
    try:
        return compile_selector(expression).matches(DeviceView.of(GPU, decode_value(Device, published)))
    except EvaluationError as error:
        return str(error)


@st.composite
def _devices(draw: st.DrawFn) -> Json:
    attributes: Json = {}
    for name in ("model", f"{GPU}/model", "other.example.com/model"):
        if draw(st.booleans()):
            attributes[name] = {"string": draw(st.sampled_from("AB"))}
    if draw(st.booleans()):
        attributes["size"] = draw(st.sampled_from([{"int": 1}, {"int": 2}, {"string": "2"}, {"version": "2.0.0"}]))
    if draw(st.booleans()):
        attributes["version"] = draw(st.sampled_from([{"version": "1.0.0"}, {"version": "not one"}, {}]))
    made: Json = {"attributes": attributes}
    if draw(st.booleans()):
        made["capacity"] = {"memory": {"value": draw(st.sampled_from(["1Gi", "4Gi"]))}}
    if draw(st.booleans()):
        made["allowMultipleAllocations"] = draw(st.booleans())
    return made


@settings(max_examples=some(80), deadline=None, derandomize=True)
@given(st.lists(_devices(), min_size=2, max_size=8), st.sampled_from(EXPRESSIONS))
def test_devices_that_look_alike_to_an_expression_get_its_own_verdict(devices: list[Json], expression: str) -> None:
    named = [{"name": f"d-{number}", **one} for number, one in enumerate(devices)]
    inventory = make_inventory(make_slice(*named))
    (view,) = inventory.snapshot().on_node(NodeView("node-1")).pools
    ref = requests.SelectorRef("class gpu", 0, expression)
    match, errors = requests.chosen(view.generation, (ref,), (1 << len(named)) - 1)
    for position, one in enumerate(named):
        verdict = _verdict(expression, one)
        assert bool(match >> position & 1) == (verdict is True)
        assert bool(errors >> position & 1) == isinstance(verdict, str)


def test_an_expression_is_evaluated_once_for_devices_that_differ_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    evaluated: list[str] = []
    verdict = requests._verdict

    def counting(selector: Selector, published: PublishedDevice) -> bool | str:
        evaluated.append(published.name)
        return verdict(selector, published)

    monkeypatch.setattr(requests, "_verdict", counting)
    slices = [
        make_slice(
            *(device(f"d-{at}", model="AB"[at % 2], serial=f"{pool}-{at}") for at in range(20)), pool=f"p-{pool}"
        )
        for pool in range(5)
    ]
    answer(make_inventory(*slices), make_claim(request(where=EXPRESSIONS[0])))
    assert sorted(evaluated) == ["d-0", "d-1"]


def test_a_name_with_and_without_its_domain_is_not_told_apart_simply() -> None:
    project = projection_of(compile_selector(EXPRESSIONS[0]).references, GPU)
    assert project is not None
    both = {"attributes": {"model": {"string": "A"}, f"{GPU}/model": {"string": "B"}}}
    assert project(decode_value(Device, both)) is None
    assert projection_of(compile_selector(EXPRESSIONS[1]).references, GPU) is None


def test_an_inventory_keeps_within_its_memory() -> None:
    """Every device has ten attributes, two of them its own, as decoded from documents of their own."""
    nodes = tuple(NodeView(f"node-{number}") for number in range(50))
    texts = [_document(node.name) for node in nodes]
    claim = make_claim(request(where=EXPRESSIONS[0]), match=f"{GPU}/numa")
    tracemalloc.start()
    try:
        inventory = _published(texts)
        assert place(inventory.snapshot(), [claim], nodes).node == nodes[0]
        gc.collect()
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken / (len(nodes) * 20) < BYTES_A_DEVICE


def _published(texts: list[str]) -> Inventory:
    inventory = make_inventory()
    for text in texts:
        inventory.apply_slice(decode_text(ResourceSlice, text))
    return inventory


def _document(node: str) -> str:
    attributes = ", ".join(f'"a{number}": {{"string": "value {number}"}}' for number in range(6))
    devices = ", ".join(
        f'{{"name": "d-{at}", "attributes": {{{attributes}, "model": {{"string": "A"}}, "numa": {{"int": {at // 4}}}, '
        f'"uuid": {{"string": "{node}-{at}"}}, "bus": {{"string": "bus-{node}-{at}"}}}}, '
        f'"capacity": {{"memory": {{"value": "80Gi"}}}}}}'
        for at in range(20)
    )
    pool = f'"pool": {{"name": "{node}", "generation": 1, "resourceSliceCount": 1}}'
    spec = f'{{"driver": "{GPU}", {pool}, "nodeName": "{node}", "devices": [{devices}]}}'
    return f'{{"metadata": {{"name": "{node}"}}, "spec": {spec}}}'

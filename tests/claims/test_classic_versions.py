"""v1alpha2 and v1alpha3 beside v1: each shows its part of a stored object, and a write through it keeps the rest."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from claims.kinds.registration import KINDS as CLAIM_KINDS
from claims.kinds.registration import RESOURCE_CLAIM, RESOURCE_CLAIM_TEMPLATE
from inventory.kinds.registration import DEVICE_CLASS, RESOURCE_SLICE
from manciple.wire import codec
from manciple.wire.base import Declaration, Value, declarations
from manciple.wire.registry import Kind, Served
from tests.manciple.wire.samples import make_full

SHAPED = [
    (kind, version)
    for kind in (RESOURCE_CLAIM, RESOURCE_CLAIM_TEMPLATE, DEVICE_CLASS, RESOURCE_SLICE)
    for version, conversion in kind.served_versions.items()
    if conversion.type is not None
]
NAMED = [f"{kind.kind} {version}" for kind, version in SHAPED]
EVERY = [
    (kind, served)
    for kind in (RESOURCE_CLAIM, RESOURCE_CLAIM_TEMPLATE, DEVICE_CLASS, RESOURCE_SLICE)
    for served in (Served(kind, kind.version), *(Served(kind, *one) for one in kind.served_versions.items()))
]


def full(kind: Kind) -> Any:
    """Every field set, of a claim that a driver's controller allocated: its name stands in the allocation alone."""
    made: Any = replace(make_full(kind.type), api_version=kind.api_version, kind=kind.kind)
    if kind is not RESOURCE_CLAIM:
        return made
    allocation = made.status.allocation
    handles = tuple(replace(one, structured_data=None) for one in allocation.resource_handles)
    return replace(
        made, status=replace(made.status, driver_name="", allocation=replace(allocation, resource_handles=handles))
    )


def test_the_versions_are_those_of_the_documents() -> None:
    assert NAMED == [
        "ResourceClaim v1beta1",
        "ResourceClaim v1alpha3",
        "ResourceClaim v1alpha2",
        "ResourceClaimTemplate v1beta1",
        "ResourceClaimTemplate v1alpha3",
        "ResourceClaimTemplate v1alpha2",
        "DeviceClass v1alpha3",
        "ResourceSlice v1beta1",
        "ResourceSlice v1alpha2",
    ]
    assert "podschedulingcontexts" in {kind.plural for kind in CLAIM_KINDS}


@pytest.mark.parametrize(("kind", "served"), EVERY, ids=[f"{kind.kind} {served.version}" for kind, served in EVERY])
def test_each_version_shows_what_its_type_declares_and_an_object_that_is_written_back_is_what_it_was(
    kind: Kind, served: Served
) -> None:
    stored = full(kind)
    shown = served.document(codec.to_builtins(stored))
    if (kind, served.version) in SHAPED:
        _, warnings = codec.checked_document(served.shape, shown, api_version=served.api_version, strictness="Strict")
        assert warnings == ()
    if served.hides_asides:
        assert '"~' not in served.text(codec.encode(stored).decode())
    assert served.completed(codec.decode_value(kind.type, served.to_storage(shown)), stored) == stored


# Any document that their clients can write ----------------------------------------------------------------------------


@cache
def documents(type_: type[Value]) -> st.SearchStrategy[dict[str, Any]]:
    """Builtins of the type, each field there or not."""
    optional = {
        declared.name: _field(declared)
        for declared in declarations(type_)
        if declared.name not in ("apiVersion", "kind", "metadata", "controller", "exactly")
    }
    return st.fixed_dictionaries({}, optional=optional)


def _field(declared: Declaration) -> st.SearchStrategy[Any]:
    element = declared.shape.element
    one: st.SearchStrategy[Any]
    if declared.encoding in _ENCODED:
        one = st.just(_ENCODED[declared.encoding])
    elif issubclass(element, Value):
        one = st.deferred(lambda: documents(element))
    else:
        one = {str: st.sampled_from(["a", "b.example.com"]), int: st.integers(1, 9), bool: st.just(value=True)}[element]
    if declared.shape.container == "list":
        return st.lists(one, min_size=1, max_size=2)
    return st.dictionaries(st.sampled_from(["x", "y"]), one, min_size=1) if declared.shape.container == "map" else one


_ENCODED: dict[str, Any] = {"raw": {"any": 1}, "quantity": "1Gi", "time": "2026-01-01T00:00:00Z"}


@pytest.mark.parametrize(("kind", "version"), SHAPED, ids=NAMED)
@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data())
def test_whatever_is_written_in_a_version_is_read_back_in_it(kind: Kind, version: str, data: st.DataObject) -> None:
    served = Served(kind, version, kind.served_versions[version])
    written = {"apiVersion": served.api_version, "kind": kind.kind, "metadata": {"name": "o"}}
    written |= data.draw(documents(served.shape))
    checked, _ = codec.checked_document(served.shape, written, api_version=served.api_version, strictness="Warn")
    stored = codec.decode_value(kind.type, served.to_storage(checked))
    shown = served.document(codec.to_builtins(stored))
    back, _ = codec.checked_document(served.shape, shown, api_version=served.api_version, strictness="Strict")
    assert _comparable(back) == _comparable(checked)


def _comparable(document: Any) -> Any:
    """Without the second spelling of a controller, and without what is empty."""
    if isinstance(document, dict):
        parts = {name: _comparable(part) for name, part in document.items() if name != "controller"}
        return {name: part for name, part in parts.items() if part not in ({}, [], "", None)}
    return [_comparable(one) for one in document] if isinstance(document, list) else document

"""v1alpha2 and v1alpha3 beside v1: each shows its part of a stored object, and a write through it keeps the rest."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from claims.kinds.registration import KINDS as CLAIM_KINDS
from claims.kinds.registration import RESOURCE_CLAIM, RESOURCE_CLAIM_TEMPLATE
from inventory.kinds.registration import DEVICE_CLASS, RESOURCE_SLICE
from manciple.wire import codec
from manciple.wire.registry import Kind, Served
from tests.manciple.wire.samples import make_full

SHAPED = [
    (kind, version)
    for kind in (RESOURCE_CLAIM, RESOURCE_CLAIM_TEMPLATE, DEVICE_CLASS, RESOURCE_SLICE)
    for version, conversion in kind.served_versions.items()
    if conversion.shaped
]
NAMED = [f"{kind.kind} {version}" for kind, version in SHAPED]
EVERY = [
    (kind, served)
    for kind in (RESOURCE_CLAIM, RESOURCE_CLAIM_TEMPLATE, DEVICE_CLASS, RESOURCE_SLICE)
    for served in (Served(kind, kind.version), *(Served(kind, *one) for one in kind.served_versions.items()))
]


def full(kind: Kind) -> Any:
    """Every field set, but for the name that stands for the driver only while nothing is allocated."""
    made: Any = replace(make_full(kind.type), api_version=kind.api_version, kind=kind.kind)
    return replace(made, status=replace(made.status, driver_name="")) if kind is RESOURCE_CLAIM else made


def test_the_versions_are_those_of_the_documents() -> None:
    assert NAMED == [
        "ResourceClaim v1alpha3",
        "ResourceClaim v1alpha2",
        "ResourceClaimTemplate v1alpha3",
        "ResourceClaimTemplate v1alpha2",
        "DeviceClass v1alpha3",
        "ResourceSlice v1alpha2",
    ]
    assert "podschedulingcontexts" in {kind.plural for kind in CLAIM_KINDS}


@pytest.mark.parametrize(("kind", "version"), SHAPED, ids=NAMED)
def test_what_a_version_shows_is_what_its_type_declares(kind: Kind, version: str) -> None:
    served = Served(kind, version, kind.served_versions[version])
    shown = served.document(codec.to_builtins(full(kind)))
    _, warnings = codec.checked_document(
        served.message_type, shown, api_version=served.api_version, strictness="Strict"
    )
    assert warnings == ()


@pytest.mark.parametrize(("kind", "served"), EVERY, ids=[f"{kind.kind} {served.version}" for kind, served in EVERY])
def test_an_object_that_is_read_and_written_back_is_what_it_was(kind: Kind, served: Served) -> None:
    stored = full(kind)
    shown = served.document(codec.to_builtins(stored))
    back = codec.decode_value(kind.type, served.to_storage(shown))
    assert served.completed(back, stored) == stored


@pytest.mark.parametrize(
    ("kind", "served"),
    [(kind, served) for kind, served in EVERY if served.hides_asides],
    ids=[f"{kind.kind} {served.version}" for kind, served in EVERY if served.hides_asides],
)
def test_other_versions_show_nothing_of_what_is_kept_aside(kind: Kind, served: Served) -> None:
    text = served.text(codec.encode(full(kind)).decode())
    assert '"~' not in text

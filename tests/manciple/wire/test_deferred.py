"""Declarations of features that are off: known by name, imported when more of them is used."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

from claims.kinds import early as early_claims
from inventory.kinds import early as early_inventory
from manciple.wire.deferred import deferred, deferred_function, deferred_kind, imported
from manciple.wire.registry import Conversion, Kind, Registry

NAME = "module_of_a_feature"
FEATURE = """
from manciple.wire.base import ApiObject
from manciple.wire.registry import Conversion, Kind

class Widget(ApiObject):
    "A widget."

WIDGET = Kind(
    group="example.com", version="v1", plural="widgets", type=Widget,
    validate_create=lambda new: (), validate_update=lambda new, old: (), description="A widget.",
)
V2 = Conversion(to_storage=lambda document: document | {"stored": True}, from_storage=dict, type=Widget)

def added(one, *, other):
    return one + other
"""


@pytest.fixture(autouse=True)
def feature(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Can be imported, and is not yet."""
    (tmp_path / f"{NAME}.py").write_text(FEATURE)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop(NAME, None)


def is_imported() -> bool:
    return NAME in sys.modules


def widget() -> Kind:
    return deferred_kind(f"{NAME}:WIDGET", "Widget", "widgets", "example.com/v1", is_served=lambda: False)


def test_a_kind_is_registered_found_listed_and_not_served_without_its_declaration() -> None:
    registry, kind = Registry(), widget()
    registry.register(kind)
    assert registry.by_resource("widgets.example.com") is registry.of_kind("example.com", "v1", "Widget") is kind
    assert [(one.resource, one.kind, one.api_version, one.namespaced) for one in registry] == [
        ("widgets.example.com", "Widget", "example.com/v1", True)
    ]
    assert registry.served("example.com", "v1", "widgets") is None
    assert registry.is_own("example.com", "v1", "widgets")
    assert registry.groups() == {}
    assert not is_imported()


def test_whatever_else_is_read_of_a_kind_is_its_declarations() -> None:
    kind = widget()
    assert kind.type.__name__ == "Widget"
    assert is_imported()
    declared = imported(f"{NAME}:WIDGET")
    assert kind.create_rule("v1") is declared.validate_create
    assert not kind.is_served()
    assert declared.is_served()


def test_a_conversion_knows_whether_it_is_served_and_imports_how() -> None:
    conversion = deferred(Conversion, f"{NAME}:V2", is_served=lambda: False)
    assert not conversion.is_served()
    assert not is_imported()
    assert conversion.to_storage({}) == {"stored": True}


def test_a_function_is_imported_by_its_first_call() -> None:
    added = deferred_function(f"{NAME}:added")
    assert not is_imported()
    assert added(1, other=2) == 3


def test_only_fields_are_looked_for_in_a_declaration() -> None:
    kind = widget()
    with pytest.raises(AttributeError, match="colour"):
        _ = kind.colour  # type: ignore[attr-defined]
    assert not is_imported()


# The tables -----------------------------------------------------------------------------------------------------------


KINDS = (*early_inventory.KINDS, *early_claims.KINDS)
VERSIONS = {
    f"{table} {version}": conversion
    for table, versions in (
        ("class", early_inventory.CLASS_VERSIONS),
        ("slice", early_inventory.SLICE_VERSIONS),
        ("claim", early_claims.CLAIM_VERSIONS),
        ("template", early_claims.TEMPLATE_VERSIONS),
    )
    for version, conversion in versions.items()
}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: str(kind.resource))
def test_the_table_says_of_a_kind_what_its_declaration_says(kind: Kind) -> None:
    declared: Kind = imported(kind._place)  # type: ignore[attr-defined]
    differing = [one.name for one in fields(Kind) if getattr(kind, one.name) != getattr(declared, one.name)]
    assert differing in ([], ["is_served"])
    assert kind.is_served() == declared.is_served()


@pytest.mark.parametrize("conversion", VERSIONS.values(), ids=VERSIONS)
def test_the_table_says_of_a_version_what_its_declaration_says(conversion: Conversion) -> None:
    declared: Conversion = imported(conversion._place)  # type: ignore[attr-defined]
    assert [
        one.name for one in fields(Conversion) if getattr(conversion, one.name) != getattr(declared, one.name)
    ] == []

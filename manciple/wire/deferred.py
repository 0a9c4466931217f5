"""Parts of features that may be off: imported when they are first used. PURE.

A package that classic DRA or a draft extends has a module `early`: a table of what the feature adds, in these forms. So
a process imports nothing of a feature while its gate is off, and still handles every object that was stored while the
gate was on: reading such an object uses its kind's declaration, and so imports it.

    RESOURCE_CLASS = deferred_kind(
        "inventory.classic.registration:RESOURCE_CLASS", "ResourceClass", "resourceclasses", "resource.k8s.io/v1alpha2",
        namespaced=False, is_served=classes_are_served,
    )
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import cache
from importlib import import_module
from typing import Any, TypeVar

from manciple.wire.registry import Conversion, Kind

T = TypeVar("T")


def imported(place: str) -> Any:
    """place: `module:attribute`."""
    module, _, attribute = place.partition(":")
    return getattr(import_module(module), attribute)


def deferred_function(place: str) -> Callable[..., Any]:
    """The function at `place`, imported by the first call."""

    def call(*args: Any, **named: Any) -> Any:
        return imported(place)(*args, **named)

    return call


def deferred(type_: type[T], place: str, **known: Any) -> T:
    """The declaration at `place`, which is imported when a field is read that `known` lacks.

    type_: of the declaration; a frozen dataclass with slots.
    """
    declared: T = object.__new__(_deferred_type(type_))  # type: ignore[arg-type]  # classes are hashable
    for name, value in {"_place": place, **known}.items():
        object.__setattr__(declared, name, value)
    return declared


@cache
def _deferred_type(type_: type[Any]) -> type[Any]:
    names = frozenset(field.name for field in fields(type_))

    def complete(self: Any, name: str) -> Any:
        """Called for an attribute without a value: take over every missing field."""
        if name not in names:
            raise AttributeError(f"{type_.__name__} has no attribute {name}")
        declared = imported(self._place)
        for missing in names:
            try:
                object.__getattribute__(self, missing)
            except AttributeError:
                object.__setattr__(self, missing, getattr(declared, missing))
        return object.__getattribute__(self, name)

    return type(f"Deferred{type_.__name__}", (type_,), {"__slots__": ("_place",), "__getattr__": complete})


def deferred_kind(
    place: str,
    kind: str,
    plural: str,
    api_version: str,
    *,
    is_served: Callable[[], bool],
    namespaced: bool = True,
    served_versions: Mapping[str, Conversion] | None = None,
) -> Kind:
    """All by which a kind is found, listed and counted is known without importing its declaration."""
    group, _, version = api_version.rpartition("/")
    return deferred(
        Kind,
        place,
        group=group,
        version=version,
        kind=kind,
        singular=kind.lower(),
        plural=plural,
        api_version=api_version,
        resource=f"{plural}.{group}",
        namespaced=namespaced,
        is_served=is_served,
        served_versions=served_versions or {},
        confidential=False,
        is_open=False,
    )

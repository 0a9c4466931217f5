"""Subresources that are worked out when somebody asks: GET answers a document, and nothing is stored.

Floors above the API register theirs from `AppConfig.ready()`, as `explain` of pods and claims. They are listed in
discovery and in the OpenAPI documents, and asked for like any other: `kubectl get --raw .../pods/NAME/explain`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from manciple.wire.registry import Kind

#: (namespace, name) of the object -> the document. Raises: ApiError, NotFound for an object that is not there.
Answer = Callable[[str, str], Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Computed:
    """One such subresource. group, version and kind are those of the document that it answers."""

    name: str
    group: str
    version: str
    kind: str
    answer: Answer


_registered: dict[str, dict[str, Computed]] = {}


def register(resource: str, computed: Computed) -> None:
    """Serve `computed` below every object of `resource` ("pods", "resourceclaims.resource.k8s.io"), in all versions."""
    _registered.setdefault(resource, {})[computed.name] = computed


def find(kind: Kind, name: str) -> Computed | None:
    """What is computed at subresource `name` of `kind`; None where nothing is."""
    return _registered.get(kind.resource, {}).get(name)


def of(kind: Kind) -> Iterable[Computed]:
    """All that is computed below `kind`, in the order of registration."""
    return _registered.get(kind.resource, {}).values()

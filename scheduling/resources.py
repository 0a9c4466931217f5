"""The resources that scheduling reads and writes, and how their documents become values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from manciple.store import objects
from manciple.store.records import EventRecord, Stored
from manciple.wire.base import ApiObject
from manciple.wire.registry import Kind, registry

PODS = "pods"
NODES = "nodes"
NAMESPACES = "namespaces"
LEASES = "leases.coordination.k8s.io"
EVENTS = "events"
CLAIMS = "resourceclaims.resource.k8s.io"
TEMPLATES = "resourceclaimtemplates.resource.k8s.io"
SLICES = "resourceslices.resource.k8s.io"
CLASSES = "deviceclasses.resource.k8s.io"
QUOTAS = "resourcequotas"
TAINT_RULES = "devicetaintrules.resource.k8s.io"

#: (namespace, name)
Key = tuple[str, str]
ObjectT = TypeVar("ObjectT", bound=ApiObject)


def kind(resource: str) -> Kind:
    """The registered kind; looked up when needed, because the apps register theirs when Django is ready."""
    return registry.by_resource(resource)


def decoded(source: Stored | EventRecord, type_: type[ObjectT]) -> ObjectT:
    """The typed value of a document of the store. Raises: TypeError when its kind has another type."""
    obj = objects.decode(registry.by_resource(source.resource), source.text)
    if not isinstance(obj, type_):
        raise TypeError(f"{source.resource} are not of type {type_.__name__}")
    return obj


def key_of(obj: ApiObject) -> Key:
    return obj.metadata.namespace, obj.metadata.name


def listed(resource: str, type_: type[ObjectT], *, namespace: str = "") -> tuple[int, Sequence[ObjectT]]:
    """All objects of a resource and the revision at which they were so."""
    page = objects.list(kind(resource), namespace=namespace)
    return page.revision, [decoded(stored, type_) for stored in page.items]

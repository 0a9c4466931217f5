"""Rows that somebody may read: `Pod.objects.restrict(person)`, on every index table.

Rights are those of the API. Rows of a namespace are shown to whoever sees the namespace, rows of the cluster to whoever
may list the resource that they are an index of. A table declares by its manager which of the two holds:

    objects = OfNamespace.manager()                       # by the column `namespace`
    objects = OfNamespace.manager("claim__namespace")
    objects = OfNamespace.manager(resource="resourcequotas")
    objects = OfCluster.manager("nodes")
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol, Self, TypeVar

from django.db import models

Row_co = TypeVar("Row_co", bound=models.Model, covariant=True)


class Reader(Protocol):
    """Somebody who asks. namespaces: those that they see, None for all."""

    @property
    def namespaces(self) -> frozenset[str] | None: ...

    def may(self, verb: str, resource: str, namespace: str = "", name: str = "") -> bool: ...


class OfNamespace(models.QuerySet[Row_co]):
    """Rows of objects that belong to a namespace. resource: what a reader has to be allowed to list there besides."""

    namespace_field = "namespace"
    resource = ""

    @classmethod
    def manager(cls, field: str = "namespace", *, resource: str = "") -> Any:
        """field: the column, or the way to it, that names the namespace of a row."""
        restricted: Any = type(cls.__name__, (cls,), {"namespace_field": field, "resource": resource})
        return restricted.as_manager()

    def restrict(self, reader: Reader) -> Self:
        """Those that `reader` may read."""
        namespaces: Iterable[str] | None = reader.namespaces
        if self.resource and not reader.may("list", self.resource):
            if namespaces is None:
                namespaces = self.order_by().values_list(self.namespace_field, flat=True).distinct()
            namespaces = [one for one in namespaces if reader.may("list", self.resource, one)]
        return self if namespaces is None else self.filter(**{f"{self.namespace_field}__in": namespaces})


class OfCluster(models.QuerySet[Row_co]):
    """Rows of objects that belong to no namespace. resource: as `Reader.may` names it."""

    resource = ""

    @classmethod
    def manager(cls, resource: str) -> Any:
        restricted: Any = type(cls.__name__, (cls,), {"resource": resource})
        return restricted.as_manager()

    def restrict(self, reader: Reader) -> Self:
        """All of them, or none."""
        return self if reader.may("list", self.resource) else self.none()

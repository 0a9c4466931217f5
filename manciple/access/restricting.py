"""Rows that somebody may read: `Pod.objects.restrict(person)`, on every index table.

Rights are those of the API. Rows of a namespace are shown to whoever sees the namespace, rows of the cluster to whoever
may list the resource that they are an index of. A table declares which of the two holds:

    readable = OfNamespace()                       # by the column `namespace`
    readable = OfNamespace("claim__namespace")
    readable = OfNamespace(resource="resourcequotas")
    readable = OfCluster("nodes")
    objects = RestrictedManager()
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol, Self, TypeVar

from django.db import models

Row_co = TypeVar("Row_co", bound=models.Model, covariant=True)


class Reader(Protocol):
    """Somebody who asks. namespaces: those that they see, None for all."""

    @property
    def namespaces(self) -> frozenset[str] | None: ...

    def may(self, verb: str, resource: str, namespace: str = "", name: str = "") -> bool: ...


@dataclass(frozen=True)
class OfNamespace:
    """Rows of objects that belong to a namespace.

    field: the column, or the way to it, that names the namespace of a row. resource: what a reader has to be allowed to
    list there besides.
    """

    field: str = "namespace"
    resource: str = ""

    def restrict(self, rows: Any, reader: Reader) -> Any:
        namespaces: Iterable[str] | None = reader.namespaces
        if self.resource and not reader.may("list", self.resource):
            if namespaces is None:
                namespaces = rows.order_by().values_list(self.field, flat=True).distinct()
            namespaces = [one for one in namespaces if reader.may("list", self.resource, one)]
        return rows if namespaces is None else rows.filter(**{f"{self.field}__in": namespaces})


@dataclass(frozen=True)
class OfCluster:
    """Rows of objects that belong to no namespace. resource: as `Reader.may` names it."""

    resource: str

    def restrict(self, rows: Any, reader: Reader) -> Any:
        return rows if reader.may("list", self.resource) else rows.none()


class RestrictedQuerySet(models.QuerySet[Row_co]):
    """Rows of a table that declares `readable`."""

    def restrict(self, reader: Reader) -> Self:
        """Those that `reader` may read."""
        return self.model.readable.restrict(self, reader)  # type: ignore[attr-defined, no-any-return]


class RestrictedManager(models.Manager[Row_co]):
    """The manager of a table that declares `readable`."""

    def get_queryset(self) -> RestrictedQuerySet[Row_co]:
        return RestrictedQuerySet(self.model, using=self._db)

    def restrict(self, reader: Reader) -> RestrictedQuerySet[Row_co]:
        """The rows that `reader` may read."""
        return self.get_queryset().restrict(reader)

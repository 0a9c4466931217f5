"""What all REST resources here have in common: who asks, what they may read, pages of rows, and errors."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import UTC, datetime
from typing import Any

import django_filters as filters
from django.core.exceptions import ValidationError
from django.core.validators import EMPTY_VALUES
from django.db.models import Exists, QuerySet
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django_filters.fields import IsoDateTimeField
from django_filters.rest_framework import DjangoFilterBackend
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import ParseError
from rest_framework.filters import OrderingFilter
from rest_framework.pagination import PageNumberPagination
from rest_framework.permissions import BasePermission
from rest_framework.renderers import BrowsableAPIRenderer, JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView, exception_handler
from rest_framework.viewsets import ReadOnlyModelViewSet

from dashboard.kit.middleware import limited_queries
from manciple.access.view_rights import AUTHORIZES
from manciple.api.door import ShownCredentials
from manciple.people import Person, person_of, person_of_identity
from manciple.wire.errors import ApiError
from manciple.wire.identity import ANONYMOUS

#: Rows on a page of a list, unless `page_size` says otherwise, and the most that it may say.
PAGE_ROWS, MOST_ROWS = 100, 1000


# DRF's `request.user` is the authenticated user, `request.auth` the Person.


class SignedIn(BaseAuthentication):
    """The person whose session it is. Nothing here writes, so no request needs a CSRF token."""

    def authenticate(self, request: Request) -> tuple[Any, Person] | None:
        http = request._request
        return (http.user, person_of(http)) if http.user.is_authenticated else None


class Credentials(ShownCredentials):
    """Whoever shows a token or a certificate, as in the API: service accounts and people's own tokens."""

    def authenticate(self, request: Request) -> Any:
        identity, _ = super().authenticate(request)
        if identity == ANONYMOUS:
            return None
        person = person_of_identity(identity)
        request._request.manciple_person = person  # type: ignore[attr-defined]  # for `person_of` in templates
        return identity, person


class MayRead(BasePermission):
    """Signed-in callers who may list every resource in `lists`; rows are restricted besides."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        person = request.auth
        if not isinstance(person, Person):
            return False
        return all(person.may("list", resource) for resource in getattr(view, "lists", ()))


class Pages(PageNumberPagination):
    page_size = PAGE_ROWS
    page_size_query_param = "page_size"
    max_page_size = MOST_ROWS


class StableOrdering(OrderingFilter):
    """With the primary key last: rows that are equal otherwise keep their order, so no page repeats or skips a row."""

    def filter_queryset(self, request: Request, queryset: QuerySet[Any], view: APIView) -> QuerySet[Any]:
        ordered = super().filter_queryset(request, queryset, view)
        return ordered.order_by(*ordered.query.order_by, "pk")


# Filters --------------------------------------------------------------------------------------------------------------


class _MomentField(IsoDateTimeField):
    def to_python(self, value: Any) -> datetime | None:
        moment: datetime | None = super().to_python(value)
        try:
            return None if moment is None else moment.astimezone(UTC)
        except OverflowError as error:  # before year 1 or after 9999 in UTC
            raise ValidationError(self.error_messages["invalid"], code="invalid") from error


class MomentFilter(filters.IsoDateTimeFilter):
    """A moment in ISO 8601, in any time zone."""

    field_class = _MomentField


class PartFilter(filters.CharFilter):
    """A filter by a column of a row's parts (`PartFilterSet`)."""


class PartNumberFilter(filters.NumberFilter):
    """Likewise."""


class PartFilterSet(filters.FilterSet):
    """Filters by columns of a row and of its parts: all filters by parts have to match in one part.

    A subquery for all of them: a join for each filter would multiply a row by its parts once per filter.
    """

    #: the parts of the row of the outer query
    parts: QuerySet[Any]

    def filter_queryset(self, queryset: QuerySet[Any]) -> QuerySet[Any]:
        parts = self.parts.all()
        filtered = False
        for name, value in self.form.cleaned_data.items():
            chosen = self.filters[name]
            if not isinstance(chosen, PartFilter | PartNumberFilter):
                queryset = chosen.filter(queryset, value)
            elif value not in EMPTY_VALUES:
                parts, filtered = chosen.filter(parts, value), True
        return queryset.filter(Exists(parts)) if filtered else queryset


# Views ----------------------------------------------------------------------------------------------------------------


class RestView(APIView):
    """A view of a REST resource. lists: resources of the cluster that whoever asks has to be allowed to list."""

    rights = AUTHORIZES
    lists: tuple[str, ...] = ()
    authentication_classes = [Credentials, SignedIn]
    permission_classes = [MayRead]
    renderer_classes = [JSONRenderer, BrowsableAPIRenderer]
    http_method_names = ["get", "head", "options"]

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """The middleware limits the statements of sessions, which alone it knows; those of tokens are limited here."""
        with nullcontext() if request.user.is_authenticated else limited_queries():
            return super().dispatch(request, *args, **kwargs)

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Raises: ParseError for NUL, which no name has, and which PostgreSQL does not take as a parameter."""
        super().initial(request, *args, **kwargs)
        if any("\0" in text for text in (*kwargs.values(), *request.query_params.values())):
            raise ParseError("Null characters are not allowed.")

    def get_exception_handler(self) -> Any:
        return _answer_error


def _answer_error(error: Exception, context: dict[str, Any]) -> Response | None:
    if isinstance(error, ApiError):
        return Response({"detail": error.message}, status=error.code)
    return exception_handler(error, context)


class RowViewSet(RestView, ReadOnlyModelViewSet[Any]):
    """Rows of an index table that the person may read, filtered, in an order, in pages."""

    pagination_class = Pages
    filter_backends = [DjangoFilterBackend, StableOrdering]
    rows: QuerySet[Any]

    def get_queryset(self) -> QuerySet[Any]:
        return self.rows.all().restrict(self.person)  # type: ignore[attr-defined, no-any-return]

    @property
    def person(self) -> Person:
        return self.request.auth  # type: ignore[return-value]  # MayRead let nobody else in

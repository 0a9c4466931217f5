"""The REST verbs: one view for every path that names a resource.

A view reads the request (path, options, body), calls what does the work (`verbs`, `patches`, `subresources`), and
shapes the answer. Watches do not come here: `manciple.asgi` streams them.

A middleware sends the API's requests here at once: sessions, CSRF, messages and content policies are for pages, and an
API request carries a bearer token and gets a document. Leaving them out takes a third off the cost of a request. It
stands second in MIDDLEWARE, before whatever only pages need.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from threading import Lock
from typing import Any

import orjson
from django.core.exceptions import SuspiciousOperation
from django.http import HttpRequest, HttpResponse
from django.urls import Resolver404, resolve
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.views import APIView

from manciple.access.authorization import AUTHORIZES
from manciple.access.kinds import roles
from manciple.api import answers, patches, projections, requests, reviews, runtime_config, subresources, verbs
from manciple.api.answers import (
    BODY_LIMIT,
    Form,
    body_too_large,
    document_answer,
    json_answer,
    success,
    unknown_path,
    unsupported_method,
    wanted_form,
    warning_header,
)
from manciple.api.computed import ComputedKind
from manciple.api.door import identity_of
from manciple.api.flow_control import LARGE_ANSWER
from manciple.api.requests import ResourcePath
from manciple.api.subresources import Computed, Connected, Upgraded
from manciple.store import objects, records
from manciple.store.hooks import asking
from manciple.store.records import DeletionAnswer
from manciple.wire import codec
from manciple.wire.errors import BadRequest, MethodNotAllowed, NotAcceptable
from manciple.wire.machinery import DeleteOptions
from manciple.wire.registry import Kind, Projection, Served, registry

#: Where the API lives; everything else is pages.
URLCONF = "manciple.api.urls"
_RESOURCES = ("/api/v1/", "/apis/")

#: Bytes of documents that are listed as YAML, which takes a hundred times as long to write as JSON.
LARGEST_YAML = 4 * 1024 * 1024
#: One large list is put together at a time: it takes several times its size of memory.
_large_lists = Lock()

GetResponse = Callable[[HttpRequest], HttpResponse]


def answer_api_first(get_response: GetResponse) -> GetResponse:
    """A middleware (see Django's "function-based middleware")."""

    of_resources = ResourceView.as_view()

    def answer(request: HttpRequest) -> HttpResponse:
        try:
            if _names_a_resource(request.path_info):
                return of_resources(request)
            try:
                found = resolve(request.path_info, URLCONF)
            except Resolver404:
                return get_response(request)
            response: HttpResponse = found.func(request, *found.args, **found.kwargs)
        except (
            SuspiciousOperation
        ) as error:  # of the query (too many fields), which is read before a view handles errors
            return answers.handle_exception(error)
        return response

    return answer


def _names_a_resource(path: str) -> bool:
    """Whether the path is that of a kind of our own, as nearly all are: then no pattern need be tried."""
    if not path.startswith(_RESOURCES) or "//" in path:
        return False
    where = requests.parse_path(path)
    return where is not None and registry.is_own(where.group, where.version, where.plural)


#: Kinds whose DELETE answers a Status once the object is gone; the others answer the object (ReturnDeletedObject).
ANSWERED_BY_STATUS = frozenset(
    {
        "customresourcedefinitions.apiextensions.k8s.io",
        "namespaces",
        "nodes",
        "events",
        "events.events.k8s.io",
        "leases.coordination.k8s.io",
        *(kind.resource for kind in roles.KINDS),
        "validatingadmissionpolicies.admissionregistration.k8s.io",
        "validatingadmissionpolicybindings.admissionregistration.k8s.io",
        "mutatingadmissionpolicies.admissionregistration.k8s.io",
        "mutatingadmissionpolicybindings.admissionregistration.k8s.io",
        "mutatingwebhookconfigurations.admissionregistration.k8s.io",
        "validatingwebhookconfigurations.admissionregistration.k8s.io",
    }
)


#: (group, plural) of kinds that some commands create without looking whether they are served -> what to do instead.
_UNSERVED = {
    ("", "replicationcontrollers"): "ReplicationControllers are not served here; use a Deployment",
}


class _OurNegotiation(BaseContentNegotiation):
    """Keeps DRF from refusing media types it does not know: `negotiation.wanted_form` decides."""

    def select_parser(self, request: Request, parsers: Any) -> Any:  # noqa: ARG002 - DRF's signature
        return None

    def select_renderer(self, request: Request, renderers: Any, format_suffix: Any = None) -> Any:  # noqa: ARG002
        return renderers[0], "application/json"


class ApiView(APIView):
    """The ground of all views here: our negotiation, every answer a finished HttpResponse.

    rights: see `manciple.access.authorization`; the permission class asks the authorizer before anything else.
    """

    rights = AUTHORIZES

    content_negotiation_class = _OurNegotiation
    renderer_classes = [JSONRenderer]
    http_method_names = ["get", "post", "put", "patch", "delete"]

    @property
    def http(self) -> HttpRequest:
        """Django's request: DRF's passes each look at it through __getattr__."""
        return self.request._request

    def http_method_not_allowed(self, _request: Request, *_args: Any, **_kwargs: Any) -> HttpResponse:  # type: ignore[override]
        raise unsupported_method()


def body_of(request: HttpRequest | Request) -> bytes:
    """The request's body. Raises: TooLarge."""
    if int(request.META.get("CONTENT_LENGTH") or 0) > BODY_LIMIT:
        raise body_too_large()
    return request.body


class ResourceView(ApiView):
    """get, list, create, update, patch, delete and deletecollection of every registered kind."""

    def dispatch(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        """The answer, with what the rules warn of."""
        with records.collecting() as told, asking(_version_of(request.path), request.GET):
            answer = super().dispatch(request, *args, **kwargs)
        if warned := warning_header(told.warnings):
            answer.headers["Warning"] = ", ".join(filter(None, (answer.headers.get("Warning"), warned)))
        return answer

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Raises: Unauthorized before anything else, NotFound for a path that nothing is served at."""
        super().initial(request, *args, **kwargs)
        path = requests.parse_path(self.http.path)
        served = path.served() if path else None
        if path is None or served is None:
            raise unknown_path(_UNSERVED.get((path.group, path.plural), "") if path else "")
        if not _known_subresource(path, served):
            raise unknown_path(f"it does not serve {path.plural}/{path.subresource}")
        if served.kind.deprecation:
            records.warn(served.kind.deprecation)
        self.where: ResourcePath = path
        self.served: Served = served

    @property
    def kind(self) -> Kind:
        return self.served.kind

    def get(self, _request: Request, **_: Any) -> HttpResponse:
        form = _form(self.http, self.served)
        below = subresources.find(self.kind, self.where.subresource)
        if isinstance(below, Computed):
            return document_answer(below.answer(self.where.namespace, self.where.name), pretty=form.pretty)
        self._refuse_without_upgrade(below)
        if below is not None:
            raise unsupported_method()  # a stream is answered before it comes here
        if not self.where.name:
            return self._list(form)
        if self._projection:
            shown = projections.read(self.served, self.where, self._projection)
            return document_answer(shown, pretty=form.pretty)
        stored = verbs.get(
            self.kind,
            namespace=self.where.namespace,
            name=self.where.name,
            resource_version=self.http.GET.get("resourceVersion", ""),
        )
        return _shaped(self.served, stored.text, form, revision=stored.revision)

    def _list(self, form: Form) -> HttpResponse:
        wanted = requests.list_options(self.served, self.http.GET)
        page = verbs.list_page(self.kind, namespace=self.where.namespace, options=wanted)
        size = sum(len(item.text) for item in page.items)
        if form.media == "yaml" and size > LARGEST_YAML:
            raise NotAcceptable("the list is too large for YAML: ask for JSON, or for pages of it with limit=")
        with _large_lists if size > LARGE_ANSWER else nullcontext():
            return _finished(answers.list_text(self.served, page, form, now=time.time()), form)

    def post(self, request: Request, **_: Any) -> HttpResponse:
        below = subresources.find(self.kind, self.where.subresource)
        if isinstance(below, Connected):
            return self._connect(request, below)
        self._refuse_without_upgrade(below)
        if self.kind.is_open and self.kind.namespaced and not self.where.namespace:
            raise unknown_path()
        if self.where.name or (self.kind.namespaced and not self.where.namespace):
            raise unsupported_method()
        self._need_verb("create")
        form = _form(self.http, self.served)
        wanted = requests.write_options(self.http.GET, operation="Create")
        obj = self._decoded(request, wanted.strictness)
        made = verbs.create(
            self.kind,
            obj,
            namespace=self.where.namespace,
            identity=identity_of(request),
            manager=_manager(self.http, wanted),
            dry_run=wanted.dry_run,
        )
        return self._object(made, form, code=201)

    def _refuse_without_upgrade(self, below: subresources.Extension | None) -> None:
        """A session is answered before it comes here. Raises: ApiError."""
        if isinstance(below, Upgraded):
            query = {name: self.http.GET.getlist(name) for name in self.http.GET}
            below.check(self.where.namespace, self.where.name, below.read(query))
            raise BadRequest("Upgrade request required")

    def _connect(self, request: Request, below: Connected) -> HttpResponse:
        wanted = requests.write_options(self.http.GET, operation="Create")
        status = below.post(
            self.kind,
            self.where,
            body_of(self.http),
            content_type=request.content_type or "",
            identity=identity_of(request),
            options=wanted,
        )
        return document_answer(status, code=201)

    def put(self, request: Request, **_: Any) -> HttpResponse:
        self._need_object("update")
        form = _form(self.http, self.served)
        wanted = requests.write_options(self.http.GET, operation="Update")
        if self._projection:
            change = projections.body(self.served, self.where, body_of(self.http), request)
            return self._project(request, change, wanted, verb="update")
        obj = self._successor(request, wanted.strictness)
        written = verbs.update(
            self.kind,
            obj,
            namespace=self.where.namespace,
            name=self.where.name,
            identity=identity_of(request),
            subresource=self.where.subresource,
            manager=_manager(self.http, wanted),
            dry_run=wanted.dry_run,
            complete=self.served.completed,
        )
        return self._object(written.object, form, code=201 if written.created else 200)

    def patch(self, request: Request, **_: Any) -> HttpResponse:
        self._need_object("patch")
        form = _form(self.http, self.served)
        media = patches.media_type(request.content_type or "")
        applying = media == patches.APPLY_PATCH
        wanted = requests.write_options(self.http.GET, operation="Patch", applies=applying)
        identity, body = identity_of(request), body_of(self.http)
        if self._projection and not applying:
            return self._project(request, projections.patch(self.served, body, media=media), wanted, verb="patch")
        if applying:
            applied = patches.apply(self.served, self.where, body, identity=identity, options=wanted)
            if self._projection:
                return document_answer(self._projection.read(applied.object))
            code = 201 if applied.created else 200
            return self._object(applied.object, form, code=code)
        patch = patches.read(self.served, body, media=media, strictness=wanted.strictness)
        written = verbs.modify(
            self.kind,
            patch.change,
            namespace=self.where.namespace,
            name=self.where.name,
            identity=identity,
            subresource=self.where.subresource,
            manager=_manager(self.http, wanted),
            dry_run=wanted.dry_run,
        )
        return self._object(written.object, form)

    @property
    def _projection(self) -> Projection | None:
        return self.kind.projections.get(self.where.subresource)

    def _project(
        self, request: Request, change: projections.Change, wanted: requests.WriteOptions, *, verb: str
    ) -> HttpResponse:
        written = projections.write(
            self.served,
            self.where,
            change,
            identity=identity_of(request),
            manager=_manager(self.http, wanted),
            dry_run=wanted.dry_run,
            verb=verb,
        )
        return document_answer(written)

    def delete(self, request: Request, **_: Any) -> HttpResponse:
        across = self.kind.namespaced and not self.where.namespace
        if self.where.subresource or across:
            raise unsupported_method()
        self._need_verb("delete" if self.where.name else "deletecollection")
        form = _form(self.http, self.served)
        wanted = requests.delete_options(
            requests.decode_delete_options(body_of(self.http), request.content_type or ""), self.http.GET
        )
        if self.kind.orphaning and wanted.propagation_policy is None and wanted.orphan_dependents is None:
            records.warn(self.kind.orphaning)
        if not self.where.name:
            return self._delete_collection(request, wanted, form)
        deletion = verbs.delete(
            self.kind,
            namespace=self.where.namespace,
            name=self.where.name,
            identity=identity_of(request),
            options=wanted,
        )
        return self._deleted(deletion, wanted, form)

    def _deleted(self, deletion: DeletionAnswer, wanted: DeleteOptions, form: Form) -> HttpResponse:
        if deletion.gone and (self.kind.is_open or self.kind.resource in ANSWERED_BY_STATUS):
            return _finished(_deleted_status(self.kind, deletion.object), form)
        # Upstream: 202 tells a client that asked for orphanDependents=false that the deletion is still under way.
        code = 202 if not deletion.gone and wanted.orphan_dependents is False else 200
        return self._object(deletion.object, form, code=code)

    def _delete_collection(self, request: Request, wanted: DeleteOptions, form: Form) -> HttpResponse:
        selected = requests.list_options(self.served, self.http.GET)
        page = verbs.delete_all(
            self.kind,
            namespace=self.where.namespace,
            selected=selected,
            identity=identity_of(request),
            options=wanted,
        )
        return _finished(answers.list_text(self.served, page, form, now=time.time()), form)

    def _need_object(self, verb: str) -> None:
        below = self.where.subresource
        if not self.where.name or subresources.find(self.kind, below):
            raise unsupported_method()
        self._need_verb(verb)

    def _need_verb(self, verb: str) -> None:
        """Raises: MethodNotAllowed where no client may do that with the kind."""
        if verb not in self.kind.verbs:
            raise unsupported_method(self.kind.without_verbs)

    def _decoded(self, request: Request, strictness: codec.Strictness) -> Any:
        """The object in the body. The answer warns of unknown fields, also when the request fails."""
        decoded = requests.decode_object(
            self.served, body_of(self.http), content_type=request.content_type or "", strictness=strictness
        )
        for text in decoded.warnings:
            records.warn(text)
        return decoded.object

    def _successor(self, request: Request, strictness: codec.Strictness) -> Any:
        """The object in the body of a PUT, which may repeat unknown fields that the stored object has."""
        try:
            return self._decoded(request, strictness)
        except BadRequest:
            old = objects.get(self.kind, self.where.namespace, self.where.name) if strictness == "Strict" else None
            if old is None:
                raise
            lenient = requests.decode_object(
                self.served, body_of(self.http), content_type=request.content_type or "", strictness="Warn"
            )
            if patches.added_fields(self.served, lenient.warnings, objects.decode(self.kind, old.text)):
                raise
            return lenient.object

    def _object(self, obj: Any, form: Form, *, code: int = 200) -> HttpResponse:
        return _shaped(self.served, codec.encode(obj).decode(), form, code=code)


class ReviewView(ApiView):
    """Answers a review. `kind` and `namespace` come from the path."""

    def post(self, request: Request, kind: Kind, namespace: str = "") -> HttpResponse:
        if not runtime_config.serves(kind.group, kind.version, kind.plural):
            raise unknown_path()
        wanted = requests.write_options(self.http.GET, operation="Create")
        decoded = requests.decode_object(
            Served(kind, kind.version),
            body_of(self.http),
            content_type=request.content_type or "",
            strictness=wanted.strictness,
        )
        review = verbs.placed(kind, decoded.object, namespace=namespace)
        answered = reviews.answer(review, identity_of(request))
        return json_answer(codec.encode(answered), code=201, warnings=decoded.warnings)


class ComputedView(ApiView):
    """get and list of what is worked out. `computed`, `namespace` and `name` come from the path."""

    def get(self, _request: Request, computed: ComputedKind, namespace: str = "", name: str = "") -> HttpResponse:
        kind = computed.kind
        if not runtime_config.serves(kind.group, kind.version, kind.plural):
            raise unknown_path()
        if not name and "watch" in self.http.GET and requests.truth(self.http.GET, "watch"):
            details = {"group": kind.group, "kind": kind.plural}
            message = f'watch is not supported on resources of kind "{kind.plural}.{kind.group}"'
            raise MethodNotAllowed(message, details=details)
        served = Served(kind, kind.version)
        form = _form(self.http, served)
        if name:
            return _shaped(served, computed.get(namespace, name).text, form)
        wanted = requests.list_options(Served(computed.of, computed.of.version), self.http.GET)
        page = computed.list(namespace, wanted)
        return _finished(answers.list_text(served, page, form, now=time.time()), form)


class BindingsView(ApiView):
    """Binds the pod that the Binding names. `namespace` comes from the path."""

    def post(self, request: Request, namespace: str) -> HttpResponse:
        where = ResourcePath(group="", version="v1", plural="pods", namespace=namespace, subresource="binding")
        with asking(where.version, self.http.GET):
            status = subresources.bind(
                registry.by_resource(where.plural),
                where,
                body_of(self.http),
                content_type=request.content_type or "",
                identity=identity_of(request),
                options=requests.write_options(self.http.GET, operation="Create"),
            )
        return document_answer(status, code=201)


def _version_of(path: str) -> str:
    """The API version in a path, as the kind knows it; "" in one that names none."""
    found = requests.parse_path(path)
    return found.asked_version if found else ""


def _deleted_status(kind: Kind, obj: Any) -> str:
    meta = obj.metadata
    details = {"name": meta.name, "group": kind.group, "kind": kind.plural, "uid": meta.uid}
    return orjson.dumps(success(details={key: text for key, text in details.items() if text})).decode()


def _known_subresource(path: ResourcePath, served: Served) -> bool:
    name = path.subresource
    if not name or name in served.kind.subresources or name in served.kind.projections:
        return True
    return subresources.find(served.kind, name) is not None


def _manager(http: HttpRequest, wanted: requests.WriteOptions) -> str:
    return wanted.field_manager or requests.manager_of_agent(http.META.get("HTTP_USER_AGENT", ""))


def _form(http: HttpRequest, served: Served) -> Form:
    return wanted_form(http.META.get("HTTP_ACCEPT", ""), http.GET, custom=served.kind.is_open)


def _shaped(served: Served, text: str, form: Form, *, revision: int = 0, code: int = 200) -> HttpResponse:
    shown = answers.object_text(served, text, form, now=time.time(), revision=revision)
    return _finished(shown, form, code=code)


def _finished(text: str, form: Form, *, code: int = 200) -> HttpResponse:
    body, content_type = answers.in_media(text, form)
    return HttpResponse(body, status=code, content_type=content_type)

"""The OpenAPI documents: v3, one for each API version; v2, one for all, as JSON and as gnostic protobuf.

Schemas come from the declared types (`manciple.wire.schema`), paths from discovery, in a form
of its own (`Operation`) that is then written in each version's manner. kubectl reads there whether a PATCH accepts
`fieldValidation` and `dryRun`, by x-kubernetes-group-version-kind. Documents are made when first asked for and kept:
those of the server's own kinds for good, the others until a definition changes. Clients keep them as well, by the hash
that the index names.
Source: kube-openapi/pkg/handler3, pkg/builder.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import orjson

from manciple.api import discovery, gnostic
from manciple.api.discovery import DiscoveredResource
from manciple.api.patches import FORMATS, STRATEGIC_MERGE_PATCH
from manciple.api.subresources import Streamed, Upgraded
from manciple.wire import schema
from manciple.wire.registry import registry
from manciple.wire.schema import META, ServedKind

# Paths ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Parameter:
    """`place`: "path" or "query"; `type`: an OpenAPI type."""

    name: str
    place: str
    type: str
    description: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One method of one path. `body` and `answer` name kinds ("Pod", "PodList", "Status"); "" means none, or any.

    action: what is done with objects of `kind`; "" where it is about none.
    produces: the media types of answers that are no documents; such an answer is a string.
    """

    method: str
    action: str
    id: str
    description: str
    kind: str
    group: str
    version: str
    parameters: tuple[Parameter, ...] = ()
    body: str = ""
    answer: str = ""
    consumes: tuple[str, ...] = ()
    produces: tuple[str, ...] = ()

    @property
    def group_version_kind(self) -> dict[str, str]:
        return {"group": self.group, "version": self.version, "kind": self.kind}


@dataclass(frozen=True, slots=True)
class OpenApiPath:
    """One path with its operations. `parameters` stand in the path itself."""

    path: str
    parameters: tuple[Parameter, ...]
    operations: tuple[Operation, ...]


_ANYTHING = ("*/*",)
_NAMESPACE = Parameter("namespace", "path", "string", "object name and auth scope, such as for teams and projects")
_PRETTY = Parameter("pretty", "query", "string", "If 'true', then the output is pretty printed.")
_DRY_RUN = Parameter("dryRun", "query", "string", "'All' runs every stage of the request and stores nothing.")
_MANAGER = Parameter("fieldManager", "query", "string", "Who or what makes these changes.")
_VALIDATION = Parameter(
    "fieldValidation", "query", "string", "How to treat unknown or duplicate fields: Ignore, Warn or Strict."
)
_FORCE = Parameter("force", "query", "boolean", "Take over fields that other managers own (apply patches only).")
_WRITES = (_DRY_RUN, _MANAGER, _VALIDATION, _PRETTY)
_DELETES = (
    _DRY_RUN,
    Parameter("gracePeriodSeconds", "query", "integer", "Seconds before the object is deleted."),
    Parameter("propagationPolicy", "query", "string", "Orphan, Background or Foreground."),
    Parameter("orphanDependents", "query", "boolean", "Deprecated: use propagationPolicy."),
    _PRETTY,
)
_LISTS = (
    Parameter("allowWatchBookmarks", "query", "boolean", "Send BOOKMARK events."),
    Parameter("continue", "query", "string", "The continue token of the previous page."),
    Parameter("fieldSelector", "query", "string", "Restrict the result by fields."),
    Parameter("labelSelector", "query", "string", "Restrict the result by labels."),
    Parameter("limit", "query", "integer", "The maximum number of objects in one response."),
    Parameter("resourceVersion", "query", "string", "The response may not be older than this revision."),
    Parameter("resourceVersionMatch", "query", "string", "Exact or NotOlderThan."),
    Parameter("sendInitialEvents", "query", "boolean", "Start the watch with the current state, ended by a bookmark."),
    Parameter("timeoutSeconds", "query", "integer", "How long a watch lasts."),
    Parameter("watch", "query", "boolean", "Stream changes instead of listing."),
    _PRETTY,
)


def paths_of(group: str, version: str) -> Iterator[OpenApiPath]:
    """The paths of one API version."""
    base = f"/apis/{group}/{version}" if group else f"/api/{version}"
    found = Operation(
        method="get",
        action="",
        id=f"get{_prefix(group, version)}APIResources",
        description="get available resources",
        kind="",
        group=group,
        version=version,
        answer="APIResourceList",
    )
    yield OpenApiPath(f"{base}/", (), (found,))
    for line in discovery.resources(group, version):
        yield from _paths(line, base=base, group=group, version=version)


def _paths(line: DiscoveredResource, *, base: str, group: str, version: str) -> Iterator[OpenApiPath]:
    plural, _, subresource = line.name.partition("/")
    within = f"{base}/namespaces/{{namespace}}/{plural}" if line.namespaced else f"{base}/{plural}"
    scope = (_NAMESPACE,) if line.namespaced else ()
    writer = _Operations(line, group=group, version=version, subresource=subresource)
    if not subresource:
        collection = writer.operations(("list", "create", "deletecollection"))
        yield OpenApiPath(within, scope, collection)
        if line.namespaced and "list" in line.verbs:
            yield OpenApiPath(f"{base}/{plural}", (), writer.operations(("list",), everywhere=True))
    item = writer.operations(("create",) if subresource else (), ("get", "update", "patch", "delete"))
    if item:
        name = Parameter("name", "path", "string", f"name of the {line.kind}")
        below = f"{within}/{{name}}/{subresource}" if subresource else f"{within}/{{name}}"
        yield OpenApiPath(below, (name, *scope), item)


class _Operations:
    """Writes the operations of one resource."""

    def __init__(self, line: DiscoveredResource, *, group: str, version: str, subresource: str) -> None:
        self._line = line
        self._group, self._version = line.group or group, line.version or version
        self._prefix = _prefix(group, version)
        self._suffix = subresource.capitalize()
        self._formats = tuple(one for one in FORMATS if line.strategic or one != STRATEGIC_MERGE_PATCH)

    def operations(self, *verbs: tuple[str, ...], everywhere: bool = False) -> tuple[Operation, ...]:
        wanted = [verb for some in verbs for verb in some if verb in self._line.verbs]
        return tuple(self._operation(verb, everywhere=everywhere) for verb in wanted)

    def _operation(self, verb: str, *, everywhere: bool) -> Operation:
        kind, streamed = self._line.kind, self._line.streamed
        method, action, parameters, body, answer = {
            "list": ("get", "list", _LISTS, "", self._line.list_kind or f"{kind}List"),
            "create": ("post", "post", _WRITES, kind, kind),
            "deletecollection": ("delete", "deletecollection", (*_DELETES, *_LISTS[1:7]), "DeleteOptions", "Status"),
            "get": ("get", "get", (_PRETTY,), "", kind),
            "update": ("put", "put", _WRITES, kind, kind),
            "patch": ("patch", "patch", (*_WRITES, _FORCE), "Patch", kind),
            "delete": ("delete", "delete", _DELETES, "DeleteOptions", "Status"),
        }[verb]
        return Operation(
            method=method,
            action=action,
            id=self._id(verb, everywhere=everywhere),
            description=f"{_DESCRIPTIONS[verb]} {kind}"
            if streamed is None
            else f"read {streamed.name} of the specified {kind}",
            kind=kind,
            group=self._group,
            version=self._version,
            parameters=_parameters_of(streamed) if streamed else parameters,
            body=body,
            answer=answer,
            consumes=self._formats if verb == "patch" else _ANYTHING,
            produces=(streamed.media,) if streamed else (),
        )

    def _id(self, verb: str, *, everywhere: bool) -> str:
        scope = "Namespaced" if self._line.namespaced and not everywhere else ""
        prefix = {"update": "replace", "get": "read", "deletecollection": "deleteCollection"}.get(verb, verb)
        everyone = "ForAllNamespaces" if everywhere else ""
        return f"{prefix}{self._prefix}{scope}{self._line.owner or self._line.kind}{self._suffix}{everyone}"


def _prefix(group: str, version: str) -> str:
    """What names of operations say of their API version: "AppsV1"."""
    return "".join(part.capitalize() for part in (group.partition(".")[0] or "core", version))


def _parameters_of(streamed: Streamed | Upgraded) -> tuple[Parameter, ...]:
    return tuple(Parameter(name, "query", type_, description) for name, type_, description in streamed.parameters)


_DESCRIPTIONS = {
    "list": "list or watch objects of kind",
    "create": "create a",
    "deletecollection": "delete collection of",
    "get": "read the specified",
    "update": "replace the specified",
    "patch": "partially update the specified",
    "delete": "delete a",
}


# Documents ------------------------------------------------------------------------------------------------------------


_TITLE = "Manciple"
_ANSWERS = ("application/json", "application/yaml")
_DESCRIBED_BY = {"Status": f"{META}.Status", "DeleteOptions": f"{META}.DeleteOptions", "Patch": f"{META}.Patch"}


@dataclass(frozen=True, slots=True)
class OpenApiDocument:
    """A finished document and the hash of its content."""

    content: bytes
    hash: str


def index() -> dict[str, Any]:
    """GET /openapi/v3."""
    paths = {}
    for group, versions in discovery.group_versions().items():
        for version in versions:
            at = f"apis/{group}/{version}" if group else f"api/{version}"
            made = document(group, version)
            if made is not None:
                paths[at] = {"serverRelativeURL": f"/openapi/v3/{at}?hash={made.hash}"}
    return {"paths": paths}


def document(group: str, version: str) -> OpenApiDocument | None:
    """The v3 document of one API version; None where nothing is served there."""
    added = registry.added()
    grows = any(place[:2] == (group, version) for place in added.served)
    return _document(group, version, added.edition if grows else 0)


@lru_cache(maxsize=256)
def _document(group: str, version: str, _edition: int) -> OpenApiDocument | None:
    if not discovery.resources(group, version):
        return None
    schemas = schema.components(_kinds(group, version, "v3"))
    writer = _Version3(schemas)
    content = orjson.dumps(
        {
            "openapi": "3.0.0",
            "info": _info(),
            "paths": {path.path: writer.path(path) for path in paths_of(group, version)},
            "components": {
                "schemas": schemas,
                "securitySchemes": {"BearerToken": {"type": "http", "scheme": "bearer"}},
            },
        }
    )
    return OpenApiDocument(content, hashlib.sha256(content).hexdigest().upper())


def version_2_json() -> bytes:
    """The v2 document of everything."""
    return _version_2_json(registry.added().edition)


@lru_cache(maxsize=2)
def _version_2_json(_edition: int) -> bytes:
    return orjson.dumps(_version_2())


def version_2_protobuf() -> bytes:
    """The same for gnostic."""
    return _version_2_protobuf(registry.added().edition)


@lru_cache(maxsize=2)
def _version_2_protobuf(_edition: int) -> bytes:
    return gnostic.encode(_version_2())


def renew() -> None:
    """Make all documents anew: which kinds of our own are served has changed."""
    for made in (_document, _version_2_json, _version_2_protobuf):
        made.cache_clear()


def _version_2() -> dict[str, Any]:
    versions = [(group, version) for group, known in discovery.group_versions().items() for version in known]
    schemas = schema.definitions(kind for group, version in versions for kind in _kinds(group, version, "v2"))
    writer = _Version2(schemas)
    paths = [path for group, version in versions for path in paths_of(group, version)]
    return {
        "swagger": "2.0",
        "info": _info(),
        "paths": {path.path: writer.path(path) for path in paths},
        "definitions": schemas,
    }


def _info() -> dict[str, str]:
    return {"title": _TITLE, "version": discovery.version()["gitVersion"]}


def _kinds(group: str, version: str, dialect: schema.Dialect) -> Iterator[ServedKind]:
    for one in registry.in_version(group, version):
        kind = one.kind
        described = kind.schema[0 if dialect == "v3" else 1] if kind.schema else None
        yield ServedKind(group, version, kind.kind, one.shape, described, kind.list_kind)
    for line in discovery.resources(group, version):
        if line.type is not None:
            of_group, of_version = line.group or group, line.version or version
            yield ServedKind(of_group, of_version, line.kind, line.type, is_stored=False)


class _Writer:
    """What both versions have in common: which schema describes a body or an answer, if one does."""

    prefix = ""

    def __init__(self, schemas: Mapping[str, Any]) -> None:
        self._schemas = schemas

    def reference(self, operation: Operation, name: str) -> dict[str, str]:
        group, version = operation.group, operation.version
        names = (schema.kind_name(group, version, name, is_open=is_open) for is_open in (False, True))
        described = _DESCRIBED_BY.get(name) or next((one for one in names if one in self._schemas), "")
        return {"$ref": f"{self.prefix}{described}"} if described in self._schemas else {"type": "object"}

    def answer(self, operation: Operation) -> dict[str, str]:
        return {"type": "string"} if operation.produces else self.reference(operation, operation.answer)

    def common(self, operation: Operation) -> dict[str, Any]:
        document = {
            "tags": [f"{operation.group.partition('.')[0] or 'core'}_{operation.version}"],
            "description": operation.description,
            "operationId": operation.id,
        }
        if not operation.action:
            return document
        return document | {
            "x-kubernetes-action": operation.action,
            "x-kubernetes-group-version-kind": operation.group_version_kind,
        }


class _Version3(_Writer):
    prefix = "#/components/schemas/"

    def path(self, path: OpenApiPath) -> dict[str, Any]:
        item: dict[str, Any] = {one.method: self._operation(one) for one in path.operations}
        return item | {"parameters": [self._parameter(one) for one in path.parameters]}

    def _operation(self, operation: Operation) -> dict[str, Any]:
        answer = {"schema": self.answer(operation)}
        document = self.common(operation) | {
            "parameters": [self._parameter(one) for one in operation.parameters],
            "responses": {
                "200": {"description": "OK", "content": dict.fromkeys(operation.produces or _ANSWERS, answer)}
            },
        }
        if operation.body:
            body = {"schema": self.reference(operation, operation.body)}
            document["requestBody"] = {"content": dict.fromkeys(operation.consumes or ("*/*",), body)}
        return document

    @staticmethod
    def _parameter(parameter: Parameter) -> dict[str, Any]:
        document: dict[str, Any] = {
            "name": parameter.name,
            "in": parameter.place,
            "description": parameter.description,
            "schema": {"type": parameter.type, "uniqueItems": True},
        }
        return document | ({"required": True} if parameter.place == "path" else {})


class _Version2(_Writer):
    prefix = "#/definitions/"

    def path(self, path: OpenApiPath) -> dict[str, Any]:
        item: dict[str, Any] = {one.method: self._operation(one) for one in path.operations}
        return item | {"parameters": [self._parameter(one) for one in path.parameters]}

    def _operation(self, operation: Operation) -> dict[str, Any]:
        parameters = [self._parameter(one) for one in operation.parameters]
        if operation.body:
            schema_of_body = self.reference(operation, operation.body)
            parameters.append({"name": "body", "in": "body", "schema": schema_of_body})
        return self.common(operation) | {
            "consumes": list(operation.consumes or ("*/*",)),
            "produces": list(operation.produces or _ANSWERS),
            "parameters": parameters,
            "responses": {"200": {"description": "OK", "schema": self.answer(operation)}},
        }

    @staticmethod
    def _parameter(parameter: Parameter) -> dict[str, Any]:
        document: dict[str, Any] = {
            "name": parameter.name,
            "in": parameter.place,
            "description": parameter.description,
            "type": parameter.type,
        }
        return document | ({"required": True} if parameter.place == "path" else {})

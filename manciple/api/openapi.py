"""The OpenAPI documents: v3, one for each API version; v2, one for all, as JSON and as gnostic protobuf.

Schemas come from the declared types (`manciple.wire.schema`), paths from discovery (`openapi_paths`). Documents are
made when first asked for and kept: kinds are registered at start only. Clients keep them as well, by the hash that the
index names. Source: kube-openapi/pkg/handler3, pkg/builder.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import orjson

from manciple.api import discovery, gnostic, openapi_paths, served
from manciple.api import version as release
from manciple.api.openapi_paths import Operation, Parameter, Path
from manciple.wire import schema
from manciple.wire.schema import META, ServedKind

_TITLE = "Manciple"
_ANSWERS = ("application/json", "application/yaml")
_DESCRIBED_BY = {"Status": f"{META}.Status", "DeleteOptions": f"{META}.DeleteOptions", "Patch": f"{META}.Patch"}


@dataclass(frozen=True, slots=True)
class Document:
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


@cache
def document(group: str, version: str) -> Document | None:
    """The v3 document of one API version; None where nothing is served there."""
    if not discovery.resources(group, version):
        return None
    schemas = schema.components(_kinds(group, version))
    writer = _Version3(schemas)
    content = orjson.dumps(
        {
            "openapi": "3.0.0",
            "info": _info(),
            "paths": {path.path: writer.path(path) for path in openapi_paths.paths_of(group, version)},
            "components": {
                "schemas": schemas,
                "securitySchemes": {"BearerToken": {"type": "http", "scheme": "bearer"}},
            },
        }
    )
    return Document(content, hashlib.sha256(content).hexdigest().upper())


@cache
def version_2_json() -> bytes:
    """The v2 document of everything."""
    return orjson.dumps(_version_2())


@cache
def version_2_protobuf() -> bytes:
    """The same for gnostic."""
    return gnostic.encode(_version_2())


def _version_2() -> dict[str, Any]:
    versions = [(group, version) for group, known in discovery.group_versions().items() for version in known]
    schemas = schema.definitions(kind for group, version in versions for kind in _kinds(group, version))
    writer = _Version2(schemas)
    paths = [path for group, version in versions for path in openapi_paths.paths_of(group, version)]
    return {
        "swagger": "2.0",
        "info": _info(),
        "paths": {path.path: writer.path(path) for path in paths},
        "definitions": schemas,
    }


def _info() -> dict[str, str]:
    return {"title": _TITLE, "version": release.document()["gitVersion"]}


def _kinds(group: str, version: str) -> Iterator[ServedKind]:
    for one in served.in_version(group, version):
        yield ServedKind(group, version, one.kind.kind, one.kind.type)


class _Writer:
    """What both versions have in common: which schema describes a body or an answer, if one does."""

    prefix = ""

    def __init__(self, schemas: Mapping[str, Any]) -> None:
        self._schemas = schemas

    def reference(self, operation: Operation, name: str) -> dict[str, str]:
        group = operation.group.partition(".")[0] or "core"
        described = _DESCRIBED_BY.get(name, f"io.k8s.api.{group}.{operation.version}.{name}")
        return {"$ref": f"{self.prefix}{described}"} if described in self._schemas else {"type": "object"}

    def answer(self, operation: Operation) -> dict[str, str]:
        return {"type": "string"} if operation.produces else self.reference(operation, operation.answer)

    def common(self, operation: Operation) -> dict[str, Any]:
        return {
            "tags": [f"{operation.group.partition('.')[0] or 'core'}_{operation.version}"],
            "description": operation.description,
            "operationId": operation.id,
            "x-kubernetes-action": operation.action,
            "x-kubernetes-group-version-kind": operation.group_version_kind,
        }


class _Version3(_Writer):
    prefix = "#/components/schemas/"

    def path(self, path: Path) -> dict[str, Any]:
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

    def path(self, path: Path) -> dict[str, Any]:
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

"""Requests that schemathesis makes of our own OpenAPI documents, right ones and wrong ones.

A schema says nothing of what is there: no generated text is ever the name of an object, and no document says its kind.
So a request may be *aimed* as well: at a name of the scene, its body with the right head, or with a part of a valid
document in place of what was generated.
"""

from __future__ import annotations

from functools import cache
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import orjson
import requests
import schemathesis
from hypothesis import strategies as st
from schemathesis import Case, GenerationMode
from schemathesis.core import NotSet
from schemathesis.core.result import Ok
from schemathesis.schemas import APIOperation

from manciple.api import discovery, openapi
from tests.security.fuzz.front import Request
from tests.security.fuzz.judging import REVISION
from tests.security.fuzz.oddities import QUERY
from tests.security.fuzz.scene import NAMES, NAMESPACE, NAMESPACES, places

Operation: TypeAlias = APIOperation[Any, Any, Any, Any]
AnyCase: TypeAlias = Case[Any]

#: Headers that belong to the connection, or that the front door adds itself.
_DROPPED = frozenset({"host", "content-length", "authorization", "connection", "transfer-encoding", "cookie"})
_MODES = (GenerationMode.POSITIVE, GenerationMode.POSITIVE, GenerationMode.NEGATIVE)


@cache
def operations() -> tuple[Operation, ...]:
    """Of every API version that is served."""
    found: list[Operation] = []
    for group, versions in discovery.group_versions().items():
        for version in versions:
            document = openapi.document(group, version)
            assert document is not None
            schema = schemathesis.openapi.from_dict(orjson.loads(document.content))
            for result in schema.get_all_operations():
                assert isinstance(result, Ok), result
                found.append(result.ok())
    return tuple(found)


@st.composite
def generated(draw: st.DrawFn, namespace: str = "") -> Request:
    """A request of any operation. namespace: what most of them are about; "" for everything."""
    operation = draw(st.sampled_from(_inside() if namespace and draw(st.integers(0, 9)) else operations()))
    case = draw(_cases(operation, draw(st.sampled_from(_MODES))))
    if draw(st.integers(0, 9)) < 8:
        _address(draw, case)
    if draw(st.integers(0, 9)) < 8:
        _ask_sensibly(draw, case)
    if isinstance(case.body, dict) and draw(st.integers(0, 9)) < 8:
        if operation.method == "delete":
            case.body = {key: value for key, value in case.body.items() if key not in ("apiVersion", "kind")}
        else:
            case.body = _aimed(draw, operation, case.body)
        if operation.method != "patch":
            case.media_type = draw(st.sampled_from(("application/json", "application/json", "application/yaml")))
    return _sent(case)


@cache
def _inside() -> tuple[Operation, ...]:
    return tuple(one for one in operations() if "{namespace}/" in one.path)


def _cases(operation: Operation, mode: GenerationMode) -> st.SearchStrategy[AnyCase]:
    return _known(operation.label, operation.schema.raw_schema["paths"].__len__(), mode)


@cache
def _known(label: str, _schema: int, mode: GenerationMode) -> st.SearchStrategy[AnyCase]:
    """Kept, as making one takes longer than drawing from it."""
    operation = next(one for one in operations() if one.label == label)
    strategy: st.SearchStrategy[AnyCase] = operation.as_strategy(mode)
    return strategy


def _address(draw: st.DrawFn, case: AnyCase) -> None:
    """To an object that may be there."""
    if "name" in case.path_parameters:
        case.path_parameters["name"] = draw(st.sampled_from((NAMES[0], *NAMES)))
    if "namespace" in case.path_parameters:
        case.path_parameters["namespace"] = draw(st.sampled_from((NAMESPACE,) * 5 + NAMESPACES))


def _ask_sensibly(draw: st.DrawFn, case: AnyCase) -> None:
    """What parameters may be, in place of any text."""
    for name in sorted(case.query):
        if name in QUERY:
            case.query[name] = draw(st.sampled_from(QUERY[name][:2]))


def _aimed(draw: st.DrawFn, operation: Operation, body: dict[str, Any]) -> dict[str, Any]:
    """With the head of what belongs there; or a valid document of which something generated takes the place."""
    meant = operation.definition.raw["x-kubernetes-group-version-kind"]
    version = f"{meant['group']}/{meant['version']}" if meant["group"] else meant["version"]
    bases = [
        one.copy for one in places() if (one.document["apiVersion"], one.document["kind"]) == (version, meant["kind"])
    ]
    name = draw(st.sampled_from(NAMES))
    if not bases or draw(st.booleans()):
        body = {**body, "apiVersion": version, "kind": meant["kind"], "metadata": {"name": name}}
    else:
        body = _grafted(draw, draw(st.sampled_from(bases)), body)
        body["metadata"]["name"] = name
    if operation.method == "put":
        body["metadata"]["resourceVersion"] = REVISION.decode()
    return body


def _grafted(draw: st.DrawFn, base: dict[str, Any], scion: dict[str, Any]) -> dict[str, Any]:
    """The base with one part, at any depth that both have, taken from the scion."""
    parts = [key for key in scion if key not in ("apiVersion", "kind", "metadata")]
    if not parts:
        return base
    key = draw(st.sampled_from(sorted(parts)))
    below, given = base.get(key), scion[key]
    deeper = isinstance(below, dict) and isinstance(given, dict) and draw(st.booleans())
    return {**base, key: {**below, **_some(draw, given)} if deeper and isinstance(below, dict) else given}


def _some(draw: st.DrawFn, given: dict[str, Any]) -> dict[str, Any]:
    if not given:
        return {}
    key = draw(st.sampled_from(sorted(given)))
    return {key: given[key]}


def _sent(case: AnyCase) -> Request:
    """As schemathesis would send it by `requests`."""
    keywords = case.as_transport_kwargs(base_url="https://127.0.0.1")
    sendable = {"method", "url", "headers", "files", "data", "params", "cookies", "json"}
    prepared = requests.Request(**{name: value for name, value in keywords.items() if name in sendable}).prepare()
    target = urlsplit(prepared.url or "")
    headers = [(_text(name), _text(value)) for name, value in prepared.headers.items()]
    return Request(
        method=prepared.method or "GET",
        path=target.path,
        query=target.query,
        headers=tuple((name, value) for name, value in headers if name.lower() not in _DROPPED),
        body=_bytes(prepared.body),
    )


def _text(value: str | bytes) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else value.encode("latin-1", "replace").decode("latin-1")


def _bytes(body: Any) -> bytes:
    if body is None or isinstance(body, NotSet):
        return b""
    if isinstance(body, str):
        return body.encode()
    return body if isinstance(body, bytes) else b"".join(body)

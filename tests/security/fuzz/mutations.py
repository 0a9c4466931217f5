"""Requests that are wrong on purpose: bytes, documents, patches, queries and heads that no decent client sends.

Each begins with a valid document of the scene and spoils one thing or a few, so that it comes as far in as it can.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any
from urllib.parse import quote, urlencode

import yaml
from hypothesis import strategies as st

from manciple.api import patches
from manciple.wire import codec, protobuf
from manciple.wire.wireformat import Envelope, write_envelope
from tests.security.fuzz import oddities
from tests.security.fuzz.front import Headers, Request
from tests.security.fuzz.judging import REVISION
from tests.security.fuzz.scene import NAMES, NAMESPACE, NAMESPACES, Place, places

Pointer = tuple[str | int, ...]

_RAW = re.compile(r'"@((?:[^"\\]|\\.)*)@"')


def _texts_of(value: Any) -> str:
    """JSON, with what stands between two @ as it is."""
    return _RAW.sub(lambda found: json.loads(f'"{found[1]}"'), json.dumps(value))


def pointers(value: Any, at: Pointer = ()) -> Iterator[Pointer]:
    """Where something stands in a document."""
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        yield (*at, key)
        yield from pointers(child, (*at, key))


_values = st.sampled_from(oddities.VALUES).map(copy.deepcopy)
_names = st.sampled_from((NAMES[0], NAMES[0], *NAMES))
_OF_TYPE = {
    type_: st.sampled_from([one for one in oddities.VALUES if type(one) is type_]).map(copy.deepcopy)
    for type_ in (str, int, bool, list, dict)
}


@st.composite
def spoiled(draw: st.DrawFn, place: Place, name: str = "") -> dict[str, Any]:
    """A document of the scene in which up to three things are wrong."""
    document = place.copy
    document["metadata"]["name"] = name or draw(_names)
    for _ in range(draw(st.integers(0, 3))):
        places_in = [one for one in pointers(document) if one not in _HEAD]
        if not places_in:
            break
        at = draw(st.sampled_from(places_in))
        here = at_pointer(document, at)
        value = draw(_OF_TYPE.get(type(here), _values) if draw(st.integers(0, 3)) else _values)
        _spoil(document, at, draw(st.sampled_from("rrrrdau")), value)
    return document


#: Where a document says whose it is: with that wrong, nothing else of it is looked at.
_HEAD: tuple[Pointer, ...] = (
    ("apiVersion",),
    ("kind",),
    ("metadata",),
    ("metadata", "name"),
    ("metadata", "namespace"),
)


def at_pointer(document: Any, at: Pointer) -> Any:
    for key in at:
        document = document[key]
    return document


def _spoil(document: Any, at: Pointer, how: str, value: Any) -> None:
    """how: "r" puts the value there, "d" deletes what is there, "a" adds the value to it, "u" adds an unknown field."""
    *above, last = at
    parent = at_pointer(document, tuple(above))
    here = parent[last]
    if how == "d":
        del parent[last]
    elif how == "a" and isinstance(here, list):
        here.extend((value, copy.deepcopy(here[0]) if here else value))
    elif how in "au" and isinstance(here, dict):
        here["unknown" if how == "u" else str(value)[:300]] = value
    else:
        parent[last] = value


# Bodies ---------------------------------------------------------------------------------------------------------------


@st.composite
def damaged(draw: st.DrawFn, body: bytes) -> bytes:
    """Cut off, put in, turned over, doubled."""
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(body)))
        how = draw(st.integers(0, 4))
        piece = draw(st.sampled_from(oddities.BYTES))
        if how == 0:
            body = body[:at]
        elif how == 1:
            body = body[:at] + piece + body[at:]
        elif how == 2:
            body = body[:at] + bytes(byte ^ draw(st.integers(1, 255)) for byte in body[at : at + 1]) + body[at + 1 :]
        elif how == 3:
            body = body[:at] + piece + body[at + len(piece) :]
        else:
            body = body[:at] + body[at // 2 :]
    return body


def _as_json(document: Any, _place: Place) -> bytes:
    return _texts_of(document).encode("utf-8", "surrogatepass")


def _as_yaml(document: Any, _place: Place) -> bytes:
    return yaml.dump(document, sort_keys=False).encode()


def _as_protobuf(document: Any, place: Place) -> bytes:
    """A document that is none of ours any more goes as JSON in the envelope, which upstream reads as well."""
    head = Envelope(api_version=place.served.api_version, kind=place.served.kind.kind)
    try:
        message = protobuf.encode(codec.decode_value(place.served.shape, document))
    except Exception:  # what cannot be said in protobuf
        return write_envelope(
            Envelope(
                api_version=head.api_version,
                kind=head.kind,
                raw=_as_json(document, place),
                content_type="application/json",
            )
        )
    return write_envelope(Envelope(api_version=head.api_version, kind=head.kind, raw=message))


_WRITERS: dict[str, Callable[[Any, Place], bytes]] = {
    "application/json": _as_json,
    "application/yaml": _as_yaml,
    "application/vnd.kubernetes.protobuf": _as_protobuf,
}


# Where, how, and with which head --------------------------------------------------------------------------------------


@st.composite
def queries(draw: st.DrawFn, *, most: int = 4) -> str:
    pairs = []
    for _ in range(draw(st.integers(0, most))):
        name = draw(st.sampled_from(sorted(oddities.QUERY)))
        pairs.append((name, draw(st.sampled_from(oddities.QUERY[name]))))
    text = urlencode(pairs)
    if draw(st.integers(0, 15)) == 0:
        text += draw(
            st.sampled_from(("&%zz", "&%ff=%fe", "&=", "&&&", "&a", ";limit=1", "&limit", "&\xe9=\xe9", "&%00=1"))
        )
    return text


@st.composite
def heads(draw: st.DrawFn, *, content_type: str) -> Headers:
    accepted = draw(st.sampled_from(oddities.ACCEPTED)) if draw(st.integers(0, 3)) == 0 else "application/json"
    found = [("Accept", accepted), ("User-Agent", "fuzz/1")]
    if draw(st.integers(0, 19)) == 0:
        content_type = draw(st.sampled_from(oddities.CONTENT_TYPES))
    if content_type:
        found.append(("Content-Type", content_type))
    if draw(st.integers(0, 9)) == 0:
        found.append(draw(st.sampled_from(oddities.HEADS)))
    return tuple(found)


@st.composite
def addresses(draw: st.DrawFn, place: Place, name: str = "") -> str:
    """The path of an object that is there, that is not, or that cannot be."""
    path = place.collection
    if place.served.kind.namespaced:
        namespace = draw(st.sampled_from((NAMESPACE,) * 5 + NAMESPACES))
        path = path.replace(f"/namespaces/{NAMESPACE}/", f"/namespaces/{namespace}/")
    below = ""
    if draw(st.integers(0, 3 if place.served.kind.subresources else 15)) == 0:
        below = draw(st.sampled_from(list(place.served.kind.subresources) * 5 + list(oddities.BELOW)))
    path += f"/{name or draw(_names)}" + (f"/{below}" if below else "")
    return _bent(path, draw(st.sampled_from(oddities.BENDS))) if draw(st.integers(0, 31)) == 0 else path


def _bent(path: str, bend: str) -> str:
    """With a bend in the middle of a segment."""
    at = len(path) * 2 // 3
    return quote(path[:at] + bend.replace("?", "%3F") + path[at:], safe="/%")


@st.composite
def writes(draw: st.DrawFn, namespace: str) -> Request:
    """A POST or PUT of a spoiled document, perhaps with damage to its bytes."""
    place, name = draw(st.sampled_from(_aims(namespace))), draw(_names)
    document = draw(spoiled(place, name))
    creates = draw(st.booleans())
    if creates and draw(st.integers(0, 3)):
        document["metadata"]["name"] = f"n{draw(st.integers(0, 999))}"
    media = draw(st.sampled_from(sorted(_WRITERS)))
    if not creates and isinstance(document.get("metadata"), dict) and "protobuf" not in media:
        document["metadata"].setdefault("resourceVersion", REVISION.decode())
    body = _WRITERS[media](document, place)
    if draw(st.integers(0, 4)) == 0:
        body = draw(damaged(body))
    path = place.collection if creates and draw(st.integers(0, 9)) else draw(addresses(place, name))
    query = draw(queries(most=2)) if draw(st.integers(0, 2)) == 0 else ""
    return Request(
        method="POST" if creates else "PUT",
        path=path,
        query=query,
        headers=draw(heads(content_type=media)),
        body=body,
    )


@st.composite
def reads(draw: st.DrawFn, namespace: str) -> Request:
    """A GET, a list, a watch, a deletion, or a method that nobody has heard of."""
    place = draw(st.sampled_from(_aims(namespace)))
    path = draw(addresses(place)) if draw(st.booleans()) else place.collection
    if draw(st.integers(0, 9)) == 0:
        path = draw(st.sampled_from(oddities.OTHER_PATHS))
    method = draw(st.sampled_from(("GET",) * 9 + ("DELETE", "HEAD", "OPTIONS", "TRACE", "FOO", "get")))
    options = draw(st.sampled_from(oddities.DELETE_OPTIONS)) if method == "DELETE" else b""
    body = draw(damaged(options)) if options and draw(st.integers(0, 3)) == 0 else options
    return Request(
        method=method,
        path=path,
        query=draw(queries()),
        headers=draw(heads(content_type="application/json" if body else "")),
        body=body,
    )


# Patches --------------------------------------------------------------------------------------------------------------


@st.composite
def patch_requests(draw: st.DrawFn, namespace: str) -> Request:
    """A patch of one of the four types, right in parts."""
    place, name = draw(st.sampled_from(_aims(namespace))), draw(_names)
    media = draw(st.sampled_from(patches.FORMATS))
    made = draw(spoiled(place, name)) if media == patches.APPLY_PATCH else draw(_PATCHES[media](place))
    body = _texts_of(made).encode("utf-8", "surrogatepass")
    if draw(st.integers(0, 7)) == 0:
        body = draw(damaged(body))
    query = draw(queries(most=2)) if draw(st.integers(0, 2)) == 0 else ""
    if media == patches.APPLY_PATCH and "fieldManager" not in query:
        manager, force = draw(st.sampled_from(("me", "you"))), draw(st.sampled_from(("", "&force=true")))
        query += f"&fieldManager={manager}{force}"
    return Request(
        method="PATCH",
        path=draw(addresses(place, name)),
        query=query,
        headers=draw(heads(content_type=media)),
        body=body,
    )


@st.composite
def json_patches(draw: st.DrawFn, place: Place) -> Any:
    found = [
        "/" + "/".join(str(key).replace("~", "~0").replace("/", "~1") for key in at) for at in pointers(place.document)
    ]
    choices = st.sampled_from([*found, *(f"{one}/-" for one in found), "/metadata/annotations", *oddities.ODD_POINTERS])
    operations = []
    for _ in range(draw(st.integers(1, 3))):
        one: dict[str, Any] = {
            "op": draw(st.sampled_from(oddities.OPERATIONS)),
            "path": draw(choices),
            "value": draw(_values),
        }
        if one["op"] in ("move", "copy") or draw(st.integers(0, 9)) == 0:
            one["from"] = draw(choices)
        if draw(st.integers(0, 9)) == 0:
            del one[draw(st.sampled_from(sorted(one)))]
        operations.append(one)
    return draw(st.sampled_from((*[operations] * 12, operations[0], [operations], [])))


@st.composite
def merge_patches(draw: st.DrawFn, place: Place) -> Any:
    """A part of the document, with something else in it."""
    at = draw(st.sampled_from(list(pointers(place.document))))
    here = at_pointer(place.document, at)
    value = draw(_OF_TYPE.get(type(here), _values) if draw(st.booleans()) else _values)
    for key in reversed(at):
        value = {key: value} if isinstance(key, str) else [value]
    return value


@st.composite
def strategic_patches(draw: st.DrawFn, place: Place) -> Any:
    """A part of the document with directives in it."""
    document = place.copy
    at = draw(st.sampled_from(list(pointers(document))))
    value: Any = at_pointer(document, at)
    if isinstance(value, dict):
        value = {**value, **draw(st.sampled_from(oddities.DIRECTIVES))}
    elif isinstance(value, list):
        value = [*value, draw(st.sampled_from(oddities.DIRECTIVES)), draw(_values)][draw(st.integers(0, 1)) :]
    for depth, key in enumerate(reversed(at)):
        value = {key: value} if isinstance(key, str) else [value]
        if isinstance(key, str) and depth < 2 and draw(st.booleans()):
            value[draw(st.sampled_from(oddities.PREFIXES)) + key] = draw(_values)
    return value


_PATCHES: dict[str, Callable[[Place], st.SearchStrategy[Any]]] = {
    patches.JSON_PATCH: json_patches,
    patches.MERGE_PATCH: merge_patches,
    patches.STRATEGIC_MERGE_PATCH: strategic_patches,
}


def hostile(namespace: str = "") -> st.SearchStrategy[Request]:
    """namespace: what most of them are about; "" for everything."""
    of_all = [kind(namespace) for kind in (writes, patch_requests, reads, writes, patch_requests)]
    return st.one_of(of_all)


@cache
def _aims(namespace: str) -> tuple[Place, ...]:
    """Places, those in a namespace more often where most requests are about one."""
    inside = tuple(one for one in places() if one.served.kind.namespaced)
    return places() + inside * 9 if namespace else places()

"""Objects of another cluster as we keep them: the text that was received, and its typed value.

Unknown fields stay in the text; our types read the others. Older versions are converted by the kinds' own conversions.
Where our types cannot read what Go's decoder forgives (null for an absent list, amounts as numbers), that value is
written as they can. Left out are managedFields, whose last manager becomes the author, images of Nodes, and the values
of environment variables, also where kubectl repeats them in an annotation. The version of the remote is not part of the
text either: it means nothing here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from inventory.kinds.conversion import slice_of_1_31, with_version
from manciple.mirror.json_texts import cut
from manciple.mirror.sources import SLICE, TAINT_RULE
from manciple.wire import codec
from manciple.wire.base import ApiObject
from manciple.wire.errors import ApiError
from manciple.wire.registry import Kind

Document = dict[str, Any]

#: The time of an object that says none.
_UNDATED: Final = "1970-01-01T00:00:00Z"
#: (resource, version) -> conversions of versions that our own API does not have.
_MORE_CONVERSIONS: Final[Mapping[tuple[str, str], Callable[[Document], Document]]] = {
    (SLICE.resource, "v1alpha3"): slice_of_1_31,
    (TAINT_RULE.resource, "v1"): dict,  # of the same shape
}
#: Where the pod stands in a document of each resource.
_PODS: Final[Mapping[str, tuple[str, ...]]] = {
    "pods": (),
    "deployments.apps": ("spec", "template"),
    "replicasets.apps": ("spec", "template"),
    "statefulsets.apps": ("spec", "template"),
    "daemonsets.apps": ("spec", "template"),
    "jobs.batch": ("spec", "template"),
    "cronjobs.batch": ("spec", "jobTemplate", "spec", "template"),
}
#: Names of these steps in our types.
_ATTRIBUTES: Final = {"jobTemplate": "job_template"}
_CONTAINERS: Final = ("containers", "initContainers", "ephemeralContainers")
#: What was applied, values of environment variables included.
_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"


class Unreadable(Exception):
    """The document is not as its version has it."""


@dataclass(frozen=True, slots=True)
class Received:
    """document: what is stored, but for its resourceVersion, which stands there empty; most of its values are still
    JSON (`plain`). author: its last field manager, or those of the last second ("kubelet or kube-scheduler"); "" where
    none is known.
    """

    object: ApiObject
    document: Document
    author: str


class _Manager(msgspec.Struct):
    manager: str | None = None
    time: str | None = None


# What is neither left out nor looked into stays as text: reading it, and writing it again, takes longer than all else.
_members = msgspec.json.Decoder(dict[str, msgspec.Raw])
_lists = msgspec.json.Decoder(list[dict[str, msgspec.Raw]])
_managers = msgspec.json.Decoder(list[_Manager] | None)
_NOTHING: Final = (b"null", b'""')


def read(kind: Kind, version: str, text: bytes) -> Received:
    """version: of the API that it was read in. Raises: Unreadable."""
    try:
        return _read(kind, version, text)
    except RecursionError:
        return _read(kind, version, cut(text))


def _read(kind: Kind, version: str, text: bytes) -> Received:
    try:
        if not text.isascii():
            text.decode()
        document: Document = _members.decode(text)
        meta: Document = _members.decode(document["metadata"])
        author = _last_manager(meta.pop("managedFields", None))
        document["metadata"] = meta
        if version != kind.version:
            document = dict(_members.decode(msgspec.json.encode(_converted(kind, version, plain(document)))))
            document["metadata"] = meta = _members.decode(document["metadata"])
        head = {"apiVersion": kind.api_version, "kind": kind.kind}
        document = {**head, **document, **head}
        meta["resourceVersion"] = ""
        if _is_empty(meta.get("creationTimestamp")):
            meta["creationTimestamp"] = _UNDATED
        if _is_empty(meta.get("uid")):
            named = plain(meta)
            meta["uid"] = f"{kind.resource}/{named.get('namespace') or ''}/{named['name']}"
        _leave_out(kind, document)
        obj, document = _typed(kind, document)
    except (ApiError, msgspec.MsgspecError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise Unreadable(str(error)) from error
    if not obj.metadata.name or bool(obj.metadata.namespace) != kind.namespaced:
        raise Unreadable("it has no name, or a namespace that does not fit its kind")
    return Received(obj, document, author)


def plain(document: Document) -> Document:
    """With all of its values as Python has them."""
    made: Document = msgspec.json.decode(msgspec.json.encode(document))
    return made


def _is_empty(value: msgspec.Raw | None) -> bool:
    return value is None or bytes(value) in _NOTHING


def _converted(kind: Kind, version: str, document: Document) -> Document:
    if (convert := _MORE_CONVERSIONS.get((kind.resource, version))) is not None:
        return convert(document)
    # Items of a list do not say their version.
    return kind.served_versions[version].to_storage(with_version(document, f"{kind.group}/{version}"))


def _typed(kind: Kind, document: Document) -> tuple[ApiObject, Document]:
    """The value, and the document as our types read it. Raises: ApiError, MsgspecError, ..."""
    text = msgspec.json.encode(document)
    try:
        return codec.decode_text(kind.type, text), document
    except msgspec.ValidationError:
        findings, document = codec.Findings(), msgspec.json.decode(text)
        document = _mended(document, codec.normalize(kind.type, document, findings, asides=True))
        if findings.wrong:
            raise ValueError(", ".join(findings.wrong)) from None
        return codec.decode_text(kind.type, msgspec.json.encode(document)), document


def _mended(raw: Any, fitted: Any) -> Any:
    """What was received, with the values that our types take. fitted: without fields that our types do not know."""
    if isinstance(raw, dict) and isinstance(fitted, dict):
        known = {key: _mended(item, fitted[key]) if key in fitted else item for key, item in raw.items()}
        return {key: item for key, item in known.items() if key in fitted or item is not None}
    if isinstance(raw, list) and isinstance(fitted, list) and len(raw) == len(fitted):
        return [*map(_mended, raw, fitted)]
    return fitted


def _last_manager(entries: msgspec.Raw | None) -> str:
    try:
        known = (_managers.decode(entries) if entries is not None else None) or ()
    except msgspec.MsgspecError:
        return ""
    newest = max((one.time or "" for one in known), default="")
    return " or ".join(sorted({one.manager for one in known if one.manager and (one.time or "") == newest}))


def wants_devices(kind: Kind, obj: ApiObject) -> bool:
    """Of a pod, or of what makes pods: whether they claim devices; else True."""
    path = _PODS.get(kind.resource)
    if path is None:
        return True
    spec: Any = obj
    for name in (*path, "spec"):
        spec = getattr(spec, _ATTRIBUTES.get(name, name))
    resources = [one.resources for one in (*spec.containers, *spec.init_containers)]
    names = {name for one in resources for name in (*one.requests, *one.limits)}
    return bool(spec.resource_claims) or any("/" in name for name in names)


def is_ending(document: Document) -> bool:
    """Whether its deletion has begun."""
    value = document["metadata"].get("deletionTimestamp")
    return not _is_empty(value) if isinstance(value, msgspec.Raw) else bool(value)


# Leaving out ----------------------------------------------------------------------------------------------------------


def _leave_out(kind: Kind, document: Document) -> None:
    if kind.resource == "nodes":
        _opened(document, "status").pop("images", None)
    path = _PODS.get(kind.resource)
    if path is None:
        return
    pod = document
    for name in path:
        pod = _opened(pod, name)
    for part in (document, pod):
        if (meta := _opened(part, "metadata")).get("annotations"):
            _opened(meta, "annotations").pop(_LAST_APPLIED, None)
    spec = _opened(pod, "spec")
    for container in (one for name in _CONTAINERS for one in _opened_list(spec, name)):
        for variable in _opened_list(container, "env"):
            variable.pop("value", None)


def _opened(document: Document, name: str) -> Document:
    """The object at `name`, which can be changed from here on; an empty one where there is none."""
    value = document.get(name)
    if isinstance(value, msgspec.Raw) and memoryview(value)[0] == ord("{"):
        value = document[name] = _members.decode(value)
    return value if isinstance(value, dict) else {}


def _opened_list(document: Document, name: str) -> list[Document]:
    """The same of a list of objects."""
    value = document.get(name)
    if not isinstance(value, msgspec.Raw) or memoryview(value)[0] != ord("["):
        return []
    found: list[Document] = _lists.decode(value)
    document[name] = found
    return found

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
_CONTAINERS: Final = ("containers", "initContainers", "ephemeralContainers")
#: What was applied, values of environment variables included.
_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"


class Unreadable(Exception):
    """The document is not as its version has it."""


@dataclass(frozen=True, slots=True)
class Received:
    """document: what is stored, but for its resourceVersion, which stands there empty. author: its last field manager,
    or those of the last second ("kubelet or kube-scheduler"); "" where none is known.
    """

    object: ApiObject
    document: Document
    author: str


def read(kind: Kind, version: str, text: bytes) -> Received:
    """version: of the API that it was read in. Raises: Unreadable."""
    try:
        return _read(kind, version, text)
    except RecursionError:
        return _read(kind, version, cut(text))


def _read(kind: Kind, version: str, text: bytes) -> Received:
    try:
        document = msgspec.json.decode(text)
        author = _last_manager(document["metadata"].pop("managedFields", None) or ())
        if version != kind.version:
            document = _converted(kind, version, document)
        head = {"apiVersion": kind.api_version, "kind": kind.kind}
        document = {**head, **document, **head}
        meta = document["metadata"]
        meta["resourceVersion"] = ""
        meta["creationTimestamp"] = meta.get("creationTimestamp") or _UNDATED
        meta["uid"] = meta.get("uid") or f"{kind.resource}/{meta.get('namespace') or ''}/{meta['name']}"
        _leave_out(kind, document)
        obj, document = _typed(kind, document)
    except (ApiError, msgspec.MsgspecError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise Unreadable(str(error)) from error
    if not obj.metadata.name or bool(obj.metadata.namespace) != kind.namespaced:
        raise Unreadable("it has no name, or a namespace that does not fit its kind")
    return Received(obj, document, author)


def _converted(kind: Kind, version: str, document: Document) -> Document:
    if (convert := _MORE_CONVERSIONS.get((kind.resource, version))) is not None:
        return convert(document)
    # Items of a list do not say their version.
    return kind.served_versions[version].to_storage(with_version(document, f"{kind.group}/{version}"))


def _typed(kind: Kind, document: Document) -> tuple[ApiObject, Document]:
    """The value, and the document as our types read it. Raises: ApiError, MsgspecError, ..."""
    try:
        return codec.decode_text(kind.type, msgspec.json.encode(document)), document
    except msgspec.ValidationError:
        findings = codec.Findings()
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


def _last_manager(entries: Any) -> str:
    times = [(str(entry.get("time") or ""), str(entry.get("manager") or "")) for entry in entries]
    newest = max(times, default=("", ""))[0]
    return " or ".join(sorted({manager for time, manager in times if time == newest and manager}))


def wants_devices(resource: str, document: Document) -> bool:
    """Of a pod, or of what makes pods: whether they claim devices; else True. As `read` gave it."""
    pod = _pod_of(resource, document)
    if pod is None:
        return True
    spec = pod.get("spec") or {}
    containers = [one for name in _CONTAINERS for one in spec.get(name) or ()]
    resources = [one.get("resources") or {} for one in containers]
    names = {name for one in resources for name in (*(one.get("requests") or ()), *(one.get("limits") or ()))}
    return bool(spec.get("resourceClaims")) or any("/" in name for name in names)


def _pod_of(resource: str, document: Document) -> Any:
    """The pod, or the template of pods; None in a document of another kind."""
    path = _PODS.get(resource)
    if path is None:
        return None
    pod: Any = document
    for name in path:
        pod = pod.get(name) or {}
    return pod


def _leave_out(kind: Kind, document: Document) -> None:
    if kind.resource == "nodes":
        (document.get("status") or {}).pop("images", None)
    pod = _pod_of(kind.resource, document)
    if pod is None:
        return
    for part in (document, pod):
        ((part.get("metadata") or {}).get("annotations") or {}).pop(_LAST_APPLIED, None)
    spec = pod.get("spec") or {}
    for container in (one for name in _CONTAINERS for one in spec.get(name) or ()):
        for variable in container.get("env") or ():
            variable.pop("value", None)

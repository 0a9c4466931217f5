"""Puts what was read of a cluster into the store of this process, as it is there.

Older versions are converted by the kinds' own conversions. What Go's decoder forgives is forgiven (null for an absent
list, amounts as numbers); fields that our types do not know are dropped. Of Nodes no images are kept, of containers no
values of environment variables, of nothing the managedFields. An object that is not as its version has it is left out
and counted (`KindState.unread`), and then nothing is concluded from the kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from msgspec import structs

from claims.kinds.containers import Container
from claims.kinds.pods import Pod
from inventory.kinds import gates
from inventory.kinds.conversion import slice_of_1_31, with_version
from inventory.kinds.nodes import Node
from manciple.mirror.listing import Found
from manciple.mirror.sources import CLAIM, CLASS, POD_GROUP, SLICE, TAINT_RULE, Reach
from manciple.store import objects
from manciple.wire import codec
from manciple.wire.base import ApiObject
from manciple.wire.errors import ApiError
from manciple.wire.identity import SYSTEM
from manciple.wire.registry import Kind
from manciple.wire.resources import kind as kind_of

#: The time of an object that says none.
_UNDATED: Final = "1970-01-01T00:00:00Z"
#: Gates that change what a scheduler does with the same objects -> since which version they are on. The others add
#: fields, which a server drops while they are off: they are on, since they change nothing where no field is.
_ON_SINCE: Final[Mapping[str, tuple[int, int]]] = {"DRAExtendedResource": (1, 36), "DRAPreemption": (1, 37)}
#: Of drivers' controllers and the drafts: their kinds are not read.
_NOT_JUDGED: Final = ("DRAControlPlaneController", "DRAStructuredParametersDraft", "DRAClaimsDraft")

Document = dict[str, Any]
#: (resource, version) -> conversions of versions that our own API does not have.
_MORE_CONVERSIONS: Final[Mapping[tuple[str, str], Callable[[Document], Document]]] = {
    (SLICE.resource, "v1alpha3"): slice_of_1_31,
    (TAINT_RULE.resource, "v1"): dict,  # of the same shape
}


def copy(found: Found) -> None:
    """Into an empty store."""
    gates.use(gates_of(found))
    uids = set[str]()
    for resource, state in found.states.items():
        kind = kind_of(resource)
        reading = _Reading(kind, state.version, uids)
        read = list(reading.objects(found.pages.get(resource, ())))
        if found.single is not None and found.single[0] is state.source:
            _, version, document = found.single
            read += _Reading(kind, version, uids).objects([msgspec.Raw(document)])  # unless it was listed, too
        if reading.unread:
            found.note_unread(resource, reading.unread)
        with objects.writing(identity=SYSTEM) as writer:
            keys = [one.key for one in read]
            writer.adopt(objects.to_read((kind, keys)), {})  # nothing is there: no need to look
            for one in read:
                writer.replicate(kind, one)


def gates_of(found: Found) -> Mapping[str, bool]:
    """Our feature gates as the server has them: as its metrics say, else by its version and by what it serves."""
    version = _numbers(found.version)
    absent = {resource for resource, state in found.states.items() if state.reach is Reach.ABSENT}
    on = dict.fromkeys(gates.OF_SLICES, True)
    on |= {name: version is None or version >= since for name, since in _ON_SINCE.items()}
    if any(b'"extendedResourceName"' in bytes(one) for one in found.pages.get(CLASS.resource, ())):
        on["DRAExtendedResource"] = True  # while it is off, the server drops the field
    on |= {name: value for name, value in found.gates.items() if name in gates.KNOWN}
    on |= dict.fromkeys(_NOT_JUDGED, False)
    if TAINT_RULE.resource in absent:
        on["DRADeviceTaintRules"] = False
    groups = POD_GROUP.resource not in absent and found.gates.get("GenericWorkload", True)
    on |= {"GenericWorkload": groups, "GangScheduling": groups and found.gates.get("GangScheduling", False)}
    if absent & {CLAIM.resource, CLASS.resource}:  # a cluster has both or neither, and not always are both read
        on[gates.DYNAMIC_RESOURCE_ALLOCATION] = False
    return on


def _numbers(version: str) -> tuple[int, int] | None:
    """`v1.34.1-gke.5` -> (1, 34); None for what is no version."""
    major, _, rest = version.removeprefix("v").partition(".")
    minor = rest.partition(".")[0]
    return (int(major), int(minor)) if major.isdecimal() and minor.isdecimal() else None


# Objects --------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Reading:
    """Reads the documents of one kind in one version. uids: of all objects so far; unread: how many could not be."""

    kind: Kind
    version: str
    uids: set[str]
    unread: int = 0

    def objects(self, documents: Sequence[msgspec.Raw]) -> Iterator[ApiObject]:
        for document in documents:
            try:
                one = self._read(bytes(document))
            except (ApiError, msgspec.MsgspecError, ValueError, TypeError):
                self.unread += 1
                continue
            meta = one.metadata
            if meta.name and bool(meta.namespace) == self.kind.namespaced and meta.uid not in self.uids:
                self.uids.add(meta.uid)
                yield one
            else:
                self.unread += 1

    def _read(self, text: bytes) -> ApiObject:
        """Raises: ApiError, MsgspecError, ValueError, TypeError."""
        kind = self.kind
        if self.version == kind.version:
            try:
                return _slim(kind, codec.decode_text(kind.type, text))
            except msgspec.ValidationError:
                pass  # nulls, amounts as numbers
        document = msgspec.json.decode(text)
        if self.version != kind.version:
            document = self._converted(document)
        return _slim(kind, codec.decode_value(kind.type, document))

    def _converted(self, document: Document) -> Document:
        kind, version = self.kind, self.version
        if (convert := _MORE_CONVERSIONS.get((kind.resource, version))) is not None:
            return convert(document)
        # Items of a list do not say their version.
        return kind.served_versions[version].to_storage(with_version(document, f"{kind.group}/{version}"))


def _slim(kind: Kind, obj: ApiObject) -> ApiObject:
    meta = structs.replace(
        obj.metadata,
        managed_fields=(),
        uid=obj.metadata.uid or f"{kind.resource}/{obj.metadata.namespace}/{obj.metadata.name}",
        creation_timestamp=obj.metadata.creation_timestamp or _UNDATED,
        resource_version="",
    )
    slim = structs.replace(obj, api_version=kind.api_version, kind=kind.kind, metadata=meta)
    if isinstance(slim, Node):
        return structs.replace(slim, status=structs.replace(slim.status, images=()))
    if isinstance(slim, Pod):
        spec = slim.spec
        return structs.replace(
            slim,
            spec=structs.replace(
                spec,
                containers=tuple(map(_without_values, spec.containers)),
                init_containers=tuple(map(_without_values, spec.init_containers)),
            ),
        )
    return slim


def _without_values(container: Container) -> Container:
    if not container.env:
        return container
    return structs.replace(container, env=())

"""Puts what was read of a cluster into the store of this process, as it is there.

An object that is not as its version has it is left out and counted (`KindState.unread`), and then nothing is concluded
from the kind.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from inventory.kinds import gates
from manciple.gaps import learn_from
from manciple.mirror import received
from manciple.mirror.judgement import gaps_of
from manciple.mirror.listing import Found
from manciple.mirror.received import Received, Unreadable
from manciple.mirror.sources import CLAIM, CLASS, POD_GROUP, TAINT_RULE, KindState, Reach
from manciple.store import objects
from manciple.wire.base import ApiObject
from manciple.wire.identity import SYSTEM
from manciple.wire.resources import kind as kind_of

#: Gates that change what a scheduler does with the same objects -> since which version they are on. The others add
#: fields, which a server drops while they are off: they are on, since they change nothing where no field is.
_ON_SINCE: Final[Mapping[str, tuple[int, int]]] = {"DRAExtendedResource": (1, 36), "DRAPreemption": (1, 37)}
#: Of drivers' controllers and the drafts: their kinds are not read.
_NOT_JUDGED: Final = ("DRAControlPlaneController", "DRAStructuredParametersDraft", "DRAClaimsDraft")


def copy(found: Found) -> Mapping[str, Sequence[ApiObject]]:
    """Into an empty store, while the lists still come; returns all that is there, by resource.

    Raises: RemoteFailure where nothing could be listed.
    """
    extended, uids = False, set[str]()
    copied: dict[str, list[ApiObject]] = {}
    with objects.writing(identity=SYSTEM) as writer:
        for resource in found.arriving():
            state, kind, unread = found.states[resource], kind_of(resource), 0
            read = dict[tuple[str, str], Received]()
            for document in found.pages.pop(resource, ()):
                text = bytes(document)
                extended = extended or (kind.resource == CLASS.resource and b'"extendedResourceName"' in text)
                try:
                    one = received.read(kind, state.version, text)
                except Unreadable:
                    unread += 1
                    continue
                if one.object.metadata.uid in uids:
                    unread += 1
                    continue
                uids.add(one.object.metadata.uid)
                read[one.object.key] = one
            if unread:
                found.note_unread(resource, unread)
            if found.single is not None and found.single[0] is state.source:
                with suppress(Unreadable):
                    one = received.read(kind, *found.single[1:])
                    read.setdefault(one.object.key, one)  # unless it was listed, too
            writer.adopt(objects.to_read((kind, read)), {})  # nothing is there: no need to look
            copied[resource] = [
                writer.replicate(kind, one.object, one.document, author=one.author) for one in read.values()
            ]
        # What is written at the end goes by them.
        gates.use(gates_of(found.version, found.gates, found.states.values(), extended=extended))
    missing = gaps_of(found.states, found.namespace)
    learn_from(lambda: missing)
    return copied


def gates_of(
    version: str, reported: Mapping[str, bool], states: Iterable[KindState], *, extended: bool
) -> Mapping[str, bool]:
    """Our feature gates as the server has them: as its metrics say, else by its version and by what it serves.

    extended: a class has an extendedResourceName, which a server drops while the gate is off.
    """
    numbers = _numbers(version)
    absent = {state.source.resource for state in states if state.reach is Reach.ABSENT}
    on = dict.fromkeys(gates.OF_SLICES, True)
    on |= {name: numbers is None or numbers >= since for name, since in _ON_SINCE.items()}
    if extended:
        on["DRAExtendedResource"] = True
    on |= {name: value for name, value in reported.items() if name in gates.KNOWN}
    on |= dict.fromkeys(_NOT_JUDGED, False)
    if TAINT_RULE.resource in absent:
        on["DRADeviceTaintRules"] = False
    groups = POD_GROUP.resource not in absent and reported.get("GenericWorkload", True)
    on |= {"GenericWorkload": groups, "GangScheduling": groups and reported.get("GangScheduling", False)}
    if absent & {CLAIM.resource, CLASS.resource}:  # a cluster has both or neither, and not always are both read
        on[gates.DYNAMIC_RESOURCE_ALLOCATION] = False
    return on


def _numbers(version: str) -> tuple[int, int] | None:
    """`v1.34.1-gke.5` -> (1, 34); None for what is no version."""
    major, _, rest = version.removeprefix("v").partition(".")
    minor = rest.partition(".")[0]
    return (int(major), int(minor)) if major.isdecimal() and minor.isdecimal() else None

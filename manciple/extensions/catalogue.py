"""The definitions in effect: what a process serves besides its own kinds, and what definitions ask of writes.

A follower keeps the kinds of all established definitions, compiled; the registry asks it (`Registry.extend`). A process
that wrote or was told of a definition serves it from then on, and whoever asks for a kind that nobody knows makes it
look at the log first: so no process says that a kind is not there which another one has accepted. Inside a transaction
what was known before it counts: a rule sees to it there that nothing is created of a kind that is going.

Names are given out inside the transaction that writes a definition, so two that want one name cannot both get it.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import count
from typing import Any, ClassVar

from manciple.api.answers import unknown_path
from manciple.api.computed import COMPUTED
from manciple.api.reviews import REVIEWS
from manciple.api.streams import DEFINING
from manciple.api.subresources import BINDINGS
from manciple.extensions.conversion_webhooks import convert
from manciple.extensions.definitions import ESTABLISHED, NAMES_ACCEPTED, RESOURCE, CustomResourceDefinition
from manciple.extensions.formats import is_known
from manciple.extensions.naming import NamesTaken, settled
from manciple.extensions.serving import ServedDefinition, serve
from manciple.extensions.structure import node_of
from manciple.per_process import PerProcess
from manciple.store import hooks, objects, records
from manciple.store.event_log import Follower, View
from manciple.store.hooks import PolicyCache, Write
from manciple.store.objects import Writer
from manciple.store.records import EventRecord, Written
from manciple.wire.base import ApiObject, timestamp
from manciple.wire.errors import MethodNotAllowed
from manciple.wire.registry import Added, Kind, Nothing, Served, registry, version_priority

log = logging.getLogger(__name__)

#: Finalizers that need no domain.
#: Seconds for which a process trusts the announcements to tell it of definitions.
TRUSTED = 1.0

# What is served -------------------------------------------------------------------------------------------------------


class DefinedKinds:
    """The kinds of some definitions (`registry.Added`). Never changed."""

    def __init__(self, edition: int, definitions: Iterable[ServedDefinition]) -> None:
        known = tuple(definitions)
        self.edition = edition
        self.by_resource: Mapping[str, Kind] = {one.kind.resource: one.kind for one in known}
        every = [served for one in known for served in one.served.values()]
        every.sort(key=lambda served: (served.kind.group, version_priority(served.version), served.kind.plural))
        self.served: Mapping[tuple[str, str, str], Served] = {
            (served.kind.group, served.version, served.kind.plural): served for served in every
        }


class Established(View):
    """The definitions that are served, and those that the cleanup has to look at."""

    resources: ClassVar[Sequence[str]] = (RESOURCE,)

    def __init__(self) -> None:
        self._served: dict[str, ServedDefinition] = {}
        #: by name, those that are being deleted or lack their names
        self.unsettled: dict[str, CustomResourceDefinition] = {}
        self.catalogue: Added = Nothing()

    def fill(self, resource: str, objects: Iterable[ApiObject]) -> None:  # noqa: ARG002 - there is one
        for definition in objects:
            self._keep(definition)

    def ready(self) -> None:
        self._publish()

    def apply(self, changes: Sequence[Written]) -> None:
        for change in changes:
            if change.type == "DELETED":
                self._served.pop(change.object.metadata.name, None)
                self.unsettled.pop(change.object.metadata.name, None)
            else:
                self._keep(change.object)
        self._publish()

    def _keep(self, definition: Any) -> None:
        name = definition.metadata.name
        if definition.metadata.deletion_timestamp or not definition.holds(NAMES_ACCEPTED):
            self.unsettled[name] = definition
        else:
            self.unsettled.pop(name, None)
        if not definition.holds(ESTABLISHED):
            return
        try:
            self._served[name] = serve(definition, convert)
        except Exception:  # all others, and discovery, are to be served nevertheless
            log.exception("CustomResourceDefinition %s cannot be served", name)
            self._served.pop(name, None)

    def _publish(self) -> None:
        self.catalogue = DefinedKinds(next(_editions), [one for _, one in sorted(self._served.items())])


FOLLOWER = Follower(Established)
#: Numbers of catalogues, never used twice in a process: other caches are keyed by them.
_editions = count(1)
#: The last catalogue, for callers that must not query the database.
_last = PerProcess[Added](Nothing)


def added(surely: bool) -> Added:
    """The kinds that definitions add. surely: what was known a moment ago will not do."""
    # What a transaction has written itself may never be committed: no view is made of that.
    if (objects.is_open() and _last.value.edition) or _in_event_loop():
        return _last.value
    with FOLLOWER.view(within=0.0 if surely else TRUSTED) as established:
        _last.value = established.catalogue
        return established.catalogue


def _in_event_loop() -> bool:
    """There nobody may wait for the database; who has to know asks from a thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


# What definitions ask of writes ---------------------------------------------------------------------------------------


def _by_name(definitions: tuple[CustomResourceDefinition, ...]) -> dict[str, CustomResourceDefinition]:
    return {one.metadata.name: one for one in definitions}


DEFINITIONS = PolicyCache[dict[str, CustomResourceDefinition]](RESOURCE, _by_name, nothing={})


def register() -> None:
    registry.extend(added)
    DEFINING[RESOURCE] = served_versions
    hooks.register_rule(check_definition, operations={"CREATE"})
    hooks.register_check(warn_of_formats, resources={RESOURCE})
    hooks.register_check(know_owners)
    hooks.register_rule(give_names, operations={"CREATE", "UPDATE"}, resources={RESOURCE})


def served_versions(record: EventRecord) -> frozenset[str]:
    """Those of a definition after an event of it."""
    if record.type == "DELETED":
        return frozenset()
    return frozenset(one["name"] for one in json.loads(record.text)["spec"]["versions"] if one["served"])


def warn_of_formats(write: Write) -> None:
    """Formats that nobody knows are ignored: a new one is told of."""
    known = formats_of(write.old) if write.old is not None else frozenset()
    for format_ in sorted(formats_of(write.new) - known) if write.new is not None else ():
        records.warn(f'unrecognized format "{format_}"')


def formats_of(definition: CustomResourceDefinition) -> frozenset[str]:
    """Those that its schemas name and nobody knows."""
    nodes = [node for version in definition.spec.versions for node in node_of(version.open_schema or {}).walk()]
    named = ((node.raw.get("format", ""), node.type) for node in nodes)
    return frozenset(format_ for format_, type_ in named if format_ and not is_known(format_, type_))


def know_owners(write: Write) -> None:
    """Before the transaction, which finds owners by what is known: the kinds of the owners that the object names."""
    for owner in write.new.metadata.owner_references if write.new is not None else ():
        group, _, api_version = owner.api_version.rpartition("/")
        registry.of_kind(group, api_version, owner.kind)


def check_definition(writer: Writer, write: Write) -> None:
    """Nothing is created of a kind that is gone or going. Raises: NotFound, MethodNotAllowed."""
    if not write.kind.is_open:
        return
    definition = DEFINITIONS.of(writer).get(write.kind.resource)
    if definition is None:
        raise unknown_path()
    if definition.metadata.deletion_timestamp:
        raise MethodNotAllowed("create not allowed while custom resource definition is terminating", details={})


def give_names(writer: Writer, write: Write) -> ApiObject | None:
    """The definition with the names that it gets."""
    if write.subresource:
        return None
    return name_given(writer, write.new)


def name_given(writer: Writer, definition: CustomResourceDefinition) -> CustomResourceDefinition:
    group = definition.spec.group
    others = [
        one.status.accepted_names
        for name, one in DEFINITIONS.of(writer).items()
        if one.spec.group == group and name != definition.metadata.name
    ]
    return settled(definition, _with_our_own(NamesTaken.by(others), group), now=timestamp(datetime.now(UTC)))


def _with_our_own(taken: NamesTaken, group: str) -> NamesTaken:
    """And the names of the kinds that the server has by itself, stored or only answered."""
    known = (*registry, *REVIEWS.values(), BINDINGS, *(one.kind for one in COMPUTED.values()))
    own = [kind for kind in known if kind.group == group and not kind.is_open]
    resources = {name for kind in own for name in (kind.plural, kind.singular, *kind.short_names)}
    return NamesTaken(taken.resources | resources, taken.kinds | {kind.kind for kind in own})

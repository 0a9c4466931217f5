"""The garbage collector: objects go after their owners, and owners wait for, or let go of, what they own.

Three duties, found by index and done in small transactions that check again what they found:
- an object whose owners are all gone is deleted; one that keeps an owner only loses the references that lead nowhere;
- an owner in foreground deletion (finalizer foregroundDeletion) takes its dependents with it, and loses the finalizer
  when none is left that blocks it;
- an owner that is to leave orphans (finalizer orphan) disappears from its dependents' references, then loses the
  finalizer.

Deleting cascades: each round finds what the last one set free. Source: pkg/controller/garbagecollector.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from manciple.store import sql
from manciple.store.models import OwnerLink, StoredObject
from manciple.store.objects import portions, writing
from manciple.store.records import Propagation
from manciple.store.writer import Writer, with_meta
from manciple.wire.base import ApiObject
from manciple.wire.identity import controller
from manciple.wire.registry import Kind, registry
from manciple.wire.validation import FOREGROUND_FINALIZER, ORPHAN_FINALIZER

#: Who writes (upstream: the service account of that name in kube-controller-manager).
IDENTITY = controller("generic-garbage-collector")
#: Objects that are looked up at once.
BATCH = 100
#: Whether there may be anything to collect.
HAS_WORK: sql.Query = (
    "SELECT EXISTS (SELECT 1 FROM store_ownerlink WHERE gone) "
    "OR EXISTS (SELECT 1 FROM store_storedobject WHERE NOT (propagation = ''))",
    (),
)


@dataclass(frozen=True, slots=True)
class Dependent:
    """An object that the collector may have to act on."""

    kind: Kind
    namespace: str
    name: str
    uid: str
    size: int  # bytes of its document


def controlled(uid: str, resource: str) -> int:
    """How many objects of a resource are controlled by the object with that uid, as committed."""
    statement = (
        "SELECT count(*) FROM store_ownerlink l JOIN store_storedobject o ON o.uid = l.object_id "
        "WHERE l.owner_uid = %s AND l.controller AND o.resource = %s"
    )
    found: int = sql.fetch(statement, [uid, resource])[0][0]
    return found


Duty = Callable[[Writer, Sequence[Dependent]], int]


def collect(limit: int = 1000) -> int:
    """Do up to about `limit` deletions and updates; returns how many were done. 0 means that nothing is left to do."""
    done = 0
    while done < limit:
        batch = min(BATCH, limit - done)
        found = _look([(where, (), batch) for where, _ in _DUTIES])
        progress = sum(_run(duty, items) for (_, duty), items in zip(_DUTIES, found, strict=True))
        if not (progress := progress or _break_cycles()):
            break
        done += progress
    return done


def _run(duty: Duty, found: Sequence[Dependent]) -> int:
    return sum(_run_portion(duty, portion) for portion in portions(found, lambda item: item.size))


def _run_portion(duty: Duty, found: Sequence[Dependent]) -> int:
    with writing(identity=IDENTITY) as writer:
        for kind in {item.kind.resource: item.kind for item in found}.values():
            writer.load(kind, [(item.namespace, item.name) for item in found if item.kind is kind])
        return duty(writer, [item for item in found if _is_still(writer, item)])


def _is_still(writer: Writer, item: Dependent) -> bool:
    current = writer.get(item.kind, item.namespace, item.name)
    return current is not None and current.metadata.uid == item.uid


#: (condition on a live object `o` and its latest event `e`, parameters, how many)
Search = tuple[str, Sequence[str], int]

_FOUND = (
    "SELECT o.resource, o.namespace, o.name, o.uid, {size}(e.document) FROM store_storedobject o "
    "JOIN store_event e ON e.revision = o.event_id WHERE {where} ORDER BY o.event_id LIMIT %s"
)


def _look(searches: Sequence[Search]) -> list[list[Dependent]]:
    """What each search finds of kinds that this process knows, what was written first in front.

    Most looks find nothing, so the many known kinds are named only where one of another kind was found.
    """
    try:
        return _found(searches)
    except KeyError:
        known = [kind.resource for kind in registry]
        named = f"o.resource IN ({', '.join(['%s'] * len(known))})"
        return _found([(f"{named} AND {where}", (*known, *values), limit) for where, values, limit in searches])


def _found(searches: Sequence[Search]) -> list[list[Dependent]]:
    """Raises: KeyError for an object of a kind that this process does not know."""
    found = partial(_FOUND.format, size=sql.size_function())
    answers = sql.fetch_together([(found(where=where), (*values, limit)) for where, values, limit in searches])
    return [[Dependent(registry.by_resource(resource), *key) for resource, *key in rows] for rows in answers]


# Dependents ----------------------------------------------------------------------------------------------------------


# Each half of the union is found by an index; with OR the database would go through the whole store. SQLite takes the
# index of what is to be collected where the index's own condition stands in the query word for word.
#: Objects with an owner that is gone or goes in the foreground, and which are not deleted themselves yet.
_ADRIFT = (
    "o.uid IN (SELECT object_id FROM store_ownerlink WHERE gone UNION "
    "SELECT l.object_id FROM store_storedobject w JOIN store_ownerlink l ON l.owner_uid = w.uid "
    "WHERE NOT (w.propagation = '') AND w.propagation = 'Foreground') AND NOT e.deleting"
)


def _collect_dependents(writer: Writer, found: Sequence[Dependent]) -> int:
    links = list(OwnerLink.objects.filter(object_id__in=[item.uid for item in found]))
    owner_uids = {link.owner_uid for link in links}
    leaving = StoredObject.objects.filter(uid__in=owner_uids, propagation="Foreground")
    waiting = set(leaving.values_list("uid", flat=True))
    owning = set(OwnerLink.objects.filter(owner_uid__in=[f.uid for f in found]).values_list("owner_uid", flat=True))
    by_object: dict[str, list[OwnerLink]] = {}
    for link in links:
        by_object.setdefault(link.object_id, []).append(link)
    for item in found:
        lost = {link.owner_uid for link in by_object.get(item.uid, ()) if link.gone or link.owner_uid in waiting}
        solid = {link.owner_uid for link in by_object.get(item.uid, ()) if link.owner_uid not in lost}
        if solid:
            _disown(writer, item, lost)
        else:
            # Owners that wait for this one also wait for what it owns.
            deep = bool(lost & waiting) and item.uid in owning
            propagation: Propagation = "Foreground" if deep else _own_propagation(writer, item)
            writer.delete(item.kind, item.namespace, item.name, uid=item.uid, propagation=propagation)
    return len(found)


def _own_propagation(writer: Writer, item: Dependent) -> Propagation:
    """What the object's finalizers say should become of its own dependents."""
    finalizers = _read(writer, item).metadata.finalizers
    if ORPHAN_FINALIZER in finalizers:
        return "Orphan"
    return "Foreground" if FOREGROUND_FINALIZER in finalizers else "Background"


def _read(writer: Writer, item: Dependent) -> ApiObject:
    current = writer.get(item.kind, item.namespace, item.name)
    if current is None:
        raise LookupError(f"{item.kind.resource} {item.namespace}/{item.name} vanished inside a transaction")
    return current


def _disown(writer: Writer, item: Dependent, owners: set[str]) -> None:
    """Take references to `owners` (uids) off the object."""
    current = _read(writer, item)
    kept = tuple(reference for reference in current.metadata.owner_references if reference.uid not in owners)
    writer.update(item.kind, with_meta(current, owner_references=kept))


# Owners --------------------------------------------------------------------------------------------------------------


#: Owners in foreground deletion that nothing blocks any more.
_UNBLOCKED = (
    "NOT (o.propagation = '') AND o.propagation = 'Foreground' "
    "AND NOT EXISTS (SELECT 1 FROM store_ownerlink l WHERE l.owner_uid = o.uid AND l.blocking)"
)


def _release_foreground(writer: Writer, found: Sequence[Dependent]) -> int:
    uids = [item.uid for item in found]
    links = OwnerLink.objects.filter(owner_uid__in=uids, blocking=True)
    blocked = set(links.values_list("owner_uid", flat=True))
    released = [item for item in found if item.uid not in blocked]
    for item in released:
        _remove_finalizer(writer, item, FOREGROUND_FINALIZER)
    return len(released)


#: Owners in foreground deletion whose blocking dependents are all in foreground deletion too, each with one of these.
_BLOCKED = (
    "SELECT o.uid, d.uid FROM store_storedobject o "
    "JOIN store_ownerlink l ON l.owner_uid = o.uid AND l.blocking JOIN store_storedobject d ON d.uid = l.object_id "
    "WHERE NOT (o.propagation = '') AND o.propagation = 'Foreground' AND NOT EXISTS ("
    "SELECT 1 FROM store_ownerlink k JOIN store_storedobject e ON e.uid = k.object_id "
    "WHERE k.owner_uid = o.uid AND k.blocking AND NOT (e.propagation = 'Foreground'))"
)


def _break_cycles() -> int:
    """Release one owner of each cycle whose owners wait for each other and for nothing else.

    Upstream never releases an object that owns itself, nor owners that were deleted one by one.
    """
    blockers: dict[str, set[str]] = {}
    for owner, blocker in sql.fetch(_BLOCKED):
        blockers.setdefault(owner, set()).add(blocker)
    # A blocker that is missing here waits for others, or for nothing and is deleted next.
    waiting_for_others = [owner for owner, found in blockers.items() if not found <= blockers.keys()]
    blocked: dict[str, list[str]] = {}
    for owner, found in blockers.items():
        for one in found:
            blocked.setdefault(one, []).append(owner)
    while waiting_for_others:
        owner = waiting_for_others.pop()
        if blockers.pop(owner, None) is not None:
            waiting_for_others += blocked.get(owner, ())
    released, visited = list[str](), dict[str, str]()  # uid -> where the walk began that came by
    for start in blockers:
        at = start
        while at not in visited:
            visited[at] = start
            at = min(blockers[at])
        if visited[at] == start:
            released.append(at)
    stuck = [item for uids in sql.chunks(released, BATCH) for item in _named(uids)]
    return sum(_run(_release_from_cycle, [item]) for item in stuck)


def _named(uids: Sequence[str]) -> list[Dependent]:
    (found,) = _look([(f"o.uid IN ({', '.join(['%s'] * len(uids))})", tuple(uids), len(uids))])
    return found


def _release_from_cycle(writer: Writer, found: Sequence[Dependent]) -> int:
    for item in found:
        _remove_finalizer(writer, item, FOREGROUND_FINALIZER)
    return len(found)


_LEAVING_ORPHANS = "NOT (o.propagation = '') AND o.propagation = 'Orphan'"


def _leave_orphans(writer: Writer, found: Sequence[Dependent]) -> int:
    """Some dependents let go of their owners; owners without any left lose the finalizer."""
    uids = {item.uid for item in found}
    owned = f"o.uid IN (SELECT object_id FROM store_ownerlink WHERE owner_uid IN ({', '.join(['%s'] * len(uids))}))"  # noqa: S608
    (dependents,) = _look([(owned, tuple(uids), BATCH)])
    portion = next(portions(dependents, lambda item: item.size), ())
    for item in portion:
        _disown(writer, item, uids)
    if len(portion) == BATCH or len(portion) < len(dependents):
        return len(portion)
    for item in found:
        _remove_finalizer(writer, item, ORPHAN_FINALIZER)
    return len(portion) + len(found)


def _remove_finalizer(writer: Writer, item: Dependent, finalizer: str) -> None:
    current = _read(writer, item)
    kept = tuple(name for name in current.metadata.finalizers if name != finalizer)
    writer.update(item.kind, with_meta(current, finalizers=kept))


#: (what is looked for, what is done about it)
_DUTIES: Sequence[tuple[str, Duty]] = (
    (_ADRIFT, _collect_dependents),
    (_UNBLOCKED, _release_foreground),
    (_LEAVING_ORPHANS, _leave_orphans),
)

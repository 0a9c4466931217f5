"""Namespaces: those that are there from the first moment, what they ask of those who write, and how one ends.

They must exist, must not be on their way out, and some may never go: rules of the writer (`manciple.store.hooks`),
asked inside the transaction, so a namespace that is found alive here cannot be emptied before the object is in it.

A deleted namespace stays, Terminating, until nothing is left in it: a finalizer (`FINALIZER`) holds it from the moment
of its deletion. What every namespace has by itself (`manciple.access.namespace_defaults`) goes with it and holds
nothing. `sweep`, asked by a controller, lets those go that are empty but for Events, which no file names, and deletes
what the others hold once they have been terminating for `PATIENCE`: `kubectl delete -f` of a file that names a
namespace and what is in it deletes one after the other, and should find each. Pods go first: what restricts them stays
until they have ended. The status says what is left (`manciple.api.namespace_conditions`), from the first sweep on.
Sources: plugin/pkg/admission/namespace/lifecycle/admission.go, pkg/registry/core/namespace/storage,
pkg/controller/namespace (namespaceDeletionGracePeriod, deletion/namespaced_resources_deleter.go).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import ClassVar

from msgspec import structs

from manciple.access.namespace_defaults import DEFAULTS
from manciple.api.namespace_conditions import Remaining, conditions
from manciple.store import hooks, objects, sql
from manciple.store.event_log import POLL_INTERVAL, Follower, View
from manciple.store.hooks import Write
from manciple.store.objects import Writer
from manciple.store.records import Written
from manciple.wire.base import ApiObject, ObjectMeta, timestamp
from manciple.wire.errors import ApiError, Conflict, Forbidden, NotFound
from manciple.wire.identity import MASTERS, SYSTEM, Identity, controller
from manciple.wire.machinery import KUBERNETES_FINALIZER, Namespace
from manciple.wire.registry import Kind, registry
from manciple.wire.resources import Key

log = logging.getLogger(__name__)

#: Users work in `default`; node agents keep their Leases in `kube-node-lease` (names as in Kubernetes).
SYSTEM_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")

_BOOTSTRAP = Identity("system:bootstrap", (MASTERS,))


def ensure_namespaces() -> None:
    """Make those that are missing."""
    kind = registry.by_resource(NAMESPACES)
    with objects.writing(identity=_BOOTSTRAP) as writer:
        for name in SYSTEM_NAMESPACES:
            if writer.get(kind, "", name) is None:
                writer.create(kind, kind.prepare_create(Namespace(metadata=ObjectMeta(name=name))))


# What they ask of writes ----------------------------------------------------------------------------------------------


NAMESPACES = "namespaces"
#: Namespaces without which nothing works.
IMMORTAL_NAMESPACES = frozenset({"default", "kube-system", "kube-public"})


def register() -> None:
    hooks.register_check(require_namespace, first=True)
    hooks.register_rule(check_namespace, operations={"CREATE"})
    hooks.register_rule(keep_immortal, operations={"DELETE"}, resources={NAMESPACES})


class _Namespaces(View):
    """terminating: name -> whether it is being deleted. leaving: the names of those that are."""

    resources: ClassVar[Sequence[str]] = (NAMESPACES,)

    def __init__(self) -> None:
        self.terminating: dict[str, bool] = {}
        self.leaving: set[str] = set()

    def fill(self, resource: str, objects: Iterable[ApiObject]) -> None:  # noqa: ARG002 - there is one
        for obj in objects:
            name, leaves = obj.metadata.name, obj.metadata.deletion_timestamp is not None
            self.terminating[name] = leaves
            (self.leaving.add if leaves else self.leaving.discard)(name)

    def apply(self, changes: Sequence[Written]) -> None:
        for change in changes:
            if change.type == "DELETED":
                self.terminating.pop(change.object.metadata.name, None)
                self.leaving.discard(change.object.metadata.name)
            else:
                self.fill(change.resource, (change.object,))


_following = Follower(_Namespaces)


def require_namespace(write: Write) -> None:
    """Refuse an object, or something posted below one, before anything else in the request is judged: a missing
    namespace would otherwise be reported as a missing account, class or quota in it.

    A namespace that is found alive may have been deleted within the last half second; `check_namespace` decides.
    Raises: as `check_namespace`.
    """
    name = write.new.metadata.namespace if write.operation == "CREATE" and write.kind.namespaced else ""
    if not name or write.identity is SYSTEM:
        return
    with _following.view(within=POLL_INTERVAL) as known:
        if known.terminating.get(name) is False:
            return
    with _following.view() as known:
        terminating = known.terminating.get(name)
    if terminating is None:
        raise NotFound.of(NAMESPACES, name)
    if terminating:
        raise _terminating(write.kind, write.new)


def check_namespace(writer: Writer, write: Write) -> None:
    """Raises: NotFound where the object's namespace is missing, Forbidden where it is being deleted.

    The installation itself is not asked: it fills namespaces before it opens them.
    """
    kind, obj = write.kind, write.new
    if not kind.namespaced or write.identity is SYSTEM:
        return
    name = obj.metadata.namespace
    namespace = writer.get(registry.by_resource(NAMESPACES), "", name)
    if namespace is None:
        raise NotFound.of(NAMESPACES, name)
    if namespace.metadata.deletion_timestamp is not None:
        raise _terminating(kind, obj)


def keep_immortal(_writer: Writer, write: Write) -> None:
    """Raises: Forbidden."""
    name = write.old.metadata.name
    if name in IMMORTAL_NAMESPACES:
        raise Forbidden(
            f'namespaces "{name}" is forbidden: this namespace may not be deleted',
            details={"name": name, "kind": NAMESPACES},
        )


def _terminating(kind: Kind, obj: ApiObject) -> Forbidden:
    meta, namespace = obj.metadata, obj.metadata.namespace
    name = meta.name or meta.generate_name or "Unknown"
    cause = {
        "reason": "NamespaceTerminating",
        "message": f"namespace {namespace} is being terminated",
        "field": "metadata.namespace",
    }
    details = {"name": name, "group": kind.group, "kind": kind.plural, "causes": [cause]}
    return Forbidden(
        f'{kind.resource} "{name}" is forbidden: unable to create new content in namespace {namespace} '
        "because it is being terminated",
        details={key: value for key, value in details.items() if value},
    )


# How one ends ---------------------------------------------------------------------------------------------------------


#: Who writes (upstream: the service account of that name in kube-controller-manager).
IDENTITY = controller("namespace-controller")
#: The kind of what tells of the objects in a namespace.
EVENTS = "Event"
PODS = "pods"
#: The finalizer in the metadata that keeps the object in the store; spec.finalizers say the same to clients.
FINALIZER = KUBERNETES_FINALIZER
#: How long whoever deleted a namespace has to delete its contents themselves.
PATIENCE = timedelta(seconds=5)
#: Objects of each kind whose finalizers a sweep reads: the first by name.
MOST_READ = 500


def hold(writer: objects.Writer, kind: Kind, name: str, *, resource_version: str = "") -> None:
    """Keep a namespace that is about to be deleted until it is empty.

    Raises: Conflict where `resource_version` is given and is not the namespace's.
    """
    namespace = writer.get(kind, "", name)
    if not isinstance(namespace, Namespace):
        return
    if resource_version and resource_version != namespace.metadata.resource_version:
        raise Conflict.of(kind.resource, name)
    if namespace.metadata.deletion_timestamp is not None:
        return
    finalizers = tuple(dict.fromkeys((*namespace.metadata.finalizers, FINALIZER)))
    held = structs.replace(
        namespace,
        metadata=structs.replace(namespace.metadata, finalizers=finalizers),
        status=structs.replace(namespace.status, phase="Terminating"),
    )
    writer.update(kind, held)


def sweep(now: datetime) -> int:
    """Bring every terminating namespace as far as it may be by `now`; returns how many are gone."""
    kind = registry.by_resource(NAMESPACES)
    with _following.view() as known:
        leaving = sorted(known.leaving)
    gone = 0
    for stored in objects.get_many(kind, [("", name) for name in leaving]):
        if not stored.deleting:  # gone since, and another one has its name
            continue
        try:
            gone += _finish(objects.decoded(stored, Namespace), now)
        except ApiError:  # such as a status that has become too large: the others must not wait for it
            log.exception("could not finish the namespace %s", stored.name)
    return gone


def _finish(namespace: Namespace, now: datetime) -> bool:
    """True when nothing was left in it and it is gone."""
    name, since = namespace.metadata.name, namespace.metadata.deletion_timestamp
    is_early = since is None or now - datetime.fromisoformat(since) < PATIENCE
    if is_early and _holds_more_than_events(name):
        if not namespace.status.conditions:
            _report(namespace, _content_of(name), deleting=False, now=now)
        return False
    remaining = _delete_contents(name)
    if not remaining and _release(name):
        return True
    _report(namespace, remaining, deleting=True, now=now)
    return False


def release_if_empty(name: str) -> bool:
    """Let a terminating namespace go if nothing is in it; True when it is gone."""
    return _is_empty(name) and _release(name)


def _is_empty(name: str) -> bool:
    return not any(_holds(name, kind) for kind in _kinds_in(name))


def _holds_more_than_events(name: str) -> bool:
    return any(_holds(name, kind) for kind in _kinds_in(name) if kind.kind != EVENTS)


def _kinds_in(namespace: str) -> list[Kind]:
    """The kinds of the objects in it, pods first. One query."""
    kinds = {kind.resource: kind for kind in registry if kind.namespaced}
    return [kinds[resource] for resource in sorted(sql.kinds_in(namespace, kinds), key=lambda one: one != PODS)]


def _holds(namespace: str, kind: Kind) -> bool:
    """Whether it holds anything of `kind` that somebody put there, where it holds anything of it."""
    own = sum(resource == kind.resource for resource, _ in DEFAULTS)
    return own == 0 or sql.count(kind.resource, namespace=namespace) > _defaults_in(namespace, kind)


def _defaults_in(namespace: str, kind: Kind) -> int:
    """How many of the objects that each namespace has by itself are in it."""
    names = [(namespace, name) for resource, name in DEFAULTS if resource == kind.resource]
    return len(objects.get_many(kind, names)) if names else 0


def _content_of(namespace: str) -> Remaining:
    """All that somebody put there."""
    found = Remaining()
    for kind in _kinds_in(namespace):
        _add(found, kind, namespace, defaults=_defaults_in(namespace, kind))
    return found


def _add(remaining: Remaining, kind: Kind, namespace: str, *, defaults: int = 0) -> None:
    """Add the objects of a kind that are left; defaults: how many of them do not count."""
    number = max(0, sql.count(kind.resource, namespace=namespace) - defaults)
    items = objects.list(kind, namespace=namespace, limit=MOST_READ).items if number else ()
    own = [item for item in items if not defaults or (kind.resource, item.name) not in DEFAULTS]
    remaining.add(kind, number, (objects.decode(kind, item.text).metadata.finalizers for item in own))


def _delete_contents(namespace: str) -> Remaining:
    """What is still there after everything was deleted; while there are pods, only they are."""
    remaining = Remaining()
    for kind in _kinds_in(namespace):
        for portion in objects.undeleted(kind, namespace=namespace):
            _delete_portion(kind, portion, remaining)
        _add(remaining, kind, namespace)
        if kind.resource == PODS and remaining:
            break
    return remaining


def _delete_portion(kind: Kind, keys: Sequence[Key], remaining: Remaining) -> None:
    with objects.writing(identity=IDENTITY) as writer:
        writer.load(kind, keys)
        for key in keys:
            if writer.get(kind, *key) is None:
                continue
            try:
                with writer.savepoint():
                    writer.delete(kind, *key)
            except ApiError as error:  # one object that may not be deleted does not keep the others
                remaining.failures.add(error.message)


def _report(namespace: Namespace, remaining: Remaining, *, deleting: bool, now: datetime) -> None:
    """Write what holds the namespace into its status, where that has changed."""

    def reported(known: Namespace) -> Namespace:
        found = conditions(known.status.conditions, remaining, deleting=deleting, now=timestamp(now))
        return structs.replace(known, status=structs.replace(known.status, conditions=found))

    if reported(namespace) == namespace:
        return
    kind = registry.by_resource(NAMESPACES)
    with objects.writing(identity=IDENTITY) as writer:
        known = writer.get(kind, "", namespace.metadata.name)
        if isinstance(known, Namespace) and known.metadata.deletion_timestamp is not None:
            writer.update(kind, reported(known), subresource="status")


def _release(name: str) -> bool:
    """Take our finalizers off, once the transaction finds the namespace still empty; True when it is gone."""
    kind = registry.by_resource(NAMESPACES)
    with objects.writing(identity=IDENTITY) as writer:
        namespace = writer.get(kind, "", name)
        if not isinstance(namespace, Namespace) or namespace.metadata.deletion_timestamp is None:
            return False
        # No writer can put anything in while this transaction lasts, and none does after: the namespace is terminating.
        if not _is_empty(name) or not _delete_defaults(writer, name):
            return False
        released = _released(namespace)
        writer.update(kind, released, subresource="finalize")
        return not released.metadata.finalizers


def _delete_defaults(writer: objects.Writer, name: str) -> bool:
    """False where one of them is held by somebody's finalizer."""
    found = [
        (kind, own)
        for resource, own in sorted(DEFAULTS)
        if writer.get(kind := registry.by_resource(resource), name, own) is not None
    ]
    return all(writer.delete(kind, name, own).gone for kind, own in found)


def _released(namespace: Namespace) -> Namespace:
    """Without our finalizer in the spec; while others stand there, still held by the one in the metadata."""
    awaited = tuple(one for one in namespace.spec.finalizers if one != KUBERNETES_FINALIZER)
    kept = tuple(one for one in namespace.metadata.finalizers if awaited or one != FINALIZER)
    return structs.replace(
        namespace,
        metadata=structs.replace(namespace.metadata, finalizers=kept),
        spec=structs.replace(namespace.spec, finalizers=awaited),
    )

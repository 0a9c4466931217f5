"""Events about objects of the cluster: whose reports count, and who may change them.

Everybody who may write in a namespace may write Events there about any object. Events about objects without a namespace
count as reports only if their author may report about the object (`may_report`). Nobody else may change such a report:
it would no longer count. Deleting it takes the right to delete events in its namespace. Kubernetes has no such rule.
"""

from __future__ import annotations

from collections.abc import Mapping

from manciple.access.authorization import decide, on_object
from manciple.store import history, hooks, records
from manciple.store.hooks import Write
from manciple.store.objects import Writer
from manciple.store.records import is_system
from manciple.wire.errors import Forbidden
from manciple.wire.identity import NODE_PREFIX, Identity
from manciple.wire.registry import Kind, registry

EVENTS = "events"


def register() -> None:
    hooks.register_rule(keep_reports, operations={"UPDATE"}, resources={EVENTS})


def cluster_kinds() -> Mapping[str, Kind]:
    """The kinds of objects that are in no namespace, by their names."""
    return {one.kind: one for one in registry if not one.namespaced}


def may_report(author: records.Actor, about: Kind | None, name: str) -> bool:
    """Whether `author` may report about an object of the cluster: parts of the system, agents about their own node, and
    users who may write the object or its status. about: its kind; None for an unknown kind."""
    if author.username.startswith(NODE_PREFIX):
        return about is not None and about.kind == "Node" and author.username == NODE_PREFIX + name
    if is_system(author.username):
        return True
    if about is None:
        return False
    identity = Identity(author.username, author.groups)
    return any(
        decide(identity, on_object("update", about, namespace="", name=name, subresource=part)).allowed
        for part in ("status", "")
    )


def keep_reports(_writer: Writer, write: Write) -> None:
    """Raises: Forbidden."""
    about, meta, kinds = write.old.involved_object, write.old.metadata, cluster_kinds()
    if about.namespace and about.kind not in kinds:
        return
    kind, revision = kinds.get(about.kind), int(meta.resource_version)
    if may_report(records.Actor(username=write.identity.name, groups=write.identity.groups), kind, about.name):
        return
    author = records.author_of(history.notes([revision]).get(revision, ""))
    if may_report(author, kind, about.name):
        why = f'it was reported by "{author.username}", and you may not report about {about.kind} "{about.name}"'
        raise Forbidden.of(EVENTS, meta.name, why)

"""What namespaces ask of those who write: they must exist, must not be on their way out, and some may never go.

Rules of the writer (`manciple.store.rules`): asked inside the transaction, so a namespace that is found alive here
cannot be emptied before the object is in it. Upstream: plugin/pkg/admission/namespace/lifecycle/admission.go.
"""

from __future__ import annotations

from manciple.store import rules
from manciple.store.objects import Writer
from manciple.store.rules import Write
from manciple.wire.base import ApiObject
from manciple.wire.errors import Forbidden, NotFound
from manciple.wire.identity import SYSTEM
from manciple.wire.registry import Kind, registry

NAMESPACES = "namespaces"
#: Namespaces without which nothing works.
IMMORTAL_NAMESPACES = frozenset({"default", "kube-system", "kube-public"})


def register() -> None:
    rules.register(check_namespace, operations={"CREATE"})
    rules.register(keep_immortal, operations={"DELETE"}, resources={NAMESPACES})


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
    name, namespace = obj.metadata.name, obj.metadata.namespace
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

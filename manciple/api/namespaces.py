"""The namespaces that every cluster has from its first moment."""

from __future__ import annotations

from manciple.api import writes
from manciple.store import objects
from manciple.wire.base import ObjectMeta
from manciple.wire.errors import AlreadyExists
from manciple.wire.identity import MASTERS, Identity
from manciple.wire.machinery import Namespace
from manciple.wire.registry import registry

#: Users work in `default`; node agents keep their Leases in `kube-node-lease` (names as in Kubernetes).
SYSTEM_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")

_BOOTSTRAP = Identity("system:bootstrap", (MASTERS,))


def ensure_namespaces() -> None:
    """Make those that are missing. Several processes may do so at once."""
    kind = registry.by_resource("namespaces")
    for name in SYSTEM_NAMESPACES:
        if objects.get(kind, "", name) is None:
            try:
                writes.create(kind, Namespace(metadata=ObjectMeta(name=name)), identity=_BOOTSTRAP)
            except AlreadyExists:  # another process was quicker
                continue

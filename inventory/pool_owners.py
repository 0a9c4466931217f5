"""A pool belongs to the node that its slices name in `spec.nodeName`, or to no node; never to both, nor to two nodes.

Allocations name a device by driver, pool and device alone. If two nodes published pools of one name, a device held on
one of them would count as held on the other, and the higher generation would replace the other node's slices. So the
first owner keeps the name until its last slice is deleted. Kubernetes only asks drivers to choose unique names.

What the installation writes itself (`identity.SYSTEM`) is not checked.
"""

from __future__ import annotations

from inventory.kinds.devices import ResourceSlice
from inventory.models import Node, PublishedSlice
from manciple.store import hooks
from manciple.store.hooks import Write
from manciple.store.objects import Writer
from manciple.wire.errors import Forbidden
from manciple.wire.identity import SYSTEM

SLICES = "resourceslices.resource.k8s.io"


def register() -> None:
    # An update changes neither the driver, the pool's name nor the node (`slice_rules`).
    hooks.register_rule(check_owner, operations={"CREATE"}, resources={SLICES})


def check_owner(writer: Writer, write: Write) -> None:
    """Raises: Forbidden if the slice's pool belongs to another node."""
    if write.identity == SYSTEM:
        return
    new: ResourceSlice = write.new
    driver, pool, node = new.spec.driver, new.spec.pool.name, new.spec.node_name or ""
    # Index rows are written when the transaction ends, so slices created earlier in it are noted.
    note = f"pool owner: {driver}/{pool}"
    owners = set(PublishedSlice.objects.filter(driver=driver, pool=pool).values_list("node_name", flat=True))
    others = (owners | writer.noted(note, frozenset())) - {node}
    if others:
        owner = min(others)
        belongs = f'belongs to node "{owner}"' if owner else "belongs to no single node"
        raise Forbidden.of(
            SLICES,
            new.metadata.name or new.metadata.generate_name,
            f'pool "{pool}" of driver "{driver}" {belongs}: choose another pool name, or delete the ResourceSlices of '
            "that pool first",
        )
    writer.note(note, frozenset({node}))


def other_node_named(pool: str, node: str) -> str:
    """The other Node after which `pool` is named ("node-1", "node-1/gpus"); "" if there is none.

    Without this, a node could take another's usual pool name before that node's driver starts.
    """
    parts = pool.split("/")
    if node in parts:
        return ""
    return Node.objects.filter(name__in=parts).order_by("name").values_list("name", flat=True).first() or ""

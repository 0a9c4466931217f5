"""Which pools the devices of an allocation belong to. PURE.

A result names a driver, a pool and a device. Pools of several nodes may share that name (`inventory.kinds.pools`), so
the node comes from the allocation's node selector: the allocator writes one that selects a single node for every device
of a node. Everything that counts devices as in use asks `pools_in_use`.
"""

from __future__ import annotations

from collections.abc import Collection

from claims.kinds.resource_claims import AllocationResult
from inventory.kinds.pools import PoolKey


def node_of(allocation: AllocationResult) -> str:
    """The single node that the allocation's node selector names; "" if it names none or several."""
    selector = allocation.node_selector
    if selector is None or len(selector.node_selector_terms) != 1:
        return ""
    for field in selector.node_selector_terms[0].match_fields:
        if field.key == "metadata.name" and field.operator == "In" and len(field.values) == 1:
            return field.values[0]
    return ""


def pools_in_use(driver: str, pool: str, node: str, published: Collection[str]) -> tuple[PoolKey, ...]:
    """The pools in which a device allocated on `node` is in use.

    published: the nodes whose slices name this driver and pool, "" for slices of no single node. It is one pool, except
    where the result is ambiguous; then the device is in use in each pool that it may belong to, so that it is never
    given twice:
        node "node-1"  pools of node-1 and of no single node share the name
        node ""        a person or an old version wrote the allocation, or the pool is of no single node
    """
    possible = [one for one in (node, "") if one in published] if node else list(published)
    return tuple(PoolKey(driver, pool, one) for one in possible or (node,))


def pools_allocated_from(driver: str, pool: str, node: str, published: Collection[str]) -> tuple[PoolKey, ...]:
    """The pools from which an allocation takes the device now: of those above, on a node that node's own.

    What is in use in one of these cannot be allocated.
    """
    found = pools_in_use(driver, pool, node, published)
    return found[:1] if node else found

"""More nodes of a shape: what a node like an existing one would bring, new and whole. PURE.

A new node has the labels, taints and amounts of its model and the devices that only the model has; what went wrong with
the model (a cordon, taints of its condition, taints of its devices) is not copied. Devices that several nodes reach are
there already.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from msgspec import structs

from inventory.kinds.devices import ResourceSlice
from inventory.kinds.nodes import Node
from scheduling.simulation_moulds import IMAGINED

HOSTNAME_LABEL = "kubernetes.io/hostname"
#: What the node controllers taint a node with for its condition.
CONDITION_TAINTS = "node.kubernetes.io/"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewNode:
    """A node that is only imagined, and what it publishes."""

    node: Node
    slices: tuple[ResourceSlice, ...]

    @property
    def name(self) -> str:
        return self.node.metadata.name


def is_imagined(node: str) -> bool:
    return IMAGINED in node


_NEW = re.compile(rf"(?:[\w./-]+{IMAGINED})?([\w.-]+){IMAGINED}(\d+)")


def spoken(text: str) -> str:
    """A text in which imagined nodes and their pools are called what they are: `new node 2 like gpu-a19`."""
    return _NEW.sub(r"new node \2 like \1", text) if IMAGINED in text else text


def like(model: Node, slices: Sequence[ResourceSlice], number: int) -> NewNode:
    """Number `number` (from 1) of the nodes like `model`. slices: whatever is published for it."""
    name = f"{model.metadata.name}{IMAGINED}{number}"
    labels = dict(model.metadata.labels)
    if HOSTNAME_LABEL in labels:
        labels[HOSTNAME_LABEL] = name
    taints = tuple(taint for taint in model.spec.taints if not taint.key.startswith(CONDITION_TAINTS))
    node = structs.replace(
        model,
        metadata=structs.replace(model.metadata, name=name, uid=name, labels=labels),
        spec=structs.replace(model.spec, taints=taints, unschedulable=False),
    )
    return NewNode(node=node, slices=tuple(_copied(own, name) for own in _its_own(model, slices)))


def _its_own(model: Node, slices: Sequence[ResourceSlice]) -> Iterable[ResourceSlice]:
    """The slices of the newest generation of pools that belong to this node alone."""
    pools: dict[tuple[str, str], list[ResourceSlice]] = {}
    for published in slices:
        pools.setdefault((published.spec.driver, published.spec.pool.name), []).append(published)
    for found in pools.values():
        newest = max(one.spec.pool.generation for one in found)
        kept = [one for one in found if one.spec.pool.generation == newest]
        if all(one.spec.node_name == model.metadata.name for one in kept):
            yield from kept


def _copied(published: ResourceSlice, name: str) -> ResourceSlice:
    spec = published.spec
    slice_name = f"{published.metadata.name}{IMAGINED}{name}"
    return structs.replace(
        published,
        metadata=structs.replace(published.metadata, name=slice_name, uid=slice_name, owner_references=()),
        spec=structs.replace(
            spec,
            node_name=name,
            pool=structs.replace(spec.pool, name=f"{spec.pool.name}{IMAGINED}{name}"),
            devices=tuple(structs.replace(device, taints=()) for device in spec.devices),
        ),
    )

"""Slices of earlier forms: NodeResourceSlices, and the ResourceSlices that the agent writes for drivers of Kubernetes
1.30.

Such a driver sends its whole inventory at once, and again whenever anything changes
(`nodeagent.plugins.streams.ResourceWatch`); later drivers write their slices themselves. Source: kubernetes v1.30
pkg/kubelet/cm/dra/plugin/noderesources.go.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from inventory.classic.values import ResourceSlice
from inventory.drafts.structured.values import NodeResourceSlice
from inventory.kinds.named_resources import NamedResourcesResources
from manciple.wire.base import ObjectMeta, OwnerReference
from nodeagent.api.client import ApiResource, Client
from nodeagent.failures import ApiFailure
from nodeagent.plugins.streams import Models

NODE_SLICES: Final = ApiResource(NodeResourceSlice, "resource.k8s.io/v1alpha2", "noderesourceslices", namespaced=False)
CLASSIC_SLICES: Final = ApiResource(ResourceSlice, "resource.k8s.io/v1alpha2", "resourceslices", namespaced=False)


def publish_named(client: Client, models: Models, *, driver: str, owner: OwnerReference) -> None:
    """Make the driver's slices of the node, `owner`, be these: change what is different before anything is deleted.

    Raises: ApiFailure.
    """
    selector = f"nodeName={owner.name},driverName={driver}"
    try:
        known = list(client.list(CLASSIC_SLICES, field_selector=selector).items)
    except ApiFailure as failure:
        if failure.not_found:  # the feature gate is off
            return
        raise
    missing, over = _compare(models, known)
    for model in missing:
        if over:
            client.update(CLASSIC_SLICES, replace(over.pop(), named_resources=model))
        else:
            meta = ObjectMeta(generate_name=f"{owner.name}-{driver}-", owner_references=(owner,))
            made = ResourceSlice(metadata=meta, node_name=owner.name, driver_name=driver, named_resources=model)
            client.create(CLASSIC_SLICES, made)
    for slice_ in over:
        client.delete_by_name(CLASSIC_SLICES, slice_.metadata.name)


def _compare(
    models: Sequence[NamedResourcesResources], known: list[ResourceSlice]
) -> tuple[Models, list[ResourceSlice]]:
    """(what no slice says, the slices that say nothing of it)"""
    missing, over = [], list(known)
    for model in models:
        same = next((slice_ for slice_ in over if slice_.named_resources == model), None)
        if same is None:
            missing.append(model)
        else:
            over.remove(same)
    return tuple(missing), over

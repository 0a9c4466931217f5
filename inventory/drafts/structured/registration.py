"""NodeResourceSlice as the API server serves it. PURE."""

from __future__ import annotations

from inventory.drafts.structured import rules
from inventory.drafts.structured.values import NodeResourceSlice
from inventory.kinds import gates
from manciple.wire.registry import Column, Kind
from manciple.wire.tables import AGE_COLUMN, NAME_COLUMN

NODE_RESOURCE_SLICE = Kind(
    group="resource.k8s.io",
    version="v1alpha2",
    plural="noderesourceslices",
    namespaced=False,
    type=NodeResourceSlice,
    is_served=lambda: gates.enabled(gates.STRUCTURED_PARAMETERS_DRAFT),
    prepare_create=rules.prepare_slice,
    prepare_update=lambda new, _old: rules.prepare_slice(new),
    validate_create=rules.validate_slice,
    validate_update=rules.validate_slice_update,
    selectable=lambda one: {"spec.nodeName": one.spec.node_name, "spec.driverName": one.spec.driver_name},
    columns=(
        NAME_COLUMN,
        Column(name="Node", cell=lambda one, _now: one.spec.node_name),
        Column(name="Driver", cell=lambda one, _now: one.spec.driver_name),
        AGE_COLUMN,
        Column(
            name="Resources",
            type="integer",
            description="Named resources in this slice",
            priority=1,
            cell=lambda one, _now: len(one.spec.named_resources_with_attributes or ()),
        ),
    ),
    generation_of=lambda one: one.spec,
    without_protobuf=True,
    description="The devices of a driver on one node, as the draft of KEP-4381 publishes them.",
)

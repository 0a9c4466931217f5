"""The Simulation, a kind that is answered when it is posted, and never stored.

Posted to /apis/manciple.dev/v1alpha1/simulations, its `status` says where the pods of `spec` would be placed on the
existing nodes, how many nodes of which template the others need, and, with `scaleDown`, which nodes could be removed.
Below a pod or a claim (`.../pods/NAME/simulate`, `.../resourceclaims/NAME/simulate`) it is about copies of that one.

Source: KEP-4381, "Simulation with CA": the cluster's state, with nodes added to it, is decided on by the code that
schedules, and what it decides is recorded on a copy.
"""

from __future__ import annotations

from typing import Annotated

from claims.kinds.pods import Pod
from inventory.kinds.devices import ResourceSlice
from inventory.kinds.nodes import Node
from manciple.wire.base import ApiObject, Value, always, pb

PACKAGE = "dev.manciple.v1alpha1"
GROUP, VERSION = "manciple.dev", "v1alpha1"


class PodReference(Value):
    """A pod that waits.

    namespace: the namespace of the pod. name: the name of the pod.
    """

    namespace: Annotated[str, pb(1)] = ""
    name: Annotated[str, pb(2)] = ""


class SimulatedPod(Value):
    """Pods that do not exist: `replicas` of this one. The claims and templates it names are those of its namespace.

    pod: the pod, which need not exist. replicas: how many of it; 1 by default.
    """

    pod: Annotated[Pod, pb(1)] = Pod()
    replicas: Annotated[int, pb(2)] = 1


class NodeTemplate(Value):
    """Nodes that could be added: like the node named `like`, or as described by `node` and `resourceSlices`.

    Of `like`, what went wrong with it is not copied: a cordon, taints for its condition, taints of its devices.
    `resourceSlices` name the node in `spec.nodeName`. Of templates that help as many pods, that which `cost` times the
    number of nodes makes cheapest is taken, and of those the first.

    name: the name of the template, by which the answer speaks of it. like: the name of a node that is there. node: the
    Node that each would be. resource_slices: what its drivers would publish. max_nodes: how many there may be at most.
    cost: of one node, in any unit; 1 by default.
    """

    name: Annotated[str, pb(1)] = ""
    like: Annotated[str, pb(2)] = ""
    node: Annotated[Node | None, pb(3)] = None
    resource_slices: Annotated[tuple[ResourceSlice, ...], pb(4)] = ()
    max_nodes: Annotated[int | None, pb(5)] = None
    cost: Annotated[int | None, pb(6)] = None


class SimulationSpec(Value):
    """Which pods (without `pods` and `newPods`: all that wait), and which nodes could be added.

    `scaleDown`: whether to look for nodes whose pods would fit on others. A pod that is annotated
    `cluster-autoscaler.kubernetes.io/safe-to-evict: "false"` keeps its node, and so does one without a controller
    unless it is annotated "true", or one that a disruption budget keeps; static ones and DaemonSets' do not.

    replicas: how many of the pod or claim below which it is posted.
    """

    pods: Annotated[tuple[PodReference, ...], pb(1)] = ()
    new_pods: Annotated[tuple[SimulatedPod, ...], pb(2)] = ()
    node_templates: Annotated[tuple[NodeTemplate, ...], pb(3)] = ()
    scale_down: Annotated[bool, pb(4)] = False
    #: Of a pod or claim below which it is posted.
    replicas: Annotated[int | None, pb(5)] = None


class SimulatedDevice(Value):
    """One device that a pod would be given: to which request of which of its claims.

    claim: the name of the claim. request: the request in the claim. driver: the driver of the device. pool: the pool of
    the device. device: the name of the device.
    """

    claim: Annotated[str, pb(1)] = ""
    request: Annotated[str, pb(2)] = ""
    driver: Annotated[str, pb(3)] = ""
    pool: Annotated[str, pb(4)] = ""
    device: Annotated[str, pb(5)] = ""


class SimulatedPlacement(Value):
    """Where one pod would go. A node that does not exist is called TEMPLATE~NUMBER, a pod that does not NAME~NUMBER.

    namespace: the namespace of the pod. name: the name of the pod. node_name: the node on which it would be.
    """

    namespace: Annotated[str, pb(1)] = ""
    name: Annotated[str, pb(2)] = ""
    node_name: Annotated[str, pb(3)] = ""
    devices: Annotated[tuple[SimulatedDevice, ...], pb(4)] = ()


class UnschedulablePod(Value):
    """One that fits nowhere, new nodes included. reason: the code of its cause.

    namespace: the namespace of the pod. name: the name of the pod.
    """

    namespace: Annotated[str, pb(1)] = ""
    name: Annotated[str, pb(2)] = ""
    reason: Annotated[str, pb(3)] = ""
    message: Annotated[str, pb(4)] = ""


class NewNodes(Value):
    """How many nodes of a template would be added, and how many pods would be on them.

    template: the name of the template. nodes: how many nodes. pods: how many pods.
    """

    template: Annotated[str, pb(1)] = ""
    nodes: Annotated[int, pb(2)] = always(0)
    pods: Annotated[int, pb(3)] = always(0)


class RemovableNode(Value):
    """A node that could go when those before it have gone, and where its pods would be placed.

    name: the name of the node.
    """

    name: Annotated[str, pb(1)] = ""
    pods: Annotated[tuple[SimulatedPlacement, ...], pb(2)] = ()


class SimulationStatus(Value):
    """The answer. `complete`: false where time ran out before everything was tried."""

    placements: Annotated[tuple[SimulatedPlacement, ...], pb(1)] = always(())
    unschedulable: Annotated[tuple[UnschedulablePod, ...], pb(2)] = always(())
    new_nodes: Annotated[tuple[NewNodes, ...], pb(3)] = always(())
    removable_nodes: Annotated[tuple[RemovableNode, ...], pb(4)] = always(())
    complete: Annotated[bool, pb(5)] = always(False)


class Simulation(ApiObject):
    """See the module's docstring. `metadata.resourceVersion` of an answer: the state that was looked at."""

    spec: Annotated[SimulationSpec, pb(2)] = SimulationSpec()
    status: Annotated[SimulationStatus, pb(3)] = SimulationStatus()

"""The workloads of Kubernetes' scheduler_perf (test/integration/scheduler_perf/dra), as documents for any API server.

Same nodes, devices, classes, claims and pods. Each has the name that it has there; a star marks a size that Kubernetes
does not list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

Document = dict[str, Any]

DRIVER = "test-driver.cdi.k8s.io"
RESOURCE = "resource.k8s.io/v1"
TAINT_RULES = "resource.k8s.io/v1alpha3"
#: Namespaces: of what is there before anything is measured, and of what is measured.
INIT, TEST = "init", "test"
_CLASS, _NO_DEVICES, _TEMPLATE = "test-class", "no-devices-class", "test-claim-template"
_TAINT = "example.com/taint"
#: Half of the devices of a node.
_EVEN = 'device.attributes["dra.example.com"].numa % 2 == 0'
_OF_THE_DRIVER = f'device.driver == "{DRIVER}"'


@dataclass(frozen=True, slots=True, kw_only=True)
class PerfWorkload:
    """One workload: what is there first, and which pods are timed."""

    nodes: int
    #: devices that each node publishes for itself
    devices: int = 0
    #: number -> slices of a pool for all nodes
    pool: Callable[[int], list[Document]] | None = None
    pools: int = 0
    classes: tuple[Document, ...]
    rules: tuple[Document, ...] = ()
    #: what the template of both namespaces asks for; None where pods name no template
    asked: Document | None = None
    #: number -> a pod
    pod: Callable[[int], Document]
    #: claims that are allocated to nobody before anything begins, and which device each holds: (pool, device)
    held: int = 0
    holding: Callable[[int], tuple[str, str]] | None = None
    #: pods that share one claim; 0 where each has its own
    sharing: int = 0
    #: pods bound before the measurement, and those measured (where `seconds` is set: as many at any time)
    first: int = 0
    pods: int
    #: once all are bound they are deleted and as many created, for so long; 0 where pods are created once
    seconds: float = 0.0


Workload = Callable[[], PerfWorkload]


# Documents -----------------------------------------------------------------------------------------------------------


def node(number: int) -> Document:
    amounts = {"pods": "110", "cpu": "4", "memory": "32Gi"}
    ready = {"type": "Ready", "status": "True"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": node_name(number), "labels": {"node-with-dra": "true"}},
        "status": {"capacity": amounts, "allocatable": amounts, "conditions": [ready]},
    }


def node_name(number: int) -> str:
    return f"scheduler-perf-dra-{number:05}"


def local_slice(number: int, devices: int) -> Document:
    """What the driver of a node publishes."""
    name = node_name(number)
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    published = [_whole_device(index) for index in range(devices)]
    return _slice(name, {"driver": DRIVER, "nodeName": name, "pool": pool, "devices": published})


def claim(number: int) -> Document:
    return _resource("ResourceClaim", f"test-claim-{number}", {"devices": _one()})


def template(asked: Document) -> Document:
    return _resource("ResourceClaimTemplate", _TEMPLATE, {"spec": {"devices": asked}})


def _whole_device(index: int) -> Document:
    attributes = {
        "model": {"string": "A100"},
        "family": {"string": "GPU"},
        "driverVersion": {"version": "1.2.3"},
        "dra.example.com/numa": {"int": index},
    }
    return {"name": f"instance-{index}", "attributes": attributes, "capacity": {"memory": {"value": "1Gi"}}}


def _resource(kind: str, name: str, spec: Document) -> Document:
    return {"apiVersion": RESOURCE, "kind": kind, "metadata": {"name": name}, "spec": spec}


def _slice(name: str, spec: Document) -> Document:
    return _resource("ResourceSlice", name, spec)


def _class(name: str = _CLASS, expression: str = _OF_THE_DRIVER, **spec: Any) -> Document:
    return _resource("DeviceClass", name, {"selectors": [{"cel": {"expression": expression}}], **spec})


def _taint_rule() -> Document:
    """Taints every device."""
    taint = {"key": _TAINT, "value": "tainted", "effect": "NoSchedule"}
    return {
        "apiVersion": TAINT_RULES,
        "kind": "DeviceTaintRule",
        "metadata": {"name": "taint-all-devices"},
        "spec": {"taint": taint},
    }


def _one(**exactly: Any) -> Document:
    return {"requests": [{"name": "req-0", "exactly": {"deviceClassName": _CLASS, **exactly}}]}


def _alike(attribute: str, count: int) -> Document:
    """Devices that have the same value of an attribute."""
    return {**_one(count=count), "constraints": [{"requests": ["req-0"], "matchAttribute": attribute}]}


# Pods ----------------------------------------------------------------------------------------------------------------


def _pod(number: int, container: Document, **spec: Any) -> Document:
    containers = [{"name": "pause", "image": "registry.k8s.io/pause:3.10.1", **container}]
    metadata = {"name": f"test-dra-{number}"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": containers, **spec}}


def _claiming(number: int, source: Mapping[str, str]) -> Document:
    uses = {"resources": {"claims": [{"name": "resource"}]}}
    return _pod(number, uses, resourceClaims=[{"name": "resource", **source}])


def _templated(number: int) -> Document:
    return _claiming(number, {"resourceClaimTemplateName": _TEMPLATE})


def _shared(number: int) -> Document:
    return _claiming(number, {"resourceClaimName": f"test-claim-{number // 5}"})


def _extended(names: Callable[[int], str]) -> Callable[[int], Document]:
    def made(number: int) -> Document:
        amounts = {names(number): "1"}
        return _pod(number, {"resources": {"requests": amounts, "limits": amounts}})

    return made


# Pools for all nodes -------------------------------------------------------------------------------------------------


def _pool(number: int, *parts: Document) -> list[Document]:
    """The slices of one pool, one for each of `parts` of its specification."""
    everywhere = {"nodeSelectorTerms": [{"matchExpressions": [_EVERYWHERE]}]}
    pool = {"name": f"resourceslice-{number}", "generation": 1, "resourceSliceCount": len(parts)}
    common = {"driver": DRIVER, "nodeSelector": everywhere, "pool": pool}
    return [_slice(f"resourceslice-{number}-{index}", {**common, **part}) for index, part in enumerate(parts)]


_EVERYWHERE = {"key": "node-with-dra", "operator": "In", "values": ["true"]}


def _shareable(number: int) -> list[Document]:
    policy = {"default": "1Gi", "validRange": {"min": "1Gi"}}
    memory = {"memory": {"value": "80Gi", "requestPolicy": policy}}
    return _pool(
        number, {"devices": [{"name": "shareable-device", "allowMultipleAllocations": True, "capacity": memory}]}
    )


def _partitions(number: int) -> list[Document]:
    """Four counters, and the devices that take two of them, or one."""
    counters = {f"counter{index}": {"value": "1"} for index in range(1, 5)}
    cut: list[tuple[str, tuple[int, ...]]] = [
        (f"device-2-counters-{half}", (2 * half - 1, 2 * half)) for half in (1, 2)
    ]
    cut += [(f"device-1-counter-{index}", (index,)) for index in range(1, 5)]
    devices = [
        {
            "name": name,
            "attributes": {
                "preallocate": {"bool": name == "device-2-counters-1"},
                "dra.example.com/slice": {"int": number},
            },
            "capacity": {"counters": {"value": str(len(taken))}},
            "consumesCounters": [
                {"counterSet": "counter-set", "counters": {f"counter{index}": {"value": "1"} for index in taken}}
            ],
        }
        for name, taken in cut
    ]
    return _pool(number, {"sharedCounters": [{"name": "counter-set", "counters": counters}]}, {"devices": devices})


def _backtracking(number: int) -> list[Document]:
    """Eight devices, of which the memory suffices for seven if the first is not among them."""
    cores = {f"cpu{index}": {"value": "1"} for index in range(1, 9)}
    counters = [
        {"name": "counter-set-for-cpu", "counters": cores},
        {"name": "counter-set-for-mem", "counters": {"mem": {"value": "70Gi"}}},
    ]
    devices = [
        {
            "name": f"device-{index}",
            "consumesCounters": [
                {"counterSet": "counter-set-for-cpu", "counters": {f"cpu{index}": {"value": "1"}}},
                {
                    "counterSet": "counter-set-for-mem",
                    "counters": {"mem": {"value": "20Gi" if index == 1 else "10Gi"}},
                },
            ],
        }
        for index in range(1, 9)
    ]
    return _pool(number, {"sharedCounters": counters}, {"devices": devices})


def _local(nodes: int) -> Callable[[int], tuple[str, str]]:
    """Claims held evenly: the first device of every node, then the second."""
    return lambda number: (node_name(number % nodes), f"instance-{number // nodes}")


# Workloads -----------------------------------------------------------------------------------------------------------


def _templates(*, nodes: int, pods: int, devices: int = 10, asked: Document | None = None) -> PerfWorkload:
    """asked: one device of the class, unless said otherwise."""
    return PerfWorkload(
        nodes=nodes,
        devices=devices,
        classes=(_class(),),
        asked=asked or _one(),
        pod=_templated,
        first=pods // 2,
        pods=pods // 2,
    )


def _steady(*, nodes: int, held: int) -> PerfWorkload:
    return PerfWorkload(
        nodes=nodes,
        devices=10,
        classes=(_class(),),
        asked=_one(),
        pod=_templated,
        held=held,
        holding=_local(nodes),
        pods=10,
        seconds=10.0,
    )


def _sharing(*, nodes: int, pods: int, devices: int = 2) -> PerfWorkload:
    return PerfWorkload(
        nodes=nodes, devices=devices, classes=(_class(),), pod=_shared, sharing=5, first=pods // 2, pods=pods // 2
    )


def _first_available(*, nodes: int, pods: int) -> PerfWorkload:
    either = [{"name": f"sub-{at}", "deviceClassName": name} for at, name in enumerate((_NO_DEVICES, _CLASS))]
    asked = {"requests": [{"name": "req-0", "firstAvailable": either}]}
    nothing = _class(_NO_DEVICES, 'device.driver == "no-such-driver.cdi.k8s.io"')
    return replace(_templates(nodes=nodes, pods=pods, asked=asked), classes=(_class(), nothing))


def _tolerating(*, nodes: int, pods: int) -> PerfWorkload:
    asked = _one(tolerations=[{"key": _TAINT, "operator": "Exists"}])
    return replace(_templates(nodes=nodes, pods=pods, asked=asked), rules=(_taint_rule(),))


def _by_name(classes: int, *, nodes: int, pods: int) -> PerfWorkload:
    """Each class has an extended resource of its own."""
    made = tuple(
        _class(f"test-class-{number}", extendedResourceName=f"example.com/gpu-{number}") for number in range(classes)
    )
    pod = _extended(lambda number: f"example.com/gpu-{number % classes}")
    return PerfWorkload(nodes=nodes, devices=10, classes=made, pod=pod, first=pods // 2, pods=pods // 2)


def _by_class(classes: int, *, nodes: int, pods: int) -> PerfWorkload:
    """By the extended resource that each class has without naming one."""
    made = tuple(_class(f"test-class-{number}") for number in range(classes))
    pod = _extended(lambda number: f"deviceclass.resource.kubernetes.io/test-class-{number % classes}")
    return replace(_by_name(classes, nodes=nodes, pods=pods), classes=made, pod=pod)


def _of_one_name(classes: int, *, nodes: int, pods: int) -> PerfWorkload:
    """All classes have the same extended resource."""
    made = tuple(
        _class(f"scoring-test-class-{number}", extendedResourceName="example.com/gpu") for number in range(classes)
    )
    return PerfWorkload(nodes=nodes, devices=20, classes=made, pod=_extended(lambda _: "example.com/gpu"), pods=pods)


def _capacity(*, pods: int = 2000, seconds: float = 0.0) -> PerfWorkload:
    capacity = {"requests": {"memory": "40Gi"}}
    both = [{"name": f"req-{at}", "exactly": {"deviceClassName": _CLASS, "capacity": capacity}} for at in range(2)]
    return PerfWorkload(
        nodes=100,
        devices=20,
        pool=_shareable,
        pools=2000,
        classes=(_class(expression=f"{_OF_THE_DRIVER} && device.allowMultipleAllocations == true"),),
        asked={"requests": both},
        pod=_templated,
        pods=pods,
        seconds=seconds,
    )


def _partitionable(*, nodes: int = 100, pools: int = 2000, pods: int = 2000, seconds: float = 0.0) -> PerfWorkload:
    return PerfWorkload(
        nodes=nodes,
        pool=_partitions,
        pools=pools,
        classes=(_class(),),
        asked=_alike("dra.example.com/slice", 2),
        pod=_templated,
        held=pools,
        holding=lambda number: (f"resourceslice-{number}", "device-2-counters-1"),
        pods=pods,
        seconds=seconds,
    )


def _seven_of_eight() -> PerfWorkload:
    return PerfWorkload(
        nodes=1,
        pool=_backtracking,
        pools=1,
        classes=(_class(),),
        asked=_one(count=7),
        pod=_templated,
        pods=1,
        seconds=10.0,
    )


#: size -> pods and nodes
_SIZES = {
    "1000pods_200nodes": {"nodes": 200, "pods": 1000},
    "2000pods_200nodes": {"nodes": 200, "pods": 2000},
    "5000pods_500nodes": {"nodes": 500, "pods": 5000},
}


def _sized(name: str, made: Callable[..., PerfWorkload], *sizes: str) -> Iterator[tuple[str, Workload]]:
    """sizes: with a star where Kubernetes does not list them."""
    for size in sizes:
        yield f"{name}/{size}", partial(made, **_SIZES[size.rstrip("*")])


def _listed() -> Iterator[tuple[str, Workload]]:
    half, small, large = _SIZES
    templates = "SchedulingWithResourceClaimTemplate"
    yield f"{templates}/2000pods_100nodes", partial(_templates, nodes=100, pods=2000, devices=20)
    yield from _sized(templates, _templates, small, large)
    yield f"{templates}/1000pods_5000nodes*", partial(_templates, nodes=5000, pods=1000)
    yield f"{templates}/5000pods_5000nodes*", partial(_templates, nodes=5000, pods=5000)
    for nodes in (100, 200, 500):
        for level, held in (("empty", 0), ("half", nodes * 5), ("full", nodes * 10 - 10)):
            yield (
                f"SteadyStateClusterResourceClaimTemplate/{level}_{nodes}nodes",
                partial(_steady, nodes=nodes, held=held),
            )
    yield "SchedulingWithResourceClaim/2000pods_100nodes", partial(_sharing, nodes=100, pods=2000, devices=4)
    yield from _sized("SchedulingWithResourceClaim", _sharing, small, large)
    yield from _sized(
        "Selector", partial(_templates, asked=_one(selectors=[{"cel": {"expression": _EVEN}}])), f"{half}*"
    )
    yield from _sized("MatchAttribute", partial(_templates, asked=_alike(f"{DRIVER}/model", 2)), f"{half}*")
    yield from _sized("FirstAvailable", _first_available, f"{small}*", f"{large}*")
    yield from _sized("DeviceTaintToleration", _tolerating, f"{small}*", f"{large}*")
    yield "ConsumableCapacity/2000pods_100nodes", partial(_capacity, seconds=10.0)
    yield "ConsumableCapacity/20pods_100nodes*", partial(_capacity, pods=20)
    yield "Partitionable/2000pods_100nodes", partial(_partitionable, seconds=10.0)
    yield "Partitionable/20pods_100nodes*", partial(_partitionable, pods=20)
    yield "Partitionable/100pods_20nodes*", partial(_partitionable, nodes=20, pools=200, pods=100)
    yield "PartitionableBacktracking/steady_1node*", _seven_of_eight
    yield from _sized("ExtendedResource_25Classes", partial(_by_name, 25), small, large)
    yield from _sized("ExtendedResource_50Classes", partial(_by_name, 50), small, large)
    yield from _sized("ImplicitExtendedResource_25Classes", partial(_by_class, 25), small, large)
    yield "ExtendedResourceScoring/2000pods_200nodes", partial(_of_one_name, 10, nodes=200, pods=2000)
    yield "ExtendedResourceScoring/5000pods_500nodes", partial(_of_one_name, 20, nodes=500, pods=5000)


WORKLOADS: dict[str, Workload] = dict(_listed())


def shared_claims(workload: PerfWorkload, pods: int) -> Iterator[Document]:
    """The claims that `pods` pods share."""
    return (claim(number) for number in range(-(-pods // workload.sharing))) if workload.sharing else iter(())

"""What containers and nodes use of cpu and memory: the agent's report of it, and the kinds that show it.

    GET https://AGENT/usage                                  -> UsageReport
    GET /apis/metrics.k8s.io/v1beta1/nodes, .../pods         -> NodeMetrics, PodMetrics (`kubectl top`)

None of it is stored. Source: k8s.io/metrics/pkg/apis/metrics/v1beta1/types.go; sigs.k8s.io/metrics-server
pkg/api/table.go.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated

from manciple.wire.base import ApiObject, Value, pb, timestamp
from manciple.wire.registry import Column, Kind
from manciple.wire.tables import NAME_COLUMN

GROUP, VERSION = "metrics.k8s.io", "v1beta1"

# The agent's report ---------------------------------------------------------------------------------------------------


class Usage(Value):
    """at: POSIX seconds; window: seconds before it. cpu_nanos: of a second of one processor. memory_bytes: at the end.

    memory_bytes: without what the kernel may drop at once (the working set).
    """

    at: float
    window: float
    cpu_nanos: int
    memory_bytes: int


class PodUsage(Value):
    """containers: the running ones, by name."""

    namespace: str
    name: str
    uid: str
    containers: dict[str, Usage]


class UsageReport(Value):
    """node: None where nothing was measured yet."""

    node: Usage | None = None
    pods: tuple[PodUsage, ...] = ()


# The kinds ------------------------------------------------------------------------------------------------------------


class ContainerMetrics(Value):
    """What one container uses."""

    name: Annotated[str, pb(1)] = ""
    usage: Annotated[dict[str, str], pb(2)] = {}


class NodeMetrics(ApiObject):
    """What a node uses, over the window that ends at the timestamp."""

    timestamp: Annotated[str, pb(2)] = ""
    window: Annotated[str, pb(3)] = ""
    usage: Annotated[dict[str, str], pb(4)] = {}


class PodMetrics(ApiObject):
    """What a pod's containers use, over the window that ends at the timestamp."""

    timestamp: Annotated[str, pb(2)] = ""
    window: Annotated[str, pb(3)] = ""
    containers: Annotated[tuple[ContainerMetrics, ...], pb(4)] = ()


def amounts(usage: Usage) -> dict[str, str]:
    """As quantities."""
    return {"cpu": f"{usage.cpu_nanos}n", "memory": f"{usage.memory_bytes // 1024}Ki"}


def time_of(usage: Usage) -> str:
    return timestamp(datetime.fromtimestamp(usage.at, UTC))


def window_of(usage: Usage) -> str:
    """A Go duration in milliseconds: "15.25s", "1m30s"."""
    hours, rest = divmod(round(usage.window, 3), 3600)
    minutes, seconds = divmod(rest, 60)
    shown = f"{seconds:.3f}".rstrip("0").rstrip(".")
    return f"{f'{hours:.0f}h' if hours else ''}{f'{minutes:.0f}m' if hours or minutes else ''}{shown}s"


def containers_of(pod: Mapping[str, Usage]) -> tuple[ContainerMetrics, ...]:
    return tuple(ContainerMetrics(name=name, usage=amounts(usage)) for name, usage in sorted(pod.items()))


def _cell_of(resource: str) -> Column:
    def cell(shown: NodeMetrics | PodMetrics, _now: float) -> str:
        if isinstance(shown, NodeMetrics):
            return shown.usage.get(resource, "")
        unit = "n" if resource == "cpu" else "Ki"
        whole = sum(int(one.usage.get(resource, "0").removesuffix(unit)) for one in shown.containers)
        return f"{whole}{unit}"

    return Column(name=resource, format="quantity", description=f"The {resource} in use", cell=cell)


_COLUMNS = (
    NAME_COLUMN,
    _cell_of("cpu"),
    _cell_of("memory"),
    Column(
        name="Window",
        format="duration",
        description="The time over which the cpu was measured",
        cell=lambda shown, _now: shown.window,
    ),
)


def _kind(type_: type[ApiObject], plural: str, *, namespaced: bool) -> Kind:
    return Kind(
        group=GROUP,
        version=VERSION,
        plural=plural,
        namespaced=namespaced,
        type=type_,
        validate_create=lambda _obj: (),
        validate_update=lambda _new, _old: (),
        columns=_COLUMNS,
        verbs=("get", "list"),
    )


NODE_METRICS = _kind(NodeMetrics, "nodes", namespaced=False)
POD_METRICS = _kind(PodMetrics, "pods", namespaced=True)

"""How fast the allocator is: `python bench/allocator.py` prints a table, `--case NAME ... --json` one JSON line.

Every claim is placed with all nodes considered, and assumed, as a scheduling worker does within a batch. Before the
clock starts claims are made, and but for the `unsat-*` cases, which are measured cold, the first one is placed once (so
that its selectors are compiled and judged). p50 and p99 are microseconds a claim. `trials` counts the devices that were
taken in hand; `peak_mib` is the process's high-water mark; each row of the table has a process of its own.

    unsat-*   one node with 64 devices, and eight requests that cannot be met together
    churn     the cluster is 85% full; each step releases one claim and places one of six shapes
    refused   no node has what is asked for; every claim is new, and is told why; `-in-turn`: of eight shapes

Budgets are claims a second on one core; compare with `cpu`, the rate by the process's own time, on a busy machine.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import resource
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from cases.demands import CASES, DRIVER, Case, Json, cel, match, plain
from cases.figures import quantile

from claims.kinds.resource_claims import ResourceClaim
from inventory.kinds.devices import DeviceClass, ResourceSlice
from manciple.wire.codec import decode_value
from scheduling.allocator import Allocated, Inventory, NodePlacement, NodeView, Unallocatable, overall, place
from scheduling.cel import compile_selector

#: The growth rows: nodes of 20 devices.
GROWTH = (500, 1_000, 2_000, 5_000)
#: Share of the devices that are taken before churn begins.
FULL = 0.85
SEED = 20_260_729


class Cluster:
    """An inventory with one pool a node."""

    def __init__(self, case: Case, *, nodes: int, devices: int) -> None:
        self.inventory = Inventory()
        self.size = nodes * devices
        spec = {"selectors": [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]}
        self.inventory.apply_class(decode_value(DeviceClass, {"metadata": {"name": "gpu"}, "spec": spec}))
        self.nodes = tuple(NodeView(f"node-{index:05}", {}) for index in range(nodes))
        for node in self.nodes:
            self._publish(case, node.name, devices)

    def _publish(self, case: Case, node: str, devices: int) -> None:
        listed = [case.device(number) for number in range(devices)]
        parts: list[Json] = [{"devices": listed[at : at + 128]} for at in range(0, devices, 128)]
        counters = case.shared_counters(devices)
        parts += [{"sharedCounters": counters}] if counters else []
        for number, part in enumerate(parts):
            pool = {"name": node, "generation": 1, "resourceSliceCount": len(parts)}
            spec = {"driver": DRIVER, "pool": pool, "nodeName": node, **part}
            published = {"metadata": {"name": f"{node}-{number}"}, "spec": spec}
            self.inventory.apply_slice(decode_value(ResourceSlice, published))

    def place(self, claim: ResourceClaim) -> NodePlacement:
        """Placed, and assumed where there is room."""
        placement = place(self.inventory.snapshot(), (claim,), self.nodes)
        if isinstance(placement.outcome, Allocated):
            self.inventory.assume(((claim.metadata.uid, placement.outcome.results[0]),))
        return placement


class Churn:
    """Each step releases a claim, by chance, and places another."""

    def __init__(self, cluster: Cluster, filling: Sequence[ResourceClaim]) -> None:
        self._cluster = cluster
        self._draw = random.Random(SEED)
        self._held: list[str] = []
        given = 0
        for claim in filling:
            if given >= FULL * cluster.size:
                break
            given += self._place(claim).outcome.trials

    def step(self, claim: ResourceClaim) -> NodePlacement:
        at = self._draw.randrange(len(self._held))
        self._held[at], self._held[-1] = self._held[-1], self._held[at]
        self._cluster.inventory.forget((self._held.pop(),))
        return self._place(claim)

    def _place(self, claim: ResourceClaim) -> NodePlacement:
        placement = self._cluster.place(claim)
        if isinstance(placement.outcome, Allocated):
            self._held.append(claim.metadata.uid)
        return placement


def make_claim(number: int, devices: Json) -> ResourceClaim:
    meta = {"name": f"claim-{number}", "namespace": "default", "uid": f"uid-{number}"}
    made: ResourceClaim = decode_value(ResourceClaim, {"metadata": meta, "spec": {"devices": devices}})
    return made


def run(name: str, *, nodes: int, devices: int, claims: int) -> Json:
    """One case, measured. `cpu_s` is the process's own time."""
    case = CASES[name]
    cluster = Cluster(case, nodes=nodes, devices=devices)
    made = [make_claim(number, case.request(number)) for number in range(claims)]
    step: Callable[[ResourceClaim], NodePlacement] = cluster.place
    if name == "churn":
        filling = [make_claim(claims + number, case.request(number)) for number in range(cluster.size)]
        step = Churn(cluster, filling).step
    elif name.startswith("refused"):
        step = _told_why(cluster)
    elif not name.startswith("unsat"):
        place(cluster.inventory.snapshot(), made[:1], cluster.nodes)
    compile_selector("true")  # the first expression of a process makes the parser
    gc.collect()
    gc.freeze()
    cpu = time.process_time()
    took, placements = _timed(step, made)
    cpu = time.process_time() - cpu
    return {
        "case": name,
        "nodes": nodes,
        "devices": devices,
        "claims": claims,
        "allocated": sum(isinstance(one.outcome, Allocated) for one in placements),
        "seconds": round(sum(took), 4),
        "claims_per_s": round(claims / sum(took)),
        "p50_us": round(quantile(took, 0.5) * 1e6, 1),
        "p99_us": round(quantile(took, 0.99) * 1e6, 1),
        "trials": sum(one.outcome.trials for one in placements),
        "peak_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "cpu_s": cpu,
    }


def _timed(
    step: Callable[[ResourceClaim], NodePlacement], claims: Sequence[ResourceClaim]
) -> tuple[list[float], list[NodePlacement]]:
    took, placements = [], []
    for claim in claims:
        start = time.perf_counter()
        placement = step(claim)
        took.append(time.perf_counter() - start)
        placements.append(placement)
    return took, placements


def _told_why(cluster: Cluster) -> Callable[[ResourceClaim], NodePlacement]:
    """The step of a refused claim, the sentence that a person reads included."""

    def step(claim: ResourceClaim) -> NodePlacement:
        placement = cluster.place(claim)
        assert overall([one for one in placement.refusals.values() if isinstance(one, Unallocatable)]) is not None
        return placement

    return step


def memory(nodes: int, devices: int) -> Json:
    """MiB of an inventory with the indexes of three shapes, of which every device has a serial number of its own."""

    def device(number: int) -> Json:
        made = CASES["plain"].device(number % devices)
        made["attributes"]["uuid"] = {"string": f"GPU-{number:012}"}
        return made

    serial = iter(range(nodes * devices))
    case = Case(request=plain, device=lambda _number: device(next(serial)))
    gc.collect()
    before = _resident()
    tracemalloc.start()
    cluster = Cluster(case, nodes=nodes, devices=devices)
    for number, demand in enumerate((plain, cel, match)):
        cluster.place(make_claim(number, demand(number)))
    gc.collect()
    traced = tracemalloc.get_traced_memory()[0] / 2**20
    tracemalloc.stop()
    return {"devices": nodes * devices, "traced_mib": round(traced), "resident_before_mib": round(before)}


def first_look(nodes: int, pools: int) -> Json:
    """Seconds of CPU until the first claim is placed and until the next after a slice was published, where the pools
    are not of one node: they select nodes by zone, one of ten, or by a rack of five nodes, or are for all nodes.
    """
    views = tuple(
        NodeView(f"node-{at:05}", {"zone": f"z-{at % 10}", "rack": f"r-{at // 5}", "kubernetes.io/os": "linux"})
        for at in range(nodes)
    )
    found: Json = {"nodes": nodes, "pools": pools}
    kinds: dict[str, Callable[[int], Json]] = {
        "zone": lambda number: _selecting("zone", f"z-{number % 10}"),
        "rack": lambda number: _selecting("rack", f"r-{number % (nodes // 5)}"),
        "all": lambda _number: {"allNodes": True},
    }
    for name, where in kinds.items():
        inventory = Inventory()
        inventory.apply_class(decode_value(DeviceClass, {"metadata": {"name": "gpu"}, "spec": {}}))
        for number in range(pools):
            _publish_for(inventory, number, where(number))
        for moment in ("first", "next"):
            claim = make_claim(number, CASES["plain"].request(0))
            began = time.process_time()
            placement = place(inventory.snapshot(), (claim,), views)
            found[f"{name}_{moment}_s"] = round(time.process_time() - began, 3)
            assert isinstance(placement.outcome, Allocated)
            _publish_for(inventory, pools, where(0))
    return found


def _publish_for(inventory: Inventory, number: int, where: Json) -> None:
    pool = {"name": f"pool-{number}", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "pool": pool, "devices": [CASES["plain"].device(at) for at in range(2)], **where}
    inventory.apply_slice(decode_value(ResourceSlice, {"metadata": {"name": f"slice-{number}"}, "spec": spec}))


def _selecting(label: str, value: str) -> Json:
    expressions = [{"key": label, "operator": "In", "values": [value]}]
    return {"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": expressions}]}}


def _resident() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20


# The table -----------------------------------------------------------------------------------------------------------

COLUMNS = ("claims_per_s", "p50_us", "p99_us", "trials", "allocated", "peak_mib")


def table() -> None:
    """Every case at its own size, some with 1,000 claims, growth, and memory."""
    head = " ".join(f"{column:>12}" for column in COLUMNS)
    print(f"{'case':<16} {'nodes':>6} {'dev':>4} {'claims':>6} {head} {'cpu':>9} {'budget':>8}")
    for name in ("plain", "cel", "match"):
        _row(name, nodes=500, devices=10, claims=1_000)
    for name, case in CASES.items():
        _row(name, nodes=case.nodes, devices=case.devices, claims=case.claims, budget=case.budget)
    for nodes in GROWTH:
        _row("plain", nodes=nodes, devices=20, claims=5_000, budget=20_000 if nodes == GROWTH[-1] else 0)
    taken = _apart("--memory", "--nodes", "5000", "--devices", "20")
    print(f"inventory of {taken['devices']:,} devices, indexes included: {taken['traced_mib']} MiB (budget 256)")
    looked = _apart("--first-look")
    print(f"first look at {looked['pools']:,} pools by {looked['nodes']} nodes, s: ", end="")
    print(", ".join(f"{kind} {looked[f'{kind}_first_s']}" for kind in ("zone", "rack", "all")), "(budget 1)")


def _row(name: str, *, nodes: int, devices: int, claims: int, budget: int = 0) -> None:
    sizes = ("--nodes", str(nodes), "--devices", str(devices), "--claims", str(claims))
    row = _apart("--case", name, *sizes, "--with-cpu")
    cells = " ".join(f"{row[column]:>12,}" for column in COLUMNS)
    cpu = round(claims / row["cpu_s"])
    print(f"{name:<16} {nodes:>6} {devices:>4} {claims:>6} {cells} {cpu:>9,} {budget or '':>8}", flush=True)


def _apart(*arguments: str) -> Json:
    """The figures of one process."""
    command = [sys.executable, __file__, *arguments, "--json"]
    found: Json = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", choices=tuple(CASES))
    parser.add_argument("--nodes", type=int)
    parser.add_argument("--devices", type=int, help="devices a node")
    parser.add_argument("--claims", type=int)
    parser.add_argument("--json", action="store_true", help="one JSON line")
    parser.add_argument("--with-cpu", action="store_true", help="add cpu_s, the seconds of the process's own time")
    parser.add_argument("--memory", action="store_true", help="what an inventory takes, instead of a case")
    parser.add_argument("--first-look", action="store_true", help="pools that are not of one node, instead of a case")
    parser.add_argument("--pools", type=int, default=2_000, help="of --first-look")
    options = parser.parse_args()
    if options.first_look:
        result = first_look(options.nodes or 100, options.pools)
    elif options.memory:
        result = memory(options.nodes or 5_000, options.devices or 20)
    elif options.case is None:
        table()
        return
    else:
        case = CASES[options.case]
        result = run(
            options.case,
            nodes=options.nodes or case.nodes,
            devices=options.devices or case.devices,
            claims=options.claims or case.claims,
        )
        if not options.with_cpu:
            del result["cpu_s"]
    print(json.dumps(result) if options.json else "\n".join(f"{key:<20} {value}" for key, value in result.items()))


if __name__ == "__main__":
    main()

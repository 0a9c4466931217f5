"""Limits, recomputed from the objects that the API serves and from nothing else.

    reader = Reader(client)
    oracle = Oracle(reader)
    oracle.look()        # every second or two; `wrong` has a sentence for each limit that was exceeded

Nothing of the product is imported here, and no sum that it keeps is believed: what a node runs, what a device gives
away and what a quota counts is added up from pods, claims and slices, in the plainest way. One figure of the product is
needed, the `used` of a ResourceQuota, because it is what is checked.

A look reads every kind as of one revision: a continue token names its revision and the key after which the page begins,
so a token that is made up from the newest revision and the empty key lists any kind as of that revision. Any revision
that the log still has can be read this way, so a limit that is exceeded at a look is traced to the write that exceeded
it. Only writes that give something count: a limit that is lowered below what is in use (a smaller quota, a driver that
publishes less) is no violation, until something more is given; nor is a pod that its user binds to a full node.

What a driver no longer publishes has no definition to look up. So the oracle remembers of every device what it draws
from counters, and of every limit its last value.
"""

from __future__ import annotations

import base64
import json
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

Document = dict[str, Any]
#: What has a limit: ("node", "node-1", "cpu"), ("counter", driver, pool, set, counter), ...
Key = tuple[str, ...]

KINDS = {
    "pods": "/api/v1/pods",
    "nodes": "/api/v1/nodes",
    "quotas": "/api/v1/resourcequotas",
    "claims": "/apis/resource.k8s.io/v1/resourceclaims",
    "slices": "/apis/resource.k8s.io/v1/resourceslices",
    "classes": "/apis/resource.k8s.io/v1/deviceclasses",
}
#: Limits that may come after what they limit: a new quota, a node that registers again.
LATE = ("quota", "node")
#: Seconds within which controllers bring right what no transaction keeps.
GRACE = 45.0
MOST_CONSUMERS, ALL_DEVICES = 256, 32
ENDED = ("Succeeded", "Failed")
_SUFFIXES = {
    **{"": 1, "n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000)},
    **{letter: 1000**power for power, letter in enumerate("kMGTPE", 1)},
    **{f"{letter}i": 1024**power for power, letter in enumerate("KMGTPE", 1)},
}


def quantity(text: object) -> Fraction:
    """Of `100m`, `2Gi`, `1e3`."""
    written = str(text)
    digits = written.rstrip("numkKMGTPEi")
    if digits and digits != written:
        return Fraction(digits) * Fraction(_SUFFIXES[written[len(digits) :]])
    return Fraction(written)


# Reading --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class State:
    """All objects as of one revision."""

    revision: int
    kinds: Mapping[str, list[Document]]

    def __getitem__(self, kind: str) -> list[Document]:
        return self.kinds[kind]


#: (path, parameters) -> the answer's document; None where there is none
Ask = Callable[[str, Mapping[str, str]], Document | None]


class Reader:
    """Reads the state as of a revision, through the API."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    def newest(self) -> State | None:
        """None where nobody answers now."""
        page = self._ask("/api/v1/namespaces", {"limit": "1"})
        return self.as_of(int(page["metadata"]["resourceVersion"])) if page else None

    def as_of(self, revision: int) -> State | None:
        kinds = {}
        for name, path in KINDS.items():
            items = self._items(path, revision)
            if items is None:
                return None
            kinds[name] = items
        return State(revision, kinds)

    def _items(self, path: str, revision: int) -> list[Document] | None:
        token = json.dumps([revision, "", "", 1]).encode()
        following, items = base64.urlsafe_b64encode(token).decode().rstrip("="), list[Document]()
        while following:
            page = self._ask(path, {"limit": "500", "continue": following})
            if page is None:
                return None
            items += page["items"]
            following = page["metadata"].get("continue", "")
        return items


# Adding up ------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Sum:
    """What is in use, of how much; None where there is no limit (any more). by: who uses it.

    by_hand: what pods use that their users bound to a node. The node may refuse them, and nobody gave them anything.
    """

    used: Fraction = Fraction(0)
    limit: Fraction | None = None
    by: list[str] = field(default_factory=list)
    by_hand: Fraction = Fraction(0)

    @property
    def exceeded(self) -> bool:
        return self.limit is not None and self.used > self.limit

    @property
    def given(self) -> Fraction:
        return self.used - self.by_hand


@dataclass
class Memory:
    """What was published once. draws: (driver, pool, device) -> {(set, counter): amount}."""

    draws: dict[tuple[str, str, str], dict[tuple[str, str], Fraction]] = field(default_factory=dict)
    limits: dict[Key, Fraction] = field(default_factory=dict)

    def learn(self, state: State) -> None:
        for one in state["slices"]:
            driver, pool = one["spec"]["driver"], one["spec"]["pool"]["name"]
            for device in one["spec"].get("devices", ()):
                drawn = {
                    (part["counterSet"], counter): quantity(amount["value"])
                    for part in device.get("consumesCounters", ())
                    for counter, amount in part.get("counters", {}).items()
                }
                self.draws.setdefault((driver, pool, device["name"]), drawn)


def name_of(obj: Document) -> str:
    meta = obj["metadata"]
    return "/".join(filter(None, (meta.get("namespace", ""), meta["name"])))


def results_of(claim: Document) -> list[Document]:
    found = claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results", ())
    return [one for one in found if not one.get("adminAccess")]


def sums_of(state: State, memory: Memory) -> dict[Key, Sum]:
    """Everything that has a limit."""
    found: dict[Key, Sum] = defaultdict(Sum)
    _add_devices(state, memory, found)
    _add_nodes(state, found)
    for quota in state["quotas"]:
        used = quota.get("status", {}).get("used", {})
        for key, hard in quota.get("status", {}).get("hard", {}).items():
            if key in used:  # a new quota of much that is there is counted later, and refuses everything till then
                found["quota", name_of(quota), key] = Sum(quantity(used[key]), quantity(hard))
    for claim in state["claims"]:
        consumers = claim.get("status", {}).get("reservedFor", ())
        found["consumers", name_of(claim)] = Sum(Fraction(len(consumers)), Fraction(MOST_CONSUMERS))
    return found


def _add_devices(state: State, memory: Memory, found: dict[Key, Sum]) -> None:
    homes = _homes(state)
    drawing: dict[Key, dict[str, Fraction]] = defaultdict(dict)
    for claim in state["claims"]:
        node = _node_of(claim) if results_of(claim) else ""
        for one in results_of(claim):
            # Pools of one name on several nodes are several pools.
            several = len(homes.get((one["driver"], one["pool"]), ())) > 1
            place = (one["driver"], one["pool"], node if several else "", one["device"])
            held = found["device", *place]
            held.limit = Fraction(1)
            if not one.get("shareID"):
                held.used += 1
            elif not any(holder.endswith("(shared)") for holder in held.by):
                held.used += 1  # all sharers together are one
            held.by.append(name_of(claim) + (" (shared)" if one.get("shareID") else ""))
            for capacity, amount in one.get("consumedCapacity", {}).items():
                consumed = found["capacity", *place, capacity]
                consumed.used += quantity(amount)
                consumed.by.append(name_of(claim))
            draws = memory.draws.get((one["driver"], one["pool"], one["device"]), {})
            for (counters, counter), amount in draws.items():
                drawing["counter", *place[:3], counters, counter][f"{one['device']} of {name_of(claim)}"] = amount
    for key, amounts in drawing.items():
        devices = {holder.partition(" of ")[0]: amount for holder, amount in amounts.items()}  # sharers draw once
        found[key].used, found[key].by = sum(devices.values(), Fraction(0)), sorted(amounts)
    for key, limit in _published_limits(state, homes):
        memory.limits[key] = limit
        if key in found:
            found[key].limit = limit
    for key, drawn in found.items():
        if drawn.limit is None and key[0] in ("capacity", "counter"):
            drawn.limit = memory.limits.get(key)


def _homes(state: State) -> dict[tuple[str, str], set[str]]:
    """Which nodes publish a pool of that name."""
    homes: dict[tuple[str, str], set[str]] = defaultdict(set)
    for one in state["slices"]:
        homes[one["spec"]["driver"], one["spec"]["pool"]["name"]].add(one["spec"].get("nodeName", ""))
    return homes


def _published_limits(state: State, homes: Mapping[tuple[str, str], set[str]]) -> Iterator[tuple[Key, Fraction]]:
    """Of the newest generation of each pool."""
    newest: dict[tuple[str, str, str], int] = defaultdict(int)

    def place(spec: Document) -> tuple[str, str, str]:
        driver, pool = spec["driver"], spec["pool"]["name"]
        return driver, pool, spec.get("nodeName", "") if len(homes[driver, pool]) > 1 else ""

    for one in state["slices"]:
        spec = one["spec"]
        newest[place(spec)] = max(newest[place(spec)], spec["pool"].get("generation", 0))
    for one in state["slices"]:
        spec = one["spec"]
        if spec["pool"].get("generation", 0) != newest[place(spec)]:
            continue
        for device in spec.get("devices", ()):
            for name, capacity in device.get("capacity", {}).items():
                yield ("capacity", *place(spec), device["name"], name), quantity(capacity["value"])
        for counters in spec.get("sharedCounters", ()):
            for counter, amount in counters.get("counters", {}).items():
                yield ("counter", *place(spec), counters["name"], counter), quantity(amount["value"])


def _node_of(claim: Document) -> str:
    terms = claim["status"]["allocation"].get("nodeSelector", {}).get("nodeSelectorTerms", ())
    for term in terms:
        for one in (*term.get("matchFields", ()), *term.get("matchExpressions", ())):
            if one["key"] in ("metadata.name", "kubernetes.io/hostname") and len(one.get("values", ())) == 1:
                return str(one["values"][0])
    return ""


def _add_nodes(state: State, found: dict[Key, Sum]) -> None:
    allocatable = {one["metadata"]["name"]: one.get("status", {}).get("allocatable", {}) for one in state["nodes"]}
    for node, amounts in allocatable.items():
        for resource, amount in amounts.items():
            found["node", node, resource].limit = quantity(amount)
    for pod in state["pods"]:
        node = pod["spec"].get("nodeName", "")
        if not node or is_done(pod) or node not in allocatable:
            continue
        for resource, amount in {**requests_of(pod, allocated=True), "pods": Fraction(1)}.items():
            if resource in allocatable[node]:
                taken = found["node", node, resource]
                taken.used += amount
                taken.by.append(name_of(pod))
                if not is_scheduled(pod):
                    taken.by_hand += amount


def is_done(pod: Document) -> bool:
    return pod.get("status", {}).get("phase", "") in ENDED


def is_scheduled(pod: Document) -> bool:
    """Whether it got its node after its creation."""
    conditions = pod.get("status", {}).get("conditions", ())
    return any(one["type"] == "PodScheduled" and one["status"] == "True" for one in conditions)


def requests_of(pod: Document, which: str = "requests", *, allocated: bool = False) -> dict[str, Fraction]:
    """What a pod asks for: the larger of what its containers need together and what an init container needs; what is
    said for the pod as a whole counts instead. allocated: what its node has given it, if its status says so."""
    told = {one["name"]: one for one in pod.get("status", {}).get("containerStatuses", ())} if allocated else {}
    total: dict[str, Fraction] = defaultdict(Fraction)
    for container in pod["spec"].get("containers", ()):
        for resource, amount in _amounts_of(container, which, told.get(container["name"], {})).items():
            total[resource] += amount
    sidecars: dict[str, Fraction] = defaultdict(Fraction)
    before: dict[str, Fraction] = defaultdict(Fraction)
    for container in pod["spec"].get("initContainers", ()):
        own = _amounts_of(container, which, {})
        lasting = container.get("restartPolicy") == "Always"
        for resource, amount in own.items():
            if lasting:
                sidecars[resource] += amount
                total[resource] += amount
            needed = sidecars[resource] + (0 if lasting else amount)
            before[resource] = max(before[resource], needed)
        for resource in sidecars.keys() - own.keys():
            before[resource] = max(before[resource], sidecars[resource])
    for resource, amount in before.items():
        total[resource] = max(total[resource], amount)
    whole = pod["spec"].get("resources", {})
    for resource, amount in {**whole.get("limits", {}), **whole.get(which, {})}.items():
        if which in whole and resource not in whole[which]:
            continue  # a limit is a request only where no request is written; the API writes it then
        total[resource] = quantity(amount)
    for resource, amount in pod["spec"].get("overhead", {}).items():
        total[resource] += quantity(amount)
    return dict(total)


def _amounts_of(container: Document, which: str, told: Document) -> dict[str, Fraction]:
    written = container.get("resources", {}).get(which, {})
    given = told.get("allocatedResources") if which == "requests" else None
    return {resource: quantity(amount) for resource, amount in (given or written).items()}


# Counting again -------------------------------------------------------------------------------------------------------


def miscounts(state: State) -> Iterator[str]:
    """Quotas that tell something else than their namespace's objects add up to."""
    extended = {
        one["metadata"]["name"]: one["spec"]["extendedResourceName"]
        for one in state["classes"]
        if one["spec"].get("extendedResourceName")
    }
    for quota in state["quotas"]:
        namespace, status = quota["metadata"]["namespace"], quota.get("status", {})
        pods = [one for one in state["pods"] if one["metadata"]["namespace"] == namespace and in_scope(quota, one)]
        claims = [one for one in state["claims"] if one["metadata"]["namespace"] == namespace]
        scoped = bool(quota["spec"].get("scopes") or quota["spec"].get("scopeSelector"))
        for key, used in status.get("used", {}).items():
            counted = _counted(key, pods, [] if scoped else claims, extended)
            if counted is not None and counted != quantity(used):
                yield f"quota {name_of(quota)} tells {key}={used}, and {_shown(counted)} is used"


def in_scope(quota: Document, pod: Document) -> bool:
    for scope in quota["spec"].get("scopes", ()):
        ends = pod["spec"].get("activeDeadlineSeconds") is not None
        asks_nothing = not _asks(pod)
        fits = {"Terminating": ends, "NotTerminating": not ends, "BestEffort": asks_nothing}
        if not fits.get(scope, not asks_nothing):
            return False
    return True


def _asks(pod: Document) -> bool:
    """For processors or memory."""
    asked = (requests_of(pod), requests_of(pod, "limits"))
    return any(amounts.get(resource) for amounts in asked for resource in ("cpu", "memory"))


def _counted(key: str, pods: list[Document], claims: list[Document], extended: Mapping[str, str]) -> Fraction | None:
    """None for keys that are not counted again here."""
    if key == "count/pods":
        return Fraction(len(pods))
    if key == "count/resourceclaims.resource.k8s.io":
        return Fraction(len(claims))
    charged = [one for one in pods if not is_done(one) and not _is_overdue(one)]
    if key == "pods":
        return Fraction(len(charged))
    if key.endswith(".deviceclass.resource.k8s.io/devices"):
        name = key.partition(".deviceclass.resource.k8s.io/")[0]
        return Fraction(sum(devices_asked(one).get(name, 0) for one in claims))
    which, _, resource = key.partition(".")
    if which not in ("requests", "limits"):
        which, resource = "requests", key
    counted = sum((_charge(one, which).get(resource, Fraction(0)) for one in charged), Fraction(0))
    classes = [name for name, served in extended.items() if served == resource]
    if which == "requests" and classes:
        by_uid = {one["metadata"]["uid"]: one for one in charged}
        for claim in claims:
            devices = sum(devices_asked(claim).get(name, 0) for name in classes)
            pod = _pod_of_extended_resources(claim, by_uid)
            counted += max(0, devices - (requests_of(pod).get(resource, 0) if pod else 0))
    return counted


def _charge(pod: Document, which: str) -> dict[str, Fraction]:
    """While a pod is being resized, the larger of what it has and what it asks for."""
    asked, given = requests_of(pod, which), requests_of(pod, which, allocated=True)
    return {
        resource: max(asked.get(resource, Fraction(0)), given.get(resource, Fraction(0))) for resource in asked | given
    }


def _is_overdue(pod: Document) -> bool:
    conditions = pod.get("status", {}).get("conditions", ())
    return "deletionTimestamp" in pod["metadata"] and any(
        one["type"] == "manciple.dev/Overdue" and one["status"] == "True" for one in conditions
    )


def devices_asked(claim: Document) -> Counter[str]:
    """By class, at most: of alternatives the worst for each class."""
    total: Counter[str] = Counter()
    for request in claim["spec"].get("devices", {}).get("requests", ()):
        worst: Counter[str] = Counter()
        for one in request.get("firstAvailable", ()) or [request.get("exactly", {})]:
            count = ALL_DEVICES if one.get("allocationMode") == "All" else int(one.get("count", 1))
            worst[one.get("deviceClassName", "")] = max(worst[one.get("deviceClassName", "")], count)
        total += worst
    return total


def _pod_of_extended_resources(claim: Document, pods: Mapping[str, Document]) -> Document | None:
    """The pod whose status names the claim as the one for its extended resources, or for which it was just made."""
    meta = claim["metadata"]
    for owner in meta.get("ownerReferences", ()):
        pod = pods.get(owner["uid"])
        if pod is not None and owner.get("controller"):
            named = pod.get("status", {}).get("extendedResourceClaimStatus", {}).get("resourceClaimName", "")
            if named == meta["name"]:
                return pod
    return None


# Holders --------------------------------------------------------------------------------------------------------------


def misfits(state: State) -> Iterator[str]:
    """Pods that a scheduler gave a node without the claims that they use; claims that are held for nobody there is."""
    claims = {name_of(one): one for one in state["claims"]}
    for pod in state["pods"]:
        if not pod["spec"].get("nodeName") or is_done(pod) or not is_scheduled(pod):
            continue
        made = {one["name"]: one.get("resourceClaimName") for one in pod["status"].get("resourceClaimStatuses", ())}
        for entry in pod["spec"].get("resourceClaims", ()):
            name = entry.get("resourceClaimName") or made.get(entry["name"])
            claim = claims.get(f"{pod['metadata']['namespace']}/{name}")
            if name and (why := _unfit(claim, pod)):
                yield f"pod {name_of(pod)} on {pod['spec']['nodeName']}: claim {name} {why}"


def _unfit(claim: Document | None, pod: Document) -> str:
    if claim is None:
        return "does not exist"
    status = claim.get("status", {})
    if "allocation" not in status:
        return "is not allocated"
    if pod["metadata"]["uid"] not in {one["uid"] for one in status.get("reservedFor", ())}:
        return "is not reserved for it"
    node = _node_of(claim)
    return "" if node in ("", pod["spec"]["nodeName"]) else f"is on {node}"


# Judging --------------------------------------------------------------------------------------------------------------


class Oracle:
    """Looks again and again. wrong: what was exceeded, in words; looks: how often it saw everything."""

    def __init__(self, reader: Reader, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._reader, self._clock = reader, clock
        self._memory = Memory()
        self._before: State | None = None
        self._sums: dict[Key, Sum] = {}
        #: what no transaction keeps -> since when it is so
        self._odd: dict[str, float] = {}
        self.wrong: list[str] = []
        self.looks = 0
        #: kind of limit -> how many are in use at most, and how often one was full
        self.most: Counter[str] = Counter()
        self.full: Counter[str] = Counter()
        self._guard = threading.Lock()

    def look(self) -> bool:
        """Whether everything was read."""
        with self._guard:
            state = self._reader.newest()
            if state is None or (self._before is not None and state.revision < self._before.revision):
                return False
            self.judge(state)
            return True

    def judge(self, state: State) -> None:
        self._memory.learn(state)
        sums = sums_of(state, self._memory)
        for key, one in sums.items():
            known = self._sums.get(key)
            if one.exceeded and (known is None or one.used > known.used):
                self._trace(key, one, known, state)
        self._note_odd([*miscounts(state), *misfits(state)])
        kinds = Counter(key[0] for key, one in sums.items() if one.used)
        self.most |= kinds
        self.full += Counter(key[0] for key, one in sums.items() if one.limit and one.used == one.limit)
        self._before, self._sums, self.looks = state, sums, self.looks + 1

    def _note_odd(self, seen: Iterable[str]) -> None:
        now, seen = self._clock(), set(seen)
        self._odd = {one: self._odd.get(one, now) for one in seen}
        for one, since in self._odd.items():
            if now - since > GRACE:
                self.wrong.append(f"for {now - since:.0f} s: {one}")
                self._odd[one] = float("inf")  # said once

    def _trace(self, key: Key, now: Sum, known: Sum | None, state: State) -> None:
        """Find the write that exceeded the limit. Where what is in use did not grow by it, nothing is wrong."""
        low = self._before.revision if self._before is not None else state.revision - 1
        base, high = known.used if known and known.exceeded else Fraction(-1), state.revision
        below = known or Sum()
        while base < now.used:
            step = self._first_above(key, base, low, high, below)
            if step is None:
                return  # the log does not have it any more, or nobody answers
            revision, before, after = step
            limited = before.limit is not None or key[0] not in LATE
            if limited and after.given > before.given:
                self.wrong.append(
                    f"{' '.join(key)} at revision {revision}: {_shown(after.used)} of {_shown(after.limit)} "
                    f"in use (before: {_shown(before.used)} of {_shown(before.limit)}), by {', '.join(after.by)}"
                )
                return
            base, low, below = after.used, revision, after

    def _first_above(self, key: Key, base: Fraction, low: int, high: int, below: Sum) -> tuple[int, Sum, Sum] | None:
        """The first revision in (low, high] at which more than the limit and than `base` is in use, and the sums before
        and then. below: the sum at `low`."""
        above = Sum()
        while high - low > 1 or not above.used:
            middle = (low + high) // 2 if high - low > 1 else high
            state = self._reader.as_of(middle)
            if state is None:
                return None
            one = sums_of(state, self._memory).get(key, Sum())
            if one.exceeded and one.used > base:
                high, above = middle, one
            elif middle == high:
                return None
            else:
                low, below = middle, one
        return high, below, above


def _shown(amount: Fraction | None) -> str:
    if amount is None:
        return "unlimited"
    return str(amount.numerator) if amount.denominator == 1 else f"{float(amount):g}"

"""Whether the cluster's parts are healthy, in one line each; and of each that needs attention, what to do. Pure.

What is read for it is gathered in `dashboard.capacity.overview.signs`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from dashboard.inventory.incidents import OpenIncidents
from dashboard.kit import links
from manciple.durations import clock, duration

OK, WARN, ERR = "ok", "warn", "err"
#: Of many things in the same trouble, so many are named.
NAMED = 3
#: Celery beat asks for a sample of usage now and then; one that is later than this is missed.
LATE = timedelta(minutes=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Warning:
    """What is wrong, as a sentence, and what to do about it."""

    what: str
    step: str
    url: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthLine:
    """One part. note: how we know; value: in a word or a number."""

    name: str
    note: str
    value: str = ""
    url: str = ""
    severity: str = OK
    troubles: tuple[Warning, ...] = ()

    @property
    def mark(self) -> str:
        return {OK: "✓", WARN: "!", ERR: "×"}[self.severity]  # noqa: RUF001 - the sign is meant

    @property
    def word(self) -> str:
        """The mark, for who cannot see it."""
        return {OK: "Healthy", WARN: "Needs attention", ERR: "Broken"}[self.severity]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSign:
    """heard: when its agent was last heard of, None where that is not known."""

    name: str
    ready: bool
    heard: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortPool:
    """A pool that is not whole. changed: when one of its slices last came, changed or went."""

    driver: str
    name: str
    node: str
    expected: int
    seen: int
    devices: int
    changed: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverSign:
    name: str
    pools: int
    short: tuple[ShortPool, ...] = ()
    unhealthy: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSign:
    """A process that runs tasks; what it did in the minute before it was seen."""

    name: str
    seen: datetime
    tasks: int = 0
    failed: int = 0
    attempts: int = 0
    placed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSign:
    """The pods in the queue that the person sees; oldest: since when the first of them waits."""

    length: int = 0
    oldest: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthSigns:
    """Everything that the lines are made of. whole: the person sees the queue and the rates of all namespaces."""

    now: datetime
    nodes: Sequence[NodeSign] = ()
    drivers: Sequence[DriverSign] = ()
    processes: Sequence[ProcessSign] = ()
    queue: QueueSign = field(default_factory=QueueSign)
    incidents: OpenIncidents = field(default_factory=OpenIncidents)
    sampled: datetime | None = None
    sampled_every: timedelta = timedelta(minutes=1)
    silent_after: timedelta = timedelta(seconds=30)
    revision: int = 0
    floor: int = 0
    database: str = ""
    log_bytes: int = 0
    database_size: int = 0
    database_limit: int | None = None  # bytes; None where none is known
    database_nearly_full: bool = False
    database_full: bool = False
    ping: float = 0.0  # seconds
    whole: bool = True


def lines(signs: HealthSigns) -> list[HealthLine]:
    """All lines, in the order of a request's way: from the machines to the database."""
    found = [_agents(signs)] if signs.nodes else []
    found += [_driver(driver, signs.now) for driver in signs.drivers]
    if signs.drivers:
        found.append(_incidents(signs))
    return [*found, _scheduler(signs), _workers(signs), _beat(signs), _log(signs), _database(signs)]


def needing_attention(found: Iterable[HealthLine]) -> int:
    return sum(line.severity != OK for line in found)


# Machines ------------------------------------------------------------------------------------------------------------


def _agents(signs: HealthSigns) -> HealthLine:
    ready = [node for node in signs.nodes if node.ready]
    ages = [signs.now - node.heard for node in ready if node.heard]
    away = [node for node in signs.nodes if not node.ready]
    note = f"each reported in the last {duration(max(ages).total_seconds() + 1)}" if ages else "none has reported yet"
    troubles = [_away(node, signs.now) for node in away[:NAMED]]
    if len(away) > NAMED:
        rest = f"{len(away) - NAMED} more nodes are not Ready."
        troubles.append(Warning(what=rest, step="The list of nodes names them.", url="/nodes?state=NotReady"))
    return HealthLine(
        name="Node agents",
        note=note,
        value=f"{len(ready)} of {len(signs.nodes)}",
        url="/nodes",
        severity=ERR if len(away) == len(signs.nodes) else WARN if away else OK,
        troubles=tuple(troubles),
    )


def _away(node: NodeSign, now: datetime) -> Warning:
    url = links.node_url(node.name)
    if node.heard and now - node.heard < timedelta(seconds=40):
        what = f"Node `{node.name}` reports that it is not Ready."
        return Warning(what=what, step="Its conditions say why.", url=url)
    heard = f"was last heard of {duration((now - node.heard).total_seconds())} ago" if node.heard else "is silent"
    return Warning(
        what=f"Node `{node.name}` {heard}.",
        step="Start its agent on that machine, or see why it cannot reach the API.",
        url=url,
    )


def _driver(driver: DriverSign, now: datetime) -> HealthLine:
    whole = driver.pools - len(driver.short)
    troubles = [_short(pool, now) for pool in driver.short[:NAMED]]
    if len(driver.short) > NAMED:
        rest = f"{len(driver.short) - NAMED} more of its pools are incomplete."
        troubles.append(Warning(what=rest, step="The driver's page names them.", url=links.driver_url(driver.name)))
    if driver.unhealthy:
        what = "1 device is unhealthy" if driver.unhealthy == 1 else f"{driver.unhealthy} devices are unhealthy"
        troubles.append(
            Warning(what=f"It says that {what}.", step="See which, and who holds them.", url="/devices?state=bad")
        )
    return HealthLine(
        name=f"Driver {driver.name}",
        note="every pool is complete" if not driver.short else "some pools are incomplete",
        value=f"{whole} of {driver.pools}",
        url=links.driver_url(driver.name),
        severity=WARN if troubles else OK,
        troubles=tuple(troubles),
    )


def _short(pool: ShortPool, now: datetime) -> Warning:
    missing = pool.expected - pool.seen
    devices = "its device is" if pool.devices == 1 else f"its {pool.devices} devices are"
    if missing > 0:
        count = "a slice" if missing == 1 else f"{missing} slices"
        what = f"Pool `{pool.name}` is {count} short; {devices} not allocatable."
    else:
        what = f"Pool `{pool.name}` has {-missing} more slices than it announces; {devices} not allocatable."
    if pool.changed:
        what += f" Its slices last changed at {clock(pool.changed, now=now)}."
    where = f" on {pool.node}" if pool.node else ""
    step = f"See what the driver published{where}; only its own log, there, says why it stopped."
    return Warning(what=what, step=step, url=links.node_url(pool.node) if pool.node else links.driver_url(pool.driver))


# Processes -----------------------------------------------------------------------------------------------------------


def _alive(signs: HealthSigns) -> list[ProcessSign]:
    return [one for one in signs.processes if signs.now - one.seen <= signs.silent_after]


def _scheduler(signs: HealthSigns) -> HealthLine:
    alive, queue = _alive(signs), signs.queue
    troubles = []
    if not alive:
        last = max((one.seen for one in signs.processes), default=None)
        since = f" since {clock(last, now=signs.now)}" if last else ""
        troubles.append(
            Warning(
                what=f"No worker has processed the queue{since}, so no pod is placed.",
                step="Start a worker: `celery -A manciple worker`.",
            )
        )
    placed, attempts = sum(one.placed for one in alive), sum(one.attempts for one in alive)
    waiting = f"queue {queue.length}"
    if queue.oldest:
        waiting += f", oldest {duration((signs.now - queue.oldest).total_seconds())}"
    rates = f"{attempts} attempt{'' if attempts == 1 else 's'} in the last minute, " if signs.whole else ""
    return HealthLine(
        name="Scheduler",
        note=f"{rates}{waiting}",
        value=f"{placed}/min" if signs.whole else "",
        severity=OK if alive else ERR,
        troubles=tuple(troubles),
    )


def _workers(signs: HealthSigns) -> HealthLine:
    alive = _alive(signs)
    troubles = [
        Warning(
            what=f"Process `{one.name}` was last seen {duration((signs.now - one.seen).total_seconds())} ago.",
            step="If it was not stopped on purpose, start it again. It is forgotten after 10 min.",
        )
        for one in signs.processes
        if one not in alive
    ]
    failed = sum(one.failed for one in alive)
    if failed:
        what = "1 task failed" if failed == 1 else f"{failed} tasks failed"
        troubles.append(Warning(what=f"{what} in the last minute.", step="The log of the worker says why."))
    seen = [f"{one.name} seen {duration((signs.now - one.seen).total_seconds())} ago" for one in alive]
    more = f", and {len(seen) - NAMED} more" if len(seen) > NAMED else ""
    return HealthLine(
        name="Workers",
        note=", ".join(seen[:NAMED]) + more if seen else "none is running",
        value=f"{len(alive)} of {len(signs.processes)}" if signs.processes else "0",
        severity=ERR if not alive else WARN if troubles else OK,
        troubles=tuple(troubles),
    )


def _beat(signs: HealthSigns) -> HealthLine:
    """The clock is seen by what only it asks for: the samples of usage."""
    late = signs.sampled is not None and signs.now - signs.sampled > signs.sampled_every + LATE
    trouble = Warning(
        what=f"Periodic tasks have not started on time since {clock(signs.sampled, now=signs.now)}.",
        step="Start celery beat: `celery -A manciple beat`. Until then only events trigger work.",
    )
    last = f"last sample {clock(signs.sampled, now=signs.now)}" if signs.sampled else "no sample yet"
    return HealthLine(
        name="Periodic tasks",
        note=last,
        severity=WARN if late else OK,
        value="late" if late else "on time" if signs.sampled else "",
        troubles=(trouble,) if late else (),
    )


def _incidents(signs: HealthSigns) -> HealthLine:
    """What goes on; that nobody has seen to it asks for somebody."""
    found = signs.incidents
    since = f", the first since {clock(found.since, now=signs.now)}" if found.since else ""
    return HealthLine(
        name="Incidents",
        note=f"{found.unseen} not acknowledged{since}"
        if found.unseen
        else "each is acknowledged"
        if found.total
        else "no device is out of service",
        value=f"{found.total} open",
        url="/incidents",
        severity=WARN if found.unseen else OK,
    )


# Data ----------------------------------------------------------------------------------------------------------------


def _log(signs: HealthSigns) -> HealthLine:
    return HealthLine(
        name="Event log",
        note=(f"reaches back to revision {signs.floor:,}" if signs.floor else "complete, nothing is pruned")
        + (f", {size(signs.log_bytes)}" if signs.log_bytes else ""),
        value=f"revision {signs.revision:,}",
    )


def _database(signs: HealthSigns) -> HealthLine:
    used, limit = signs.database_size, signs.database_limit
    step = "Delete what is not needed, give the disk more room, or raise MANCIPLE_DATABASE_BYTES."
    trouble = None
    if signs.database_full:
        trouble = Warning(what="The database is full: only deletions are accepted.", step=step)
    elif limit and signs.database_nearly_full:
        what = f"{used / limit:.0%} of the room for the database is used; when it is full, only deletions are accepted."
        trouble = Warning(what=what, step=step)
    of_limit = f" of {size(limit)}" if limit is not None and trouble else ""
    return HealthLine(
        name="Database",
        note=f"{signs.database}, {size(used)}{of_limit}",
        value=f"{max(signs.ping * 1000, 0.1):.1f} ms",
        severity=ERR if signs.database_full else WARN if trouble else OK,
        troubles=(trouble,) if trouble else (),
    )


def size(count: float) -> str:
    """Bytes as a person reads them: `34 MiB`."""
    unit = ""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if count < 1024 or unit == "TiB":  # noqa: PLR2004 - a kibibyte
            break
        count /= 1024
    return f"{count:.0f} {unit}" if unit == "B" or count >= 10 else f"{count:.1f} {unit}"  # noqa: PLR2004

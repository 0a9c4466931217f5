"""Which of the published devices a list of selectors matches now: the answer beside the DeviceClass form."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from claims.models import AllocatedDevice
from inventory.kinds.slices import Device as PublishedDevice
from inventory.kinds.slices import DeviceAttribute, DeviceCapacity
from inventory.models import Device
from manciple.wire import codec
from scheduling.cel import CompileError, DeviceView, EvaluationError, Selector, compile_selector

#: Devices named in a list before it says how many more there are.
SHOWN = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A published device, ready to be judged."""

    driver: str
    pool: str
    name: str
    view: DeviceView
    held: bool

    @property
    def address(self) -> str:
        return f"{self.driver}/{self.pool}/{self.name}"

    @property
    def title(self) -> str:
        return f"{self.pool} / {self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What one selector did: how many devices reached it, how many it kept; or why it does not compile."""

    reached: int = 0
    kept: int = 0
    error: CompileError | None = None

    @property
    def complaint(self) -> str:
        """What is wrong, without the place and the snippet that `error` tells apart."""
        first_line = (self.error.message if self.error else "").split("\n", 1)[0]
        return first_line.rsplit(f":{self.error.column}: ", 1)[-1] if self.error and self.error.line else first_line


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdicts:
    """What all selectors together say. A selector that does not compile is left out of the count."""

    total: int
    selectors: tuple[Judged, ...]
    matching: tuple[Candidate, ...]
    #: (what went wrong, one device of it, how many), most frequent first
    failures: tuple[tuple[str, str, int], ...]

    @property
    def free(self) -> int:
        return sum(not candidate.held for candidate in self.matching)

    @property
    def shown(self) -> tuple[Candidate, ...]:
        return self.matching[:SHOWN]

    @property
    def more(self) -> int:
        return max(0, len(self.matching) - SHOWN)

    @property
    def failed(self) -> int:
        return sum(count for _, _, count in self.failures)

    @property
    def missed(self) -> int:
        return self.total - len(self.matching) - self.failed

    @property
    def compiles(self) -> bool:
        return all(judged.error is None for judged in self.selectors)


def read_candidates() -> list[Candidate]:
    """Every published device, in published order."""
    held = set(AllocatedDevice.objects.filter(admin_access=False).values_list("driver", "pool", "device"))
    rows = Device.objects.in_pool_order().values_list("driver", "pool", "name", "attributes", "capacity", "shared")
    return [
        Candidate(
            driver=driver,
            pool=pool,
            name=name,
            held=(driver, pool, name) in held,
            view=DeviceView.of(
                driver,
                PublishedDevice(
                    name=name,
                    attributes=codec.decode_value(dict[str, DeviceAttribute], attributes),
                    capacity=codec.decode_value(dict[str, DeviceCapacity], capacity),
                    allow_multiple_allocations=shared,
                ),
            ),
        )
        for driver, pool, name, attributes, capacity, shared in rows
    ]


def judge(expressions: Sequence[str], candidates: Iterable[Candidate]) -> Verdicts:
    """Run every candidate through the selectors in their order, as the allocator would."""
    left = list(candidates)
    total = len(left)
    judged: list[Judged] = []
    failures: Counter[str] = Counter()
    example: dict[str, str] = {}
    for expression in expressions:
        try:
            selector = compile_selector(expression)
        except CompileError as error:
            judged.append(Judged(error=error))
            continue
        reached, left = len(left), _passing(selector, left, failures, example)
        judged.append(Judged(reached=reached, kept=len(left)))
    named = tuple((text, example[text], count) for text, count in failures.most_common())
    return Verdicts(total=total, selectors=tuple(judged), matching=tuple(left), failures=named)


def _passing(
    selector: Selector, candidates: Iterable[Candidate], failures: Counter[str], example: dict[str, str]
) -> list[Candidate]:
    passing = []
    for candidate in candidates:
        try:
            if selector.matches(candidate.view):
                passing.append(candidate)
        except EvaluationError as error:
            failures[str(error)] += 1
            example.setdefault(str(error), candidate.title)
    return passing

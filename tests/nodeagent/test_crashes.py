"""The agent dies, or the world fails it, at each of its I/O steps in turn; no device is ever lost.

Each story is told once to count its steps: what is done to the disk, asked of a driver or the runtime, said to the API
server. Then it is told again until each step of each chapter has been struck: the agent is killed just after it (which
is just before the next), killed in the middle of a file or of a driver's work, the step fails and the agent goes on,
or it works and is said to have failed. After each chapter the checkpoint, the CDI files, the drivers and the API must
agree, and no driver may have been asked to prepare a device that another claim holds, or to undo a claim that a
container runs with.
"""

from __future__ import annotations

import itertools
import logging
import random
import shutil
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import pytest

from tests.examples import sample, some
from tests.nodeagent.crash_stories import STORIES, machine_under, tell
from tests.nodeagent.faults import KILLED_AFTER, KILLED_HALFWAY, STEPS, Fault, Killed, Strikes
from tests.nodeagent.objects import claim

#: Every kind of fault strikes these two; kills, the others too.
FIRST, SECOND, *_ = STORIES
KILLS = (KILLED_AFTER, KILLED_HALFWAY)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """What hundreds of agents say as they are killed is of no use, and takes most of the time."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def plans(chapters: Sequence[Sequence[str]], kinds: Collection[str]) -> Iterator[Strikes]:
    """Every fault of `kinds` that can strike a step of a chapter, one of each chapter at a time."""
    of_chapters = [list(faults_of(number, steps, kinds)) for number, steps in enumerate(chapters)]
    for together in itertools.zip_longest(*of_chapters):
        yield dict(one for one in together if one is not None)


def faults_of(chapter: int, steps: Sequence[str], kinds: Collection[str]) -> Iterator[tuple[tuple[int, int], str]]:
    for at, step in enumerate(steps):
        for kind in kinds:
            if step.startswith(STEPS[kind]):
                yield (chapter, at), kind


def tell_struck(folder: Path, story: str, strikes: Strikes) -> Fault:
    """The story once more, with an error that says where it was struck."""
    fault = Fault(strikes)
    try:
        tell(folder, fault, STORIES[story])
    except (AssertionError, KeyError) as error:
        told = {at: step for at in strikes if (step := fault.step(at))}
        raise AssertionError(f"{story}: struck by {strikes} at {told}: {error}") from error
    shutil.rmtree(folder)
    return fault


@pytest.mark.sample(1)
@pytest.mark.parametrize("story", STORIES)
def test_whatever_step_is_struck_nothing_is_lost(tmp_path: Path, story: str) -> None:
    counted = tell_struck(tmp_path / "counted", story, {})
    assert {step.split(" ")[0] for chapter in counted.steps for step in chapter} == {
        *("disk", "driver", "runtime", "GET", "POST", "PUT", "PATCH", "DELETE")
    }

    for strikes in sample(list(plans(counted.steps, STEPS if story in (FIRST, SECOND) else KILLS)), 60):
        tell_struck(tmp_path / "struck", story, strikes)


@pytest.mark.sample(1)
@pytest.mark.parametrize("story", STORIES)
def test_an_agent_that_is_killed_again_while_it_recovers_loses_nothing(tmp_path: Path, story: str) -> None:
    """Pairs of kills in every chapter, the second at a step of what the next agent does; the same pairs every time."""
    counted = tell_struck(tmp_path / "counted", story, {})
    chance = random.Random(story)

    for _ in range(some(10)):
        strikes: dict[tuple[int, int], str] = {}
        for chapter, steps in enumerate(counted.steps):
            first = chance.randrange(len(steps))
            strikes[chapter, first] = KILLED_AFTER
            strikes[chapter, first + chance.randint(1, 40)] = KILLED_AFTER
        tell_struck(tmp_path / "struck", story, strikes)


def test_a_fault_is_really_met(tmp_path: Path) -> None:
    machine = machine_under(tmp_path, Fault({(0, 0): KILLED_AFTER}))

    with pytest.raises(Killed):
        machine.recording_drivers[0].prepare([])


def test_a_driver_tells_on_an_agent_that_breaks_the_rules(tmp_path: Path) -> None:
    """The invariants would notice: a device prepared twice, a claim undone under a running container."""
    machine = machine_under(tmp_path, Fault())
    driver = machine.recording_drivers[0]
    for name in ("one", "two"):
        machine.api.put("resourceclaims", claim(name, "gpu-0", pods=("uid-p",)))
    prepared = [machine.agent.preparer._fetch("default", name) for name in ("one", "two")]

    driver.prepare(prepared)

    assert driver.violations == ["['gpu-0'] are prepared for claim-two while claim-one holds them"]

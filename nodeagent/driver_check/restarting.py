"""Checks of what a restart costs, for a driver that the check itself starts: killed or stopped with claims prepared."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from nodeagent.driver_check.preparing import cdi_ids, in_order, is_defined
from nodeagent.driver_check.report import DriverCheck
from nodeagent.driver_check.subject import CheckFailed, DriverProcess, DriverUnderTest, NotChecked
from nodeagent.plugins.protocol import Claim, PreparedClaim


def process_of(subject: DriverUnderTest) -> DriverProcess:
    """Raises: NotChecked."""
    if subject.process is None:
        raise NotChecked("the check has not started the driver: give --run COMMAND")
    return subject.process


@contextmanager
def killed_while_prepared(subject: DriverUnderTest) -> Iterator[tuple[Claim, PreparedClaim]]:
    """A claim and the answer for it; then the driver is killed as kill -9 does, and runs again."""
    process = process_of(subject)
    with subject.claim() as claim:
        before = subject.prepared(claim)
        process.kill()
        subject.disconnect()
        process.start()
        subject.ask_who()
        yield claim, before


def comes_back_after_a_kill(subject: DriverUnderTest) -> None:
    with killed_while_prepared(subject):
        pass


def prepares_again_after_a_kill(subject: DriverUnderTest) -> None:
    with killed_while_prepared(subject) as (claim, before):
        after = subject.prepared(claim)
    if in_order(after) != in_order(before):
        raise CheckFailed(f"after it was killed it answers otherwise for the same claim: {after}, and before {before}")


def gives_back_after_a_kill(subject: DriverUnderTest) -> None:
    with killed_while_prepared(subject) as (claim, before):
        subject.unprepared(claim)
        left = [one for one in cdi_ids(before) if claim.uid in one and is_defined(subject, one)]
    if left:
        raise CheckFailed(
            f"what it prepared before it was killed was given back, and the CDI devices {', '.join(left)} are still "
            "defined"
        )


def keeps_its_slices(subject: DriverUnderTest) -> None:
    process = process_of(subject)
    wanted = {(one.pool, one.name) for one in subject.devices()}
    process.kill()
    subject.disconnect()
    process.start()
    subject.ask_who()
    subject.until(lambda: {(one.pool, one.name) for one in subject.devices()} == wanted)
    found = [(one.pool, one.name) for one in subject.devices()]
    if sorted(found) != sorted(wanted):
        raise CheckFailed(f"number of devices: {len(found)} after it was killed, {len(wanted)} before")


def ends_when_it_is_asked_to(subject: DriverUnderTest) -> None:
    """Kubernetes ends a pod so, and waits 30 s."""
    process = process_of(subject)
    seconds = min(subject.options.wait_seconds, 30.0)
    ended = process.stop(seconds=seconds)
    subject.disconnect()
    left = subject.options.socket.exists()
    process.start()
    subject.ask_who()
    if not ended:
        raise CheckFailed(f"{seconds:g} s after SIGTERM it has not ended")
    if left:
        raise CheckFailed(f"it has ended in order and left its registration socket {subject.options.socket} behind")


_NEEDS = ("prepare.answers", "unprepare.answers")

CHECKS: Final = (
    DriverCheck(
        id="restart.killed",
        title="comes back after it was killed",
        advice="take the place of a socket that is left from before",
        run=comes_back_after_a_kill,
        needs=_NEEDS,
    ),
    DriverCheck(
        id="restart.prepare",
        title="prepares again what it had prepared before it was killed",
        advice="keep what it must remember on the disk, written before the call is answered",
        run=prepares_again_after_a_kill,
        needs=("restart.killed", "prepare.twice"),
    ),
    DriverCheck(
        id="restart.unprepare",
        title="gives back what it had prepared before it was killed",
        advice="find what was made for a claim by its uid, in names of files and directories",
        run=gives_back_after_a_kill,
        needs=("restart.killed",),
    ),
    DriverCheck(
        id="restart.slices",
        title="publishes the same devices after it was killed",
        advice="take over the slices of its predecessor; do not write others beside them",
        run=keeps_its_slices,
        needs=("restart.killed",),
    ),
    DriverCheck(
        id="restart.stopped",
        title="ends when it is asked to, and takes its registration away",
        advice="on SIGTERM remove the registration socket first, answer the calls under way, and exit",
        run=ends_when_it_is_asked_to,
        needs=("registration.info",),
    ),
)

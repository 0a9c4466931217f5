"""Fair queues: whose turn it is, and who is refused. Time is counted by hand; nothing waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from manciple.api.flow_control import (
    BUSY_BURST,
    BUSY_FROM,
    ONE_SEAT_AFTER,
    FairQueues,
    FlowLimits,
    Level,
    Overflow,
    Senders,
    Ticket,
    level_of,
)
from manciple.wire.identity import MASTERS, NODES, SCHEDULER, Identity, controller, service_account

LEVELS = {
    "an administrator": (Identity("ada", (MASTERS,)), "exempt"),
    "an agent": (Identity("system:node:n1", (NODES,)), "system"),
    "the scheduler": (SCHEDULER, "system"),
    "a controller": (controller("job-controller"), "system"),
    "a person": (Identity("alice"), "workload"),
    "an account of a team": (service_account("team", "ci"), "workload"),
    "nobody who is known": (None, "strangers"),
}


@pytest.mark.parametrize(("identity", "level"), LEVELS.values(), ids=LEVELS.keys())
def test_everybody_has_a_level(identity: Identity | None, level: Level) -> None:
    assert level_of(identity) == level


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def played(story: Callable[[], Any]) -> Any:
    """What `story` returns; queues need a loop, and nothing of it waits."""

    async def play() -> Any:
        return story()

    return asyncio.run(play())


def order(queues: FairQueues, tickets: dict[str, Ticket]) -> list[str]:
    """In which order they are served where one is done after the other."""
    served: list[str] = []
    while len(served) < len(tickets):
        now = next(name for name, ticket in tickets.items() if ticket.seated and name not in served)
        served.append(now)
        queues.leave(tickets[now])
    return served


def test_identities_take_turns_however_much_one_sends() -> None:
    def story() -> list[str]:
        queues = FairQueues(FlowLimits(seats=1))
        tickets = {f"flood-{number}": queues.enter("workload", "mallory") for number in range(5)}
        tickets |= {f"alice-{number}": queues.enter("workload", "alice") for number in range(2)}
        return order(queues, tickets)

    assert played(story) == ["flood-0", "alice-0", "flood-1", "alice-1", "flood-2", "flood-3", "flood-4"]


def test_one_identity_never_has_all_seats() -> None:
    def story() -> tuple[int, bool]:
        queues = FairQueues(FlowLimits(seats=8))
        flood = [queues.enter("workload", "mallory") for _ in range(100)]
        return sum(ticket.seated for ticket in flood), queues.enter("workload", "alice").seated

    assert played(story) == (6, True)


def test_the_only_thread_of_a_lane_serves_everybody() -> None:
    assert FlowLimits(seats=1).flow_seats == 1
    assert FlowLimits(seats=2).flow_seats == 2
    assert FlowLimits(seats=16).flow_seats == 12


def test_levels_share_the_seats_while_all_want_some() -> None:
    def story() -> dict[str, int]:
        queues = FairQueues(FlowLimits(seats=13))
        blockers = [queues.enter("exempt", f"first-{number}") for number in range(13)]
        for level in ("exempt", "system", "workload", "strangers"):
            for number in range(20):
                queues.enter(level, f"{level}-{number}")
        for ticket in blockers:
            queues.leave(ticket)
        return {level: counts.executing for level, counts in queues.counts.items()}

    assert played(story) == {"exempt": 4, "system": 4, "workload": 4, "strangers": 1}


def test_what_nobody_else_wants_anybody_may_have() -> None:
    def story() -> int:
        queues = FairQueues(FlowLimits(seats=4))
        return sum(queues.enter("strangers", f"address-{number}").seated for number in range(6))

    assert played(story) == 4


def refusal(enter: Callable[[], Ticket]) -> str:
    with pytest.raises(Overflow) as refused:
        enter()
    return refused.value.why


def test_who_has_too_many_waiting_is_refused_and_nobody_else() -> None:
    def story() -> None:
        queues = FairQueues(FlowLimits(seats=1, queue=100, flow_queue=2))
        for _ in range(3):
            queues.enter("workload", "mallory")
        assert refusal(lambda: queues.enter("workload", "mallory")) == "identity-queue-full"
        queues.enter("workload", "alice")
        assert queues.counts["workload"].refused == {"identity-queue-full": 1}

    played(story)


def test_an_administrator_is_refused_only_where_too_many_wait_altogether() -> None:
    def story() -> None:
        queues = FairQueues(FlowLimits(seats=1, queue=3, flow_queue=1, rate=0.1))
        for _ in range(4):
            queues.enter("exempt", "ada")
        assert refusal(lambda: queues.enter("exempt", "ada")) == "queue-full"

    played(story)


def test_so_many_requests_a_second_after_a_burst() -> None:
    def story() -> None:
        clock = Clock()
        queues = FairQueues(FlowLimits(seats=9, rate=2, burst=3), clock=clock)
        for _ in range(3):
            queues.leave(queues.enter("workload", "alice"))
        with pytest.raises(Overflow) as refused:
            queues.enter("workload", "alice")
        assert (refused.value.why, refused.value.after) == ("rate", 0.5)
        queues.leave(queues.enter("workload", "bob"))
        clock.now = 0.5
        queues.leave(queues.enter("workload", "alice"))
        assert refusal(lambda: queues.enter("workload", "alice")) == "rate"
        clock.now = 60
        queues.leave(queues.enter("workload", "bob"))
        assert len(queues._rates._buckets) == 1, "who is quiet is forgotten"

    played(story)


def test_who_goes_away_while_waiting_leaves_no_trace() -> None:
    def story() -> None:
        queues = FairQueues(FlowLimits(seats=1))
        first, gone, last = (queues.enter("workload", name) for name in ("a", "b", "c"))
        gone.turn.cancel()
        queues.leave(gone)
        queues.leave(gone)
        queues.leave(first)
        assert last.seated
        queues.leave(last)
        counts = queues.counts["workload"]
        assert (counts.waiting, counts.executing, counts.dispatched) == (0, 0, 2)
        assert not any(queues._flows.values())

    played(story)


def test_the_counters_tell_how_long_requests_waited() -> None:
    def story() -> float:
        clock = Clock()
        queues = FairQueues(FlowLimits(seats=1), clock=clock)
        first, second = queues.enter("workload", "a"), queues.enter("workload", "b")
        clock.now = 2.5
        queues.leave(first)
        queues.leave(second)
        return queues.counts["workload"].waited

    assert played(story) == 2.5


def test_a_credential_is_taken_for_its_identitys_for_a_while() -> None:
    clock = Clock()
    senders = Senders(clock=clock)
    assert senders.find("Bearer x") is None
    senders.note("Bearer x", Identity("alice"))
    assert senders.find("Bearer x") == ("workload", "alice")
    clock.now = senders.LASTS
    assert senders.find("Bearer x") is None


def seated(tickets: list[Ticket]) -> list[bool]:
    return [ticket.seated for ticket in tickets]


def test_heavy_requests_of_one_identity_are_served_one_after_the_other() -> None:
    def story() -> None:
        queues = FairQueues(FlowLimits(seats=8))
        large = [queues.enter("workload", "mallory", heavy=True) for _ in range(4)]
        assert seated(large) == [True, False, False, False]
        assert queues.enter("workload", "mallory").seated, "small ones do not wait behind them"
        assert queues.enter("workload", "bob").seated
        queues.leave(large[0])
        assert seated(large) == [False, True, False, False]
        for ticket in large:
            queues.leave(ticket)
        assert queues._heavy == 0

    played(story)


def test_heavy_requests_of_all_tenants_have_two_seats_and_hold_up_no_system_part() -> None:
    def story() -> None:
        queues = FairQueues(FlowLimits(seats=8))
        tenants = [queues.enter("workload", f"tenant-{number}", heavy=True) for number in range(4)]
        assert seated(tenants) == [True, True, False, False]
        agents = [queues.enter("system", f"system:node:{number}", heavy=True) for number in range(3)]
        assert seated(agents) == [True] * 3
        assert queues.enter("exempt", "ada", heavy=True).seated
        queues.leave(tenants[1])
        assert seated(tenants) == [True, False, True, False]

    played(story)


def test_large_and_small_bodies_together_never_take_all_seats() -> None:
    def story() -> None:
        queues = FairQueues(FlowLimits(seats=4))
        flood = [queues.enter("workload", "mallory", heavy=number == 0) for number in range(5)]
        assert seated(flood) == [True, True, True, False, False]
        assert queues.enter("workload", "bob").seated

    played(story)


def test_who_has_used_much_work_has_one_seat_until_it_is_paid_back() -> None:
    def story() -> None:
        clock = Clock()
        queues = FairQueues(FlowLimits(seats=8), clock=clock)
        queues.charge("workload", "mallory", ONE_SEAT_AFTER + 0.5)
        pages = [queues.enter("workload", "mallory") for _ in range(3)]
        assert seated(pages) == [True, False, False]
        assert seated([queues.enter("workload", "bob") for _ in range(3)]) == [True] * 3
        queues.leave(pages[0])
        assert seated(pages) == [False, True, False], "the others follow one after the other"
        clock.now += 10.0
        queues.leave(pages[1])
        assert seated([pages[2], queues.enter("workload", "mallory")]) == [True] * 2, "it is paid back"

    played(story)


def test_who_sends_many_requests_that_search_much_has_one_seat_and_is_not_refused() -> None:
    def story() -> None:
        clock = Clock()
        queues = FairQueues(FlowLimits(seats=8), clock=clock)
        for _ in range(1 + int(BUSY_BURST / 0.05)):
            queues.note_busy("workload", "mallory", 0.05)
            queues.note_busy("workload", "writer", BUSY_FROM / 2)
            queues.note_busy("system", "agent", 0.05)
        lists = [queues.enter("workload", "mallory") for _ in range(3)]
        assert seated(lists) == [True, False, False]
        others: list[tuple[Level, str]] = [("workload", "writer"), ("system", "agent")]
        for level, flow in others:
            tickets = [queues.enter(level, flow) for _ in range(2)]
            assert seated(tickets) == [True] * 2, flow
            for ticket in tickets:
                queues.leave(ticket)
        clock.now += 10.0
        queues.leave(lists[0])
        assert seated(lists[1:]) == [True] * 2, "it is paid back"

    played(story)


def test_costly_work_takes_no_seats_from_the_system_and_administrators() -> None:
    def story() -> None:
        queues = FairQueues(FlowLimits(seats=4))
        for level in ("system", "exempt"):
            queues.charge(level, "ada", 5.0)
            tickets = [queues.enter(level, "ada") for _ in range(2)]
            assert seated(tickets) == [True] * 2
            for ticket in tickets:
                queues.leave(ticket)

    played(story)

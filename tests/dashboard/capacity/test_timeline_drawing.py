"""The timeline's places, rows, axis and areas; its address."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from dashboard.capacity.timeline import ROWS, STEPS, HeldSpan, TimelineBar, TimelineQuery, area, bar, device_lanes, pack
from dashboard.kit.charts import Window, axis
from tests.outlines import Outline

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
DAY = Window(begin=NOW - timedelta(hours=24), end=NOW, now=NOW)
KEY = ("gpu.example.com", "node-1", "gpu-0", "node-1")


def holding(begin: float, end: float | None, *, namespace: str = "team", devices: int = 1) -> HeldSpan:
    """Hours before now."""
    return HeldSpan(
        group=KEY,
        namespace=namespace,
        claim="training" if namespace else "",
        claim_uid="u-1" if namespace else "",
        pods=("web",) if namespace else (),
        began=NOW - timedelta(hours=begin),
        ended=None if end is None else NOW - timedelta(hours=end),
        devices=devices,
    )


def drawn(one: HeldSpan, *, living: bool = True) -> TimelineBar:
    return bar(one, DAY, living={"u-1": None} if living else {}, what="gpu-0")


#: (hours ago it began, hours ago it ended) -> (left, width) in percent
PLACES: dict[tuple[float, float | None], tuple[float, float]] = {
    (12, 6): (50, 25),
    (48, 12): (0, 50),
    (6, None): (75, 25),
    (6, 6): (75, 0.15),
    (0, None): (99.85, 0.15),
}


LABELS = {
    "held": (holding(12, 6), "team/web held gpu-0 from 00:00:00 to 06:00:00, 6 h"),
    "still held": (holding(6, None), "team/web holds gpu-0 since 06:00:00, for 6 h"),
    "several": (holding(6, None, devices=8), "team/web … 8 devices …"),
    "somebody else's": (holding(6, None, namespace=""), "another namespace … gpu-0 …"),
}


def test_a_bar_says_who_held_what_and_leads_to_its_claim_while_there_is_one() -> None:
    assert {case: drawn(one).label for case, (one, _) in LABELS.items()} == {
        case: Outline(label) for case, (_, label) in LABELS.items()
    }
    assert drawn(holding(6, None)).url == "/claims/team/training"
    assert drawn(holding(6, 3), living=False).url == ""
    assert drawn(holding(6, None, namespace="")).url == ""


def test_a_bar_stands_where_its_time_is() -> None:
    for times, place in PLACES.items():
        one = drawn(holding(*times))
        assert (one.left, one.width) == pytest.approx(place), times


def test_what_was_held_at_one_time_lies_in_rows() -> None:
    bars = [drawn(holding(12, 6)), drawn(holding(10, 4)), drawn(holding(5, 2)), drawn(holding(6, 3))]
    packed, rows, hidden = pack(bars, most=2)
    assert [(one.left, one.row) for one in packed] == [
        (pytest.approx(50), 0), (pytest.approx(100 * 14 / 24), 1), (75, 0)
    ]  # fmt: skip
    assert (rows, hidden) == (2, 1)


def test_many_shares_of_one_device_are_counted_not_drawn() -> None:
    many = [holding(6, None) for _ in range(ROWS + 5)]
    (lane,) = device_lanes([KEY], many, DAY, living={})
    assert (lane.rows, lane.hidden, lane.now) == (ROWS, 5, ROWS + 5)
    assert (lane.name, lane.note) == ("gpu-0", "node-1")


AXES = {
    "1h": (timedelta(hours=1), ["11:10", "11:20", "11:30", "11:40", "11:50"]),
    "24h": (timedelta(hours=24), ["15:00", "18:00", "21:00", "Fri 20", "03:00", "06:00", "09:00"]),
    "7d": (timedelta(days=7), ["Sat 14", "Sun 15", "Mon 16", "Tue 17", "Wed 18", "Thu 19", "Fri 20"]),
}


@pytest.mark.parametrize("name", AXES)
def test_the_axis_has_round_times_that_can_be_read(name: str) -> None:
    length, texts = AXES[name]
    found = [mark.word for mark in axis(Window(begin=NOW - length, end=NOW, now=NOW))]
    assert [text for text in found if text not in ("11:00", "12:00")] == texts


def test_an_area_is_stepped_and_ends_at_the_edge() -> None:
    level = [0, *[2] * (STEPS // 2), *[1] * (STEPS // 2 - 1)]
    assert area(level) == "M0 40H0V40H1V2H121V21H240V40Z"


# The address ---------------------------------------------------------------------------------------------------------


def test_a_range_ends_now_and_moments_of_ones_own_count_before_it() -> None:
    window, problem = TimelineQuery.from_query({"range": "7d"}).time.window(NOW)
    assert (window.begin, window.end, window.live, problem) == (NOW - timedelta(days=7), NOW, True, "")
    query = TimelineQuery.from_query({"range": "7d", "from": "2026-11-20T03:00", "to": "2026-11-20T05:00:00+01:00"})
    window, problem = query.time.window(NOW)
    assert (window.begin.hour, window.end.hour, window.live, problem) == (3, 4, False, "")


BACKWARDS = "must be before the second"
WRONG = {
    "no time": ({"from": "yesterday"}, "Write a time as"),
    "backwards": ({"from": "2026-11-20T05:00", "to": "2026-11-20T04:00"}, BACKWARDS),
    "in the future": ({"from": "2027-01-01T00:00"}, BACKWARDS),
    "too long": ({"from": "2020-01-01T00:00"}, "kept for 90 days"),
}


def test_moments_that_cannot_be_shown_are_told() -> None:
    for case, (query, said) in WRONG.items():
        window, problem = TimelineQuery.from_query(query).time.window(NOW)
        assert said in problem, case
        assert window.begin < window.end <= NOW, case


def test_an_address_holds_what_differs_from_the_usual() -> None:
    query = TimelineQuery.from_query({"by": "class", "range": "24h", "ns": "team a", "page": "3"})
    assert query.url() == "/timeline?by=class&ns=team+a&page=3"
    assert query.url(range="7d") == "/timeline?by=class&range=7d&ns=team+a"
    assert TimelineQuery.from_query({"by": "nonsense", "range": "9y", "page": "-1"}).url() == "/timeline"

"""The drawing of a day: its scale, its steps, its gaps, its bars, and the table behind it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from dashboard.kit import charts
from insight.usage import UsageOfMoment

NOW = datetime(2026, 11, 21, 10, 20, tzinfo=UTC)


def sample(minutes_ago: int, *, held: int = 0, free: int = 0, waiting: int = 0, **others: int) -> UsageOfMoment:
    counts = {"reserved": held, "free": free, **others}
    return UsageOfMoment(at=NOW - timedelta(minutes=minutes_ago), counts=counts, waiting=waiting)


@pytest.mark.parametrize(
    ("most", "top", "step"),
    [
        (0, 1, None),
        (1, 1, None),
        (3, 3, None),
        (5, 6, 2),
        (16, 16, 4),
        (320, 320, 80),
        (395, 400, 100),
        (999, 1000, 250),
        (5000, 6000, 2000),
    ],
)
def test_the_scale_ends_at_a_round_number_not_far_above(most: int, top: int, step: int | None) -> None:
    assert charts.nice_top(most) == top
    if step:
        assert charts.nice_step(top) == step


def test_layers_stand_on_each_other_from_held_to_out_of_use() -> None:
    chart = charts.draw([sample(0, held=2, free=1, taint=1)], NOW)
    assert chart is not None
    held, free, taint = chart.layers
    assert [layer.state for layer in chart.layers] == ["held", "free", "taint"]
    # four devices: two held reach half of the height, and each of the others a quarter more
    assert held.path == "M993.1 1000V500H1000V1000H993.1Z"
    assert (free.path, taint.path) == ("M993.1 500V250H1000V500H993.1Z", "M993.1 250V0H1000V250H993.1Z")


def test_a_step_shows_its_busiest_minute_and_a_gap_stays_empty() -> None:
    samples = [sample(600, held=1, free=3), sample(599, held=3, free=1), sample(598, free=4), sample(400, held=4)]
    chart = charts.draw(samples, NOW)
    assert chart is not None
    held = chart.layers[0].path
    assert held.count("M") == 2, "two stretches, with nothing between them"
    assert held.startswith("M583.3 1000V250H590.3")
    assert (chart.peak_held, chart.peak.at) == (4, NOW - timedelta(minutes=400))


def test_a_day_without_a_record_is_not_drawn_and_one_that_is_not_whole_says_since_when() -> None:
    assert charts.draw([], NOW) is None
    assert charts.draw([sample(60 * 25, held=1)], NOW) is None
    young, whole = (charts.draw([sample(ago, held=1), sample(0, held=1)], NOW) for ago in (100, 24 * 60 - 5))
    assert young is not None
    assert whole is not None
    assert (young.since, whole.since) == (NOW - timedelta(minutes=100), None)
    assert [tick.word for tick in young.times] == ["12:00", "16:00", "20:00", "00:00", "04:00", "08:00", "now"]
    assert young.times[0].at == pytest.approx(1000 * 100 / 1440)


def test_bars_tell_the_most_pods_that_waited_in_an_hour() -> None:
    chart = charts.draw(
        [sample(90, free=1, waiting=2), sample(80, free=1, waiting=8), sample(5, free=1, waiting=4)], NOW
    )
    assert chart is not None
    assert [(bar.waiting, bar.height) for bar in chart.bars] == [(8, 1000), (4, 500)]
    assert chart.most_waiting == 8
    nobody = charts.draw([sample(5, free=1)], NOW)
    assert nobody is not None
    assert nobody.bars == ()


def test_the_table_has_a_row_for_every_hour_that_was_recorded() -> None:
    chart = charts.draw([sample(130, held=1, free=2, gone=1), sample(125, held=2, free=1), sample(10, held=3)], NOW)
    assert chart is not None
    rows = [(row.at, row.held, row.free, row.out_of_use) for row in chart.rows]
    assert rows == [(NOW - timedelta(minutes=125), 2, 1, 0), (NOW - timedelta(minutes=10), 3, 0, 0)]


def test_the_end_of_the_chart_is_the_present_even_where_more_was_held_a_minute_ago() -> None:
    for ago in (1, 5, 9):
        chart = charts.draw([sample(ago, held=4), sample(0, held=1, free=3)], NOW)
        assert chart is not None
        assert {layer.state: layer.last for layer in chart.layers} == {"held": "1", "free": "3"}
        assert chart.peak_held == 4

from __future__ import annotations

from itertools import pairwise

from tests.chaos.strikes import Threat, drawn

THREATS = {"kill a": Threat("a", 3.0), "stop a": Threat("a", 9.0), "kill b": Threat("b", 0.0, weight=5.0)}


def test_a_seed_gives_the_same_storm_again() -> None:
    assert [*drawn(7, THREATS, 60.0, pause=1.0)] == [*drawn(7, THREATS, 60.0, pause=1.0)]
    assert [*drawn(7, THREATS, 60.0, pause=1.0)] != [*drawn(8, THREATS, 60.0, pause=1.0)]


def test_nobody_is_struck_twice_at_once_and_all_is_over_in_the_end() -> None:
    storm = [*drawn(7, THREATS, 600.0, pause=0.5)]
    for victim in "ab":
        own = [one for one in storm if THREATS[one.fault].victim == victim]
        assert all(one.at + one.lasts <= later.at for one, later in pairwise(own))
    assert {one.fault for one in storm} == THREATS.keys()
    assert max(one.at + one.lasts for one in storm) <= 600.0

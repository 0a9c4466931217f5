"""Calls in a loop do not make and unmake room for their frames, at whatever depth."""

from __future__ import annotations

import resource
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from manciple import frames

CALLS = 500
#: More than the chunks of 16 KB have frames.
DEPTHS = range(200)


def leaf(first: int, second: int) -> int:
    return first


def faults_at(depth: int) -> int:
    """Pages that the system had to give while a function was called again and again at that depth."""
    if depth:
        return faults_at(depth - 1)
    before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
    for number in range(CALLS):
        leaf(number, number)
    return resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before


def worst() -> int:
    return max(faults_at(depth) for depth in DEPTHS)


def test_in_a_call_with_room_no_depth_is_slow() -> None:
    assert frames.with_room(worst) < CALLS / 2


def in_thread() -> int:
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(worst()))
    thread.start()
    thread.join()
    return found[0]


def in_pool() -> int:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(worst).result()


@pytest.mark.parametrize("somewhere", [in_thread, in_pool])
def test_in_threads_that_start_afterwards_no_depth_is_slow(somewhere: Callable[[], int]) -> None:
    frames.make_room_in_threads()
    assert somewhere() < CALLS / 2


def test_arguments_and_results_pass() -> None:
    assert frames.with_room(divmod, 7, 2) == (3, 1)

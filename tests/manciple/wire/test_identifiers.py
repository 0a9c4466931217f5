"""Random numbers fetched in advance are as random as the kernel's, and no two processes have the same."""

from __future__ import annotations

import os
from random import Random
from uuid import UUID

import pytest

from manciple.wire.base import RANDOM, KernelRandom, new_uid


def counted(calls: list[int]) -> KernelRandom:
    def fetch(size: int) -> bytes:
        calls.append(size)
        return os.urandom(size)

    return KernelRandom(fetch)


def test_uids_are_random_uuids_and_differ() -> None:
    uids = [new_uid() for _ in range(3 * KernelRandom.STOCK)]
    assert len(set(uids)) == len(uids)
    assert {UUID(uid).version for uid in uids} == {4}


def test_the_kernel_is_asked_once_for_many_numbers() -> None:
    calls: list[int] = []
    random = counted(calls)
    drawn = [random.getrandbits(KernelRandom.BITS) for _ in range(KernelRandom.STOCK)]
    assert len(calls) == 1
    assert len(set(drawn)) == KernelRandom.STOCK
    random.getrandbits(1)
    assert len(calls) == 2


@pytest.mark.parametrize("bits", [0, 1, 8, 53, 127, 128, 129, 4096])
def test_numbers_have_as_many_bits_as_were_asked_for(bits: int) -> None:
    drawn = [RANDOM.value.getrandbits(bits) for _ in range(64)]
    assert all(0 <= number < 1 << bits for number in drawn)
    if bits:
        assert max(number.bit_length() for number in drawn) > bits - 16


def test_a_negative_number_of_bits_is_refused() -> None:
    with pytest.raises(ValueError, match="non-negative"):
        RANDOM.value.getrandbits(-1)


def test_what_is_drawn_from_it_covers_the_whole_range() -> None:
    drawn: Random = RANDOM.value
    numbers = [drawn.random() for _ in range(2000)]
    assert 0 <= min(numbers) < 0.01
    assert 0.99 < max(numbers) < 1
    assert set(drawn.choices("abc", k=200)) == set("abc")


def test_a_forked_process_draws_other_numbers() -> None:
    RANDOM.value.getrandbits(8)  # some are in stock
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.write(write, new_uid().encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 36).decode() != new_uid()

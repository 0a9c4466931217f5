"""A deadline stops whatever a thread evaluates, and leaves no verdict behind."""

from __future__ import annotations

import time

import pytest

from inventory.kinds.devices import Device
from manciple.wire.limits import Deadline, TimeLimitExceeded, time_limit
from scheduling.cel import compile_selector
from scheduling.cel.device import DeviceView

DEVICE = DeviceView.of("gpu.example.com", Device(name="gpu-0"))
NUMBERS = str(list(range(46)))
LOOPS = f"{NUMBERS}.all(a, {NUMBERS}.all(b, {NUMBERS}.all(c, a + b + c >= 0)))"
#: expressions that the API accepts and that take long here
SLOW = {
    "nested loops": LOOPS,
    "quantities": LOOPS.replace("a + b + c >= 0", 'quantity("1Gi").isGreaterThan(quantity("1Mi"))'),
    "absorbed operands": f"[1].exists(n, n > 1) || {LOOPS}",
    "many matches of a pattern": f'{NUMBERS}.all(a, "{"x," * 1000}".findAll("x").size() == 1000)',
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("what", SLOW)
def test_an_evaluation_is_stopped_at_its_deadline(what: str) -> None:
    selector = compile_selector(SLOW[what])
    began = time.thread_time()
    with pytest.raises(TimeLimitExceeded), time_limit(Deadline.after_work(0.02)):
        selector.matches(DEVICE)
    assert time.thread_time() - began < 0.1
    assert selector.matches(DEVICE)


def test_nothing_is_compiled_or_evaluated_once_the_deadline_has_passed() -> None:
    selector = compile_selector('device.driver == "gpu.example.com"')
    with time_limit(Deadline(at=0.0, clock=lambda: 1.0)):
        with pytest.raises(TimeLimitExceeded):
            selector.matches(DEVICE)
        with pytest.raises(TimeLimitExceeded):
            compile_selector('device.driver == "compiled.too.late"')
    assert selector.matches(DEVICE)
    assert not compile_selector('device.driver == "compiled.too.late"').matches(DEVICE)


def test_the_earliest_of_nested_deadlines_counts() -> None:
    selector = compile_selector('device.driver == "gpu.example.com"')
    passed, open_ended = Deadline(at=0.0, clock=lambda: 1.0), Deadline(at=2.0, clock=lambda: 1.0)
    with time_limit(passed), time_limit(open_ended), pytest.raises(TimeLimitExceeded):
        selector.matches(DEVICE)
    with time_limit(open_ended):
        with time_limit(passed), pytest.raises(TimeLimitExceeded):
            selector.matches(DEVICE)
        assert selector.matches(DEVICE)

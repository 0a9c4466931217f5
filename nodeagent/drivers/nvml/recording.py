"""Recordings of NVML: what a machine with GPUs answered, call by call, as a JSON file.

    {"description": "one Tesla T4, driver 535.104.05",
     "calls": [{"call": "nvmlSystemGetDriverVersion", "answer": "535.104.05"},
               {"call": "nvmlDeviceGetMigMode", "args": ["nvmlDeviceGetHandleByIndex(0)"], "error": 3}]}

A call that was made several times has several answers, in their order; the last one is repeated.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from manciple.wire.base import Value
from nodeagent.drivers.nvml.binding import TIMEOUT, Argument, Binding, NvmlError

WAIT = "nvmlEventSetWait_v2"


class Call(Value, forbid_unknown_fields=True):
    """One call and what came of it. error: the nvmlReturn_t; 0 where there is an answer."""

    call: str
    args: tuple[Argument, ...] = ()
    answer: Any = None
    error: int = 0


class Recording(Value, forbid_unknown_fields=True):
    """What one machine answered."""

    description: str
    calls: tuple[Call, ...]


# Described here, in one thread: msgspec must not do it in two threads at once.
_decoder = msgspec.json.Decoder(Recording)


def read_recording(path: Path) -> Recording:
    """Raises: ValueError, OSError."""
    try:
        return _decoder.decode(path.read_bytes())
    except msgspec.MsgspecError as error:
        raise ValueError(f"{path} is not a recording of NVML: {error}") from error


class Recorder:
    """Passes calls on to NVML and writes down what it answers."""

    def __init__(self, binding: Binding) -> None:
        self._binding = binding
        self.calls: list[Call] = []

    def call(self, function: str, *arguments: Argument) -> Any:
        try:
            answer = self._binding.call(function, *arguments)
        except NvmlError as error:
            self.calls.append(Call(call=function, args=arguments, error=error.code))
            raise
        self.calls.append(Call(call=function, args=arguments, answer=answer))
        return answer


class Player:
    """Answers as the recorded machine did."""

    def __init__(self, calls: Iterable[Call]) -> None:
        self._answers: dict[tuple[str, tuple[Argument, ...]], list[Call]] = defaultdict(list)
        for call in calls:
            self._answers[_key(call.call, call.args)].append(call)

    def call(self, function: str, *arguments: Argument) -> Any:
        """Raises: NvmlError as recorded; LookupError for a call that the recorded machine was never asked."""
        answers = self._answers.get(_key(function, arguments))
        if not answers:
            raise LookupError(f"the recording has no answer to {function}{arguments}")
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if answer.error == TIMEOUT and function == WAIT and isinstance(arguments[-1], int):
            time.sleep(arguments[-1] / 1000)  # as long as NVML would have waited
        if answer.error:
            raise NvmlError(function, answer.error, f"NVML error {answer.error}, as recorded")
        return answer.answer


def _key(function: str, arguments: tuple[Argument, ...]) -> tuple[str, tuple[Argument, ...]]:
    """How long to wait for an event is no part of the question."""
    return function, arguments[:1] if function == WAIT else arguments

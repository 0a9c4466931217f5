"""NVML behind one typed method, so that its answers can be recorded on a machine with GPUs and played on one without.

Everything that crosses this line is JSON: a structure is an object of its fields, and a handle (NVML's pointers to
GPUs, MIG devices, event sets) is a text: the call that gave it, such as "nvmlDeviceGetHandleByIndex(0)". The error
numbers are those of nvmlReturn_t. Source: NVML API Reference Guide; nvidia-ml-py.

A recording is a JSON file; a call that was made several times has several answers, in their order, the last repeated:

    {"description": "one Tesla T4, driver 535.104.05",
     "calls": [{"call": "nvmlSystemGetDriverVersion", "answer": "535.104.05"},
               {"call": "nvmlDeviceGetMigMode", "args": ["nvmlDeviceGetHandleByIndex(0)"], "error": 3}]}
"""

from __future__ import annotations

import ctypes
import importlib
import time
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec

from manciple.wire.base import Value

INVALID_ARGUMENT, NOT_SUPPORTED, NOT_FOUND, TIMEOUT, FUNCTION_NOT_FOUND, GPU_IS_LOST = 2, 3, 6, 10, 13, 15

Argument = int | str
T = TypeVar("T")


class NvmlError(Exception):
    """NVML answered with an error. `code` is its nvmlReturn_t."""

    def __init__(self, function: str, code: int, message: str) -> None:
        super().__init__(f"{function}: {message}")
        self.code = code
        self.reason = message


class NvmlBinding(Protocol):
    """A way to NVML."""

    def call(self, function: str, *arguments: Argument) -> Any:
        """What `function` of nvidia-ml-py answers. Raises: NvmlError."""


class Library:
    """The NVML that is installed on this machine (libnvidia-ml.so.1)."""

    def __init__(self) -> None:
        self._module: Any = importlib.import_module("pynvml")
        self._handles: dict[str, Any] = {}
        self._labels: dict[int, str] = {}

    def call(self, function: str, *arguments: Argument) -> Any:
        native = [self._handles.get(one, one) if isinstance(one, str) else one for one in arguments]
        try:
            answer = getattr(self._module, function)(*native)
        except self._module.NVMLError as error:
            raise NvmlError(function, error.value, str(error)) from error
        except AttributeError as error:
            raise NvmlError(function, FUNCTION_NOT_FOUND, "nvidia-ml-py does not have it") from error
        return self._plain(answer, f"{function}({', '.join(map(str, arguments))})")

    def _plain(self, value: Any, label: str) -> Any:
        """`value` as JSON; `label` names it where it is a handle that was never seen before."""
        if isinstance(value, bytes):
            return value.decode(errors="replace")
        if isinstance(value, (list, tuple)):
            return [self._plain(one, f"{label}[{index}]") for index, one in enumerate(value)]
        if isinstance(value, ctypes.Structure):
            names = [field[0] for field in value._fields_]
            return {name: self._plain(getattr(value, name), f"{label}.{name}") for name in names}
        if isinstance(value, ctypes._Pointer):
            return self._label(value, label)
        return value

    def _label(self, handle: Any, label: str) -> str:
        address = ctypes.cast(handle, ctypes.c_void_p).value
        if address is None:
            return ""
        known = self._labels.setdefault(address, label)
        self._handles[known] = handle
        return known


class Nvml:
    """Calls whose answers have the type that the caller says."""

    def __init__(self, binding: NvmlBinding) -> None:
        self._call = binding.call

    def do(self, function: str, *arguments: Argument) -> None:
        self._call(function, *arguments)

    def text(self, function: str, *arguments: Argument) -> str:
        """A text, or a handle."""
        return _checked(function, self._call(function, *arguments), str)

    def number(self, function: str, *arguments: Argument) -> int:
        return _checked(function, self._call(function, *arguments), int)

    def numbers(self, function: str, *arguments: Argument) -> list[int]:
        return _checked(function, self._call(function, *arguments), list)

    def fields(self, function: str, *arguments: Argument) -> dict[str, Any]:
        """A structure's fields."""
        return _checked(function, self._call(function, *arguments), dict)


def _checked(function: str, answer: Any, expected: type[T]) -> T:
    if not isinstance(answer, expected):
        raise NvmlError(function, FUNCTION_NOT_FOUND, f"the answer {answer!r} is of another form than documented")
    return answer


WAIT = "nvmlEventSetWait_v2"


class NvmlCall(Value, forbid_unknown_fields=True):
    """One call and what came of it. error: the nvmlReturn_t; 0 where there is an answer."""

    call: str
    args: tuple[Argument, ...] = ()
    answer: Any = None
    error: int = 0


class Recording(Value, forbid_unknown_fields=True):
    """What one machine answered."""

    description: str
    calls: tuple[NvmlCall, ...]


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

    def __init__(self, binding: NvmlBinding) -> None:
        self._binding = binding
        self.calls: list[NvmlCall] = []

    def call(self, function: str, *arguments: Argument) -> Any:
        try:
            answer = self._binding.call(function, *arguments)
        except NvmlError as error:
            self.calls.append(NvmlCall(call=function, args=arguments, error=error.code))
            raise
        self.calls.append(NvmlCall(call=function, args=arguments, answer=answer))
        return answer


class Player:
    """Answers as the recorded machine did."""

    def __init__(self, calls: Iterable[NvmlCall]) -> None:
        self._answers: dict[tuple[str, tuple[Argument, ...]], list[NvmlCall]] = defaultdict(list)
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

"""NVML behind one typed method, so that its answers can be recorded on a machine with GPUs and played on one without.

Everything that crosses this line is JSON: a structure is an object of its fields, and a handle (NVML's pointers to
GPUs, MIG devices, event sets) is a text: the call that gave it, such as "nvmlDeviceGetHandleByIndex(0)". The error
numbers are those of nvmlReturn_t. Source: NVML API Reference Guide; nvidia-ml-py.
"""

from __future__ import annotations

import ctypes
import importlib
from typing import Any, Protocol, TypeVar

INVALID_ARGUMENT, NOT_SUPPORTED, NOT_FOUND, TIMEOUT, FUNCTION_NOT_FOUND, GPU_IS_LOST = 2, 3, 6, 10, 13, 15

Argument = int | str
T = TypeVar("T")


class NvmlError(Exception):
    """NVML answered with an error. `code` is its nvmlReturn_t."""

    def __init__(self, function: str, code: int, message: str) -> None:
        super().__init__(f"{function}: {message}")
        self.code = code
        self.reason = message


class Binding(Protocol):
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

    def __init__(self, binding: Binding) -> None:
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

"""What msgspec knows of a type, asked for by one thread at a time.

msgspec describes a struct to itself when a decoder of it is made, or its description is asked for. A thread that meets
one which another thread has not described to its end crashes the interpreter.
"""

from __future__ import annotations

import threading
from functools import cache
from typing import Any

import msgspec
from msgspec import inspect

_describing = threading.RLock()


def type_info(type_: Any) -> inspect.Type:
    with _describing:
        return inspect.type_info(type_)


@cache
def json_decoder(type_: Any) -> msgspec.json.Decoder[Any]:
    with _describing:
        return msgspec.json.Decoder(type_)

"""A cache whose memory is bounded even though clients choose the keys. PURE.

`functools.lru_cache` bounds the number of entries, not their size. Where an argument comes from a request, a client
that sends a different text of several megabytes each time would fill the process's memory.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, update_wrapper
from typing import Any, ParamSpec, TypeVar

#: Longest text, in characters, that is worth an entry. Names, keys, amounts and ordinary paths are shorter.
LONGEST = 1024

P = ParamSpec("P")
T = TypeVar("T")


def short_text_cache(maxsize: int, *, longest: int = LONGEST) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """`lru_cache` by a function's first argument, a text; longer texts are computed each time and not kept.

    The result has to be about as large as the text, or smaller.
    """

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        cached: Any = lru_cache(maxsize)(function)
        uncached: Any = function

        def call(text: str, *rest: Any) -> T:
            result: T = (cached if len(text) <= longest else uncached)(text, *rest)
            return result

        return update_wrapper(call, function)  # type: ignore[return-value]  # the first parameter is a text

    return decorate

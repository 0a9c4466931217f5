"""`python -m scheduling.allocator`: what would be allocated, for driver authors.

Reads one scenario a line (see `scenario`) from standard input and writes one line of answers for each. A line that is
no scenario gets {name, error}; the exit status is then 1.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

import msgspec

from manciple.wire.errors import ApiError
from scheduling.allocator.scenario import run_scenario


def main(lines: Iterable[bytes]) -> int:
    """The exit status: 0 when every line could be read."""
    status = 0
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            answer = run_scenario(msgspec.json.decode(line))
        except (msgspec.MsgspecError, ApiError, KeyError, TypeError, ValueError) as error:
            answer, status = {"name": f"line {number}", "error": f"{type(error).__name__}: {error}"}, 1
        sys.stdout.write(msgspec.json.encode(answer).decode() + "\n")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.stdin.buffer))

"""Types are described once, by whichever thread needs them first."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
#: Without a lock it ends with SIGSEGV at one of the first types.
PROGRAM = """
import sys, threading
from manciple.wire import base, codec
from manciple.wire.base import Value

sys.setswitchinterval(1e-6)

def of_depth(number, depth):
    for k in reversed(range(depth)):
        inner = f"T{number}_{k + 1}" if k < depth - 1 else "int"
        source = f"class T{number}_{k}(Value):\\n  a: 'tuple[{inner}, ...]' = ()\\n  b: 'dict[str, {inner}]' = {{}}"
        exec(source, globals())
    return globals()[f"T{number}_0"]

for number in range(60):
    type_, together = of_depth(number, 6), threading.Barrier(3)
    def describe():
        together.wait()
        base.declarations(type_)
    def decode():
        together.wait()
        codec.decode_text(type_, '{"a": [{"b": {"x": {}}}]}')
    threads = [threading.Thread(target=one) for one in (describe, decode, decode)]
    for one in threads: one.start()
    for one in threads: one.join()
"""


def test_threads_that_need_a_type_for_the_first_time_at_once_do_not_crash() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]

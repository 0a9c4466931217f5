"""Many threads may decode the same type for the first time at once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]

#: A fresh interpreter: msgspec describes a struct to itself only once in a process.
PROGRAM = """
import sys, threading
from claims.kinds.pods import Pod
from claims.kinds.resource_claims import ResourceClaim
from manciple.wire import codec

sys.setswitchinterval(1e-6)
start = threading.Barrier(16)

def read(type_):
    start.wait()
    codec.decode_text(type_, b"{}")
    codec.decode_value(type_, {})

threads = [threading.Thread(target=read, args=(type_,)) for type_ in (Pod, ResourceClaim) * 8]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


def test_threads_that_meet_a_type_at_once_do_not_crash_the_interpreter() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], cwd=ROOT, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")

"""Many threads may decode the same type for the first time at once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]

#: A fresh interpreter: msgspec describes a struct to itself only once in a process.
PROGRAM = """
import threading
import msgspec
from claims.kinds.pods import Pod
from claims.kinds.resource_claims import ResourceClaim
from manciple.wire import codec

META = {"name": "p", "labels": {"a": "b"}, "ownerReferences": [{"name": "x"}]}
CONTAINER = {"name": "c", "image": "i", "resources": {"claims": [{"name": "g"}]}}
POD = {"metadata": META, "spec": {"containers": [CONTAINER]}, "status": {"conditions": [{"type": "Ready"}]}}
DEVICES = {"requests": [{"name": "r", "exactly": {"deviceClassName": "c"}}]}
CLAIM = {"metadata": META, "spec": {"devices": DEVICES}, "status": {"reservedFor": [{"uid": "u"}]}}
start = threading.Barrier(16)

def read(type_, document):
    text = msgspec.json.encode(document)
    start.wait()
    codec.decode_text(type_, text)
    codec.decode_value(type_, document)

threads = [threading.Thread(target=read, args=args) for args in ((Pod, POD), (ResourceClaim, CLAIM)) * 8]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


def test_threads_that_meet_a_type_at_once_do_not_crash_the_interpreter() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], cwd=ROOT, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")

"""Many threads may decode the same type for the first time at once."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from manciple.wire import codec
from manciple.wire.base import Declaration, Value

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
    assert codec.decode_text(type_, text) == codec.decode_value(type_, document)

threads = [threading.Thread(target=read, args=args) for args in ((Pod, POD), (ResourceClaim, CLAIM)) * 8]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


def test_a_thread_knows_every_field_while_another_meets_the_type(monkeypatch: pytest.MonkeyPatch) -> None:
    """To a server that was just started, the first requests come at once: a field unknown to one would be lost."""

    class Met(Value):
        first: str = ""
        second: str = ""

    document, found = {"first": "a", "second": "b"}, codec.Findings()
    seen, learn = list[object](), codec._member

    def learn_slowly(declared: Declaration, asides: bool) -> codec.Normalizer:
        learned = learn(declared, asides)
        if declared.name == "second" and not seen:  # one field is known to this thread
            seen.append(None)
            other = threading.Thread(target=lambda: seen.append(codec.normalize(Met, document, found)))
            other.start()
            other.join()
        return learned

    monkeypatch.setattr(codec, "_member", learn_slowly)

    assert codec.normalize(Met, document, found) == document
    assert (seen[1:], found.strict) == ([document], [])


def test_threads_that_meet_a_type_at_once_do_not_crash_the_interpreter() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], cwd=ROOT, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")

"""What becomes of a container's stdin when a session with it ends: `stdin`, `stdinOnce`, `tty`."""

from __future__ import annotations

import os
import select
from typing import Any

import pytest

from claims.kinds.pod_streams import StreamOptions
from nodeagent.runtimes.conversations import Conversation
from tests.e2e.processes import wait_for
from tests.nodeagent.runtimes.containers import Node

REPEATS = 'echo ready; while read -r line; do echo "got $line"; done; echo over'
#: Of the container -> whether it reads on
CASES: dict[str, tuple[dict[str, Any], bool]] = {
    "for good": ({"stdin": True}, True),
    "once": ({"stdin": True, "stdinOnce": True}, False),
    "a terminal": ({"stdin": True, "stdinOnce": True, "tty": True}, True),
}


def attached(node: Node, *, tty: bool) -> Conversation:
    return node.runtime.attach("uid-p", "main", StreamOptions(stdin=True, stdout=True, tty=tty))


def said(node: Node, talk: Conversation, word: str) -> None:
    assert talk.stdin is not None
    os.write(talk.stdin, f"{word}\n".encode())
    node.prints(f"got {word}")


@pytest.mark.parametrize("case", CASES)
def test_a_session_whose_input_ends_is_over_and_the_container_reads_on_or_not(node: Node, case: str) -> None:
    fields, reads_on = CASES[case]
    tty = bool(fields.get("tty"))
    node.start(node.container(REPEATS, **fields))
    node.prints("ready")

    first = attached(node, tty=tty)
    said(node, first, "one")
    first.close_stdin()
    ended = first.ended
    assert ended is not None
    wait_for("the session to end", lambda: select.select([ended], [], [], 0)[0])
    assert first.status()["status"] == "Success"
    first.close()

    if not reads_on:
        assert node.ended().exit_code == 0
        assert "over" in node.log()
        return
    second = attached(node, tty=tty)
    said(node, second, "two")
    second.close()  # as of a client that is gone
    third = attached(node, tty=tty)
    said(node, third, "three")
    third.close()
    assert node.run().running
    assert "over" not in node.log()

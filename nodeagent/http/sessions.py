"""Sessions of exec, attach and port-forward: frames of a TLS connection to the streams of a conversation, and back.

One loop in the connection's own thread. Neither side is read while the other does not take what is there already, so a
session holds `HELD_BYTES` in each direction, whoever is slow. It ends when what it talks to has ended (its Status comes
last), when its client goes, when nothing moved for `IDLE_SECONDS`, after `LONGEST_SECONDS`, or when the agent stops. A
terminal's size is no movement: pages send it again and again, so that no proxy takes their connection for dead.
"""

from __future__ import annotations

import os
import select
import ssl
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import msgspec

from manciple.wire.channels import CLOSE, ERROR, RESIZE, STDIN, BadMessage, FrameReader, closing, frames
from nodeagent.runtimes.conversations import GONE, Conversation

#: Bytes that wait for one side.
HELD_BYTES = 256 * 1024
PIECE = 32 * 1024
#: Seconds without a byte in either direction (kubelet: streamingConnectionIdleTimeout).
IDLE_SECONDS = 4 * 3600.0
#: Seconds after which a session ends, whatever moves.
LONGEST_SECONDS = 24 * 3600.0
#: Seconds that the client has to take what is left when its conversation has ended.
LAST_SECONDS = 60.0
#: How often the loop looks whether the agent stops.
LOOK_SECONDS = 1.0
#: Sessions and logs of one agent at once, and with one pod. Who tests a driver from outside has 22 with its pod.
MOST, MOST_WITH_POD = 256, 64
#: The name in which the API server comes; for webhooks in pods also in a session, as often as it is asked.
API_SERVER = "system:kube-apiserver"


class TooManySessions(Exception):
    """In words for the person who wants one more."""


class SessionCount:
    """Who has how many sessions and logs here, through whichever API server, and of which pods. Thread-safe.

    A person may have as many as are free: one alone half of all, two a third each. So whoever has many identities
    leaves a share, too, and who has none yet is refused last.
    """

    def __init__(self, most: int = MOST, most_with_pod: int = MOST_WITH_POD) -> None:
        self._most, self._most_with_pod = most, most_with_pod
        self._lock = threading.Lock()
        self._of_people: Counter[str] = Counter()
        self._with_pods: Counter[str] = Counter()

    @contextmanager
    def one_more(self, person: str, pod_uid: str) -> Iterator[None]:
        """Raises: TooManySessions."""
        with self._lock:
            own, free = self._of_people[person], self._most - self._of_people.total()
            if not free:
                raise TooManySessions(f"this node has {self._most} sessions and logs, its limit: try again later")
            if person != API_SERVER and own >= free:
                raise TooManySessions(
                    f"you have {own} sessions and logs on this node, and {free} are free for all: end some first"
                )
            if person != API_SERVER and self._with_pods[pod_uid] >= self._most_with_pod:
                raise TooManySessions(
                    f"this pod has {self._most_with_pod} sessions and logs, which is its limit: end some first"
                )
            self._of_people[person] += 1
            self._with_pods[pod_uid] += 1
        try:
            yield
        finally:
            with self._lock:
                for counts, key in ((self._of_people, person), (self._with_pods, pod_uid)):
                    counts[key] -= 1
                    if not counts[key]:
                        del counts[key]


class TerminalSize(msgspec.Struct):
    """What a client sends on the channel for it (remotecommand.TerminalSize)."""

    width: int = msgspec.field(default=0, name="Width")
    height: int = msgspec.field(default=0, name="Height")


_size_decoder = msgspec.json.Decoder(TerminalSize)
#: A terminal has so many columns or rows at most.
_LARGEST = 0xFFFF


class Session:
    """connection: does not block any more once the session runs. stopping: the agent ends."""

    def __init__(self, connection: ssl.SSLSocket, conversation: Conversation, *, stopping: threading.Event) -> None:
        self._connection = connection
        self._talk = conversation
        self._stopping = stopping
        self._ends = time.monotonic() + LONGEST_SECONDS
        self._reader = FrameReader()
        self._to_client, self._to_stdin = bytearray(), bytearray()
        self._stdin_ends = False
        self._outputs = dict(conversation.outputs)
        self._wants_write = False  # TLS has something to say of its own
        self._told = False  # the Status is on its way
        self._deadline = 0.0

    def run(self) -> None:
        """Returns when it is over; whoever began the conversation closes it."""
        with suppress(OSError, BadMessage):  # the client is gone, or speaks something else
            self._connection.setblocking(False)
            self._moved()
            while self._step():
                pass

    def _step(self) -> bool:
        """Wait for something to do, and do it. Returns whether the session goes on."""
        if self._stopping.is_set() or time.monotonic() >= self._deadline:
            return False
        ready = self._poll()
        client = self._connection.fileno()
        if self._to_client or self._wants_write:
            self._send()
        if client in ready and self._takes_more and not self._receive():
            return False
        if self._to_stdin or self._stdin_ends:
            self._feed()
        for channel, descriptor in tuple(self._outputs.items()):
            if descriptor in ready and len(self._to_client) < HELD_BYTES:
                self._read(channel, descriptor)
        if not self._told and self._is_over(ready):
            self._tell()
        return True

    def _is_over(self, ready: set[int]) -> bool:
        """A process has ended once nothing of it is left to read, even if one that it started keeps the streams."""
        if self._talk.ended is None:
            return not self._outputs
        return self._talk.ended in ready and not ready & set(self._outputs.values())

    @property
    def _takes_more(self) -> bool:
        return len(self._to_stdin) < HELD_BYTES

    def _poll(self) -> set[int]:
        wanted: dict[int, int] = {}
        if self._takes_more:
            wanted[self._connection.fileno()] = select.POLLIN
        if self._to_client or self._wants_write:
            wanted[self._connection.fileno()] = wanted.get(self._connection.fileno(), 0) | select.POLLOUT
        if len(self._to_client) < HELD_BYTES:
            wanted |= dict.fromkeys(self._outputs.values(), select.POLLIN)
            if self._talk.ended is not None and not self._told:
                wanted[self._talk.ended] = select.POLLIN
        if self._to_stdin and self._talk.stdin is not None:
            wanted[self._talk.stdin] = wanted.get(self._talk.stdin, 0) | select.POLLOUT
        poll = select.poll()
        for descriptor, events in wanted.items():
            poll.register(descriptor, events)
        waiting = self._takes_more and self._connection.pending()  # decrypted already: the socket has nothing to say
        found = {descriptor for descriptor, _ in poll.poll(0 if waiting else LOOK_SECONDS * 1000)}
        return found | {self._connection.fileno()} if waiting else found

    def _moved(self) -> None:
        """Something did. After the last word the client hangs up: closing first could lose what is on its way."""
        now = time.monotonic()
        self._deadline = now + LAST_SECONDS if self._told else min(now + IDLE_SECONDS, self._ends)

    def _send(self) -> None:
        try:
            sent = self._connection.send(bytes(self._to_client[:PIECE])) if self._to_client else 0
        except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
            return
        self._wants_write = False
        if sent:
            del self._to_client[:sent]
            self._moved()

    def _receive(self) -> bool:
        """Returns whether the client is still there."""
        try:
            data = self._connection.recv(PIECE)
        except ssl.SSLWantReadError:
            return True
        except ssl.SSLWantWriteError:
            self._wants_write = True
            return True
        if not data:
            return False
        if self._told:
            return True
        for channel, payload in self._reader.feed(data):
            if channel != RESIZE:
                self._moved()
            if channel == STDIN and self._talk.stdin is not None and not self._stdin_ends:
                self._to_stdin += payload
            elif channel == CLOSE and payload[0] == STDIN:
                self._stdin_ends = True
            elif channel == RESIZE:
                self._resize(payload)
        return True

    def _resize(self, payload: bytes) -> None:
        try:
            size = _size_decoder.decode(payload)
        except msgspec.MsgspecError:
            return
        if 0 < size.width <= _LARGEST and 0 < size.height <= _LARGEST:
            self._talk.resize(size.width, size.height)

    def _feed(self) -> None:
        """What it does not take any more is lost, as in a pipe that nobody reads."""
        if self._to_stdin and self._talk.stdin is not None:
            try:
                written = os.write(self._talk.stdin, self._to_stdin[:PIECE])
            except BlockingIOError:
                return
            except OSError:
                self._to_stdin.clear()
                self._talk.close_stdin()
            else:
                del self._to_stdin[:written]
                self._moved()
        if self._stdin_ends and not self._to_stdin:
            self._talk.close_stdin()
            self._stdin_ends = False

    def _read(self, channel: int, descriptor: int) -> None:
        try:
            data = os.read(descriptor, PIECE)
        except BlockingIOError:
            return
        except OSError as error:
            if error.errno not in GONE:
                raise
            data = b""
        self._moved()
        if data and not self._talk.failed_to_start():
            self._to_client += b"".join(frames(channel, data))
        elif not data:
            del self._outputs[channel]
            self._to_client += closing(channel)

    def _tell(self) -> None:
        """The last word: how it ended."""
        self._told, self._stdin_ends = True, False
        self._outputs.clear()
        self._to_stdin.clear()
        self._talk.close_stdin()
        self._to_client += b"".join(frames(ERROR, msgspec.json.encode(self._talk.status())))
        self._moved()

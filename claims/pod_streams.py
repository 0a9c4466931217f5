"""`pods/exec`, `pods/attach` and `pods/portforward`: sessions between a client and the agent of the pod's node.

    the client                                   to the agent
    exec, attach   v1, v4, v5 of the channels,   one conversation, in the frames of `manciple.wire.channels`
                   or a SPDY stream for each
    portforward    two channels for each port,   one conversation for each connection to a port
                   or two SPDY streams for each
                   connection, alone or in the
                   messages of a WebSocket

Bytes go on only as the other side takes them.

Source: kubernetes pkg/registry/core/pod/rest/subresources.go, pkg/registry/core/pod/strategy.go;
k8s.io/kubelet/pkg/cri/streaming/remotecommand, .../portforward; KEP-4006 for the tunnelled SPDY.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol
from urllib.parse import quote

import msgspec

from claims.kinds.pod_streams import (
    StreamOptions,
    check_node,
    checked_stream_options,
    container_on_node,
    port_of,
    read_forward_options,
    read_stream_options,
)
from claims.kinds.pods import Pod
from inventory import agents
from inventory.agents import AgentAddress, AgentStream, SessionRefused
from manciple.access.authentication import tokens
from manciple.api.flow_control import flow_of
from manciple.api.sessions import Session
from manciple.api.streams import in_reader
from manciple.api.subresources import SessionRequest, Upgraded
from manciple.store import objects
from manciple.wire import channels, codec
from manciple.wire.channels import CLOSE, ERROR, RESIZE, STDERR, STDIN, STDOUT, BadMessage, Subprotocol
from manciple.wire.errors import ApiError, BadRequest, NotFound
from manciple.wire.registry import registry
from manciple.wire.spdy import BadFrame, Data, Opened, Ping, Reset, Spdy

#: What clients call their SPDY streams of exec and attach.
_STREAMS = {"stdin": STDIN, "stdout": STDOUT, "stderr": STDERR, "error": ERROR, "resize": RESIZE}
#: The protocols of SPDY sessions.
_SPDY_EXEC, _SPDY_FORWARD = "v4.channel.k8s.io", "portforward.k8s.io"
#: Seconds in which a client must begin the streams that it is to read.
STREAM_SECONDS = 30.0
#: Connections of one forwarding session at once, and bytes that wait for one of them.
CONNECTIONS, HELD_BYTES = 128, 1 << 20

#: Where an agent serves what these options are for.
_AGENT_PATHS = {"PodExecOptions": "exec", "PodAttachOptions": "attach"}


def _pod(namespace: str, name: str) -> Pod:
    """Raises: NotFound."""
    stored = objects.get(registry.by_resource("pods"), namespace, name)
    if stored is None:
        raise NotFound.of("pods", name)
    return codec.decode_text(Pod, stored.text)


def _path(*parts: str) -> str:
    return "/" + "/".join(quote(part, safe="") for part in parts)


# exec and attach ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamPlace:
    """Where the conversation is, at which agent."""

    agent: AgentAddress
    path: str
    options: StreamOptions


def find(namespace: str, name: str, options: StreamOptions) -> StreamPlace:
    """Raises: ApiError in Kubernetes' words."""
    pod = _pod(namespace, name)
    options = checked_stream_options(options)
    container = container_on_node(pod, options.container)
    agent = agents.locate(pod.spec.node_name)
    return StreamPlace(agent=agent, path=_path(_AGENT_PATHS[options.kind], namespace, name, container), options=options)


class Client(Protocol):
    """A client of exec and attach, whatever protocol it speaks."""

    async def accept(self) -> None: ...

    async def receive(self) -> tuple[int, bytes] | None:
        """The next channel with its bytes; None when the client has gone. Raises: BadMessage."""
        ...

    async def send(self, channel: int, data: bytes) -> None: ...

    async def end(self, channel: int) -> None:
        """Nothing more comes on this channel."""

    async def finish(self, status: bytes) -> None:
        """The last word. status: a v1.Status."""


class SocketClient:
    """One that speaks the channels of a WebSocket."""

    def __init__(self, session: Session, protocol: Subprotocol) -> None:
        self._session, self._protocol = session, protocol

    async def accept(self) -> None:
        await self._session.accept(self._protocol.name)
        if not self._protocol.can_close:  # older clients wait for a first message
            await self.send(STDOUT, b"")

    async def receive(self) -> tuple[int, bytes] | None:
        message = await self._session.receive()
        return None if message is None else self._protocol.read(message)

    async def send(self, channel: int, data: bytes) -> None:
        await self._session.send(self._protocol.message(channel, data))

    async def end(self, channel: int) -> None:
        """The end of the session tells it."""

    async def finish(self, status: bytes) -> None:
        if self._protocol.has_status:
            await self.send(ERROR, status)
        elif (told := msgspec.json.decode(status)).get("status") != "Success":
            await self.send(ERROR, str(told.get("message", "")).encode())
        await self._session.close()


class SpdyClient:
    """One that opens a SPDY stream for each channel. expected: the channels that it is to open."""

    def __init__(self, session: Session, expected: frozenset[int]) -> None:
        self._session, self._expected = session, expected
        self._spdy = Spdy()
        self._streams: dict[int, int] = {}
        self._channels: dict[int, int] = {}
        self._opened = {channel: asyncio.Event() for channel in expected}
        self._waiting: list[tuple[int, bytes]] = []

    async def accept(self) -> None:
        await self._session.accept(_SPDY_EXEC)

    async def receive(self) -> tuple[int, bytes] | None:
        while not self._waiting:
            message = await self._session.receive()
            if message is None:
                return None
            for event in self._spdy.feed(message.encode() if isinstance(message, str) else message):
                await self._take(event)
        return self._waiting.pop(0)

    async def _take(self, event: Opened | Data | Reset | Ping) -> None:
        match event:
            case Opened(stream, headers, last):
                channel = _STREAMS.get(headers.get("streamtype", ""), -1)
                if channel not in self._expected or channel in self._streams:
                    await self._session.send(self._spdy.refuse(stream))
                    return
                self._streams[channel], self._channels[stream] = stream, channel
                await self._session.send(self._spdy.reply(stream))
                self._opened[channel].set()
                if last:
                    self._waiting.append((CLOSE, bytes((channel,))))
            case Data(stream, data, last) if stream in self._channels:
                channel = self._channels[stream]
                if data:
                    self._waiting.append((channel, data))
                if last:
                    self._waiting.append((CLOSE, bytes((channel,))))
            case Reset(stream) if stream in self._channels:
                self._waiting.append((CLOSE, bytes((self._channels[stream],))))
            case Ping(answer):
                await self._session.send(answer)
            case _:
                pass

    async def send(self, channel: int, data: bytes, *, last: bool = False) -> None:
        if channel not in self._opened:
            return
        async with asyncio.timeout(STREAM_SECONDS):
            await self._opened[channel].wait()
        for frame in self._spdy.data(self._streams[channel], data, last=last):
            await self._session.send(frame)

    async def end(self, channel: int) -> None:
        await self.send(channel, b"", last=True)

    async def finish(self, status: bytes) -> None:
        await self.send(ERROR, status, last=True)


async def _enter(request: SessionRequest, session: Session) -> None:
    place = await in_reader(lambda: find(request.namespace, request.name, request.options))
    client = _client(request, session, place.options)
    person = flow_of(request.identity)
    async with agents.converse(place.agent, place.path, place.options.query(), person=person) as agent:
        await client.accept()
        outwards = asyncio.ensure_future(_from_agent(agent, client))
        inwards = asyncio.ensure_future(_to_agent(client, agent))
        await first_of(outwards, inwards)
        if outwards.done() and request.is_spdy:
            await session.until_gone()


def _client(request: SessionRequest, session: Session, options: StreamOptions) -> Client:
    """Raises: BadRequest where no protocol is common to both."""
    if request.is_spdy:
        _need_protocol(request, (_SPDY_EXEC,))
        wanted = {STDIN: options.stdin, STDOUT: options.stdout, STDERR: options.stderr, RESIZE: options.tty}
        return SpdyClient(session, frozenset({ERROR, *(channel for channel, is_used in wanted.items() if is_used)}))
    protocol = channels.chosen(request.protocols)
    if protocol is None:
        raise _no_protocol(request, channels.PROTOCOLS[:-1])
    return SocketClient(session, protocol)


def _need_protocol(request: SessionRequest, served: Sequence[str]) -> None:
    """Raises: BadRequest."""
    if not set(request.protocols) & set(served):
        raise _no_protocol(request, served)


def _no_protocol(request: SessionRequest, served: Sequence[str]) -> BadRequest:
    return BadRequest(
        f"unable to upgrade: unable to negotiate protocol: client supports [{' '.join(request.protocols)}], "
        f"server accepts [{' '.join(served)}]"
    )


async def first_of(*tasks: asyncio.Future[None]) -> None:
    """Until one of them is done; the others are cancelled. Raises: what that one raises."""
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()


async def _to_agent(client: Client, agent: AgentStream) -> None:
    """Until the client has gone, or the agent takes no more: then it has a last word."""
    with suppress(BadMessage, BadFrame):  # a client that speaks something else has as good as gone
        while (message := await client.receive()) is not None:
            channel, data = message
            with suppress(OSError):
                if channel == CLOSE and data:
                    await agent.close_channel(data[0])
                elif channel in (STDIN, RESIZE):
                    await agent.send(channel, data)


async def _from_agent(agent: AgentStream, client: Client) -> None:
    """Until the agent has said how it ended."""
    try:
        while (frame := await agent.receive()) is not None:
            channel, data = frame
            if channel == ERROR:
                await client.finish(data)
                return
            if channel == CLOSE:
                await client.end(data[0])
            else:
                await client.send(channel, data)
    except (ConnectionError, BadMessage):
        pass
    lost = channels.failure("Internal error occurred: the node's agent has ended the session")
    await client.finish(msgspec.json.encode(lost))


# portforward ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Forwarding:
    """What a forwarding session knows of its pod. person: among whose sessions its connections count."""

    agent: AgentAddress
    path: str
    pod: str
    person: str

    def trouble(self, port: int, error: ApiError) -> bytes:
        """The error that the client gets for a connection that failed."""
        why = error.text if isinstance(error, SessionRefused) else error.message
        return f"error forwarding port {port} to pod {self.pod}: {why}".encode()

    def connect(self, port: int) -> Any:
        """A conversation with a port of the pod. Raises: ApiError on entering."""
        return agents.converse(self.agent, self.path, [("port", str(port))], person=self.person)


def find_pod(namespace: str, name: str, *, uid: str = "") -> tuple[AgentAddress, str]:
    """(agent, path). Raises: ApiError in Kubernetes' words."""
    pod = _pod(namespace, name)
    if uid not in ("", pod.metadata.uid):
        raise NotFound.of("pods", name)
    check_node(pod)
    if pod.status.phase != "Running":
        raise BadRequest(f"unable to forward port because pod is not running. Current status={pod.status.phase}")
    return agents.locate(pod.spec.node_name), _path("portForward", namespace, name)


async def _forward(request: SessionRequest, session: Session) -> None:
    agent, path = await in_reader(lambda: find_pod(request.namespace, request.name))
    forwarding = Forwarding(agent=agent, path=path, pod=request.name, person=flow_of(request.identity))
    if request.is_spdy:
        _need_protocol(request, (_SPDY_FORWARD,))
        await SpdyForwarder(session, forwarding).run(_SPDY_FORWARD)
    elif channels.TUNNELLED in request.protocols:
        await SpdyForwarder(session, forwarding).run(channels.TUNNELLED)
    else:
        protocol = channels.chosen(request.protocols, channels.FORWARDING_PROTOCOLS)
        if protocol is None:
            raise _no_protocol(request, (channels.TUNNELLED, *channels.FORWARDING_PROTOCOLS[:-1]))
        if not request.options.ports:
            raise BadRequest('query parameter "port" is required')
        await ChannelForwarder(session, forwarding, protocol, request.options.ports).run()


@dataclass(slots=True)
class Inlet:
    """Bytes on their way to one connection. A full one makes whoever fills it wait."""

    _data: bytearray = field(default_factory=bytearray)
    _ended: bool = False
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _room: asyncio.Event = field(default_factory=asyncio.Event)
    _closed: bool = False

    async def put(self, data: bytes) -> None:
        """What comes for a connection that is gone is lost."""
        while len(self._data) > HELD_BYTES and not self._closed:
            self._room.clear()
            await self._room.wait()
        if not self._closed:
            self._data += data
            self._changed.set()

    def end(self) -> None:
        self._ended = True
        self._changed.set()

    def close(self) -> None:
        self._closed = True
        self._data.clear()
        self._room.set()

    async def take(self) -> bytes | None:
        """All that is here; None at the end."""
        while not (self._data or self._ended):
            self._changed.clear()
            await self._changed.wait()
        taken = bytes(self._data)
        self._data.clear()
        self._room.set()
        return taken or None


async def _fill(inlet: Inlet, agent: AgentStream) -> None:
    """Until the client's side ends; the answer may still come."""
    with suppress(OSError):
        while (data := await inlet.take()) is not None:
            await agent.send(STDIN, data)
        await agent.close_channel(STDIN)
    await asyncio.get_running_loop().create_future()


class SpdyForwarder:
    """A session in which the client opens two streams for each connection: one for errors, one for data."""

    def __init__(self, session: Session, forwarding: Forwarding) -> None:
        self._session, self._forwarding = session, forwarding
        self._spdy = Spdy()
        #: by the client's number of a connection: the stream for its errors
        self._errors: dict[str, int] = {}
        self._inlets: dict[int, Inlet] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, protocol: str) -> None:
        """Until the client has gone."""
        await self._session.accept(protocol)
        try:
            while (message := await self._session.receive()) is not None:
                for event in self._spdy.feed(message.encode() if isinstance(message, str) else message):
                    await self._take(event)
                self._check_tasks()
        except BadFrame:
            await self._session.close()
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _check_tasks(self) -> None:
        """Raises: an unexpected error of a connection, for which the protocol has no message."""
        for task in [task for task in self._tasks if task.done()]:
            self._tasks.discard(task)
            task.result()

    async def _take(self, event: Opened | Data | Reset | Ping) -> None:
        match event:
            case Opened(stream, headers, last):
                await self._begin(stream, headers, last=last)
            case Data(stream, data, last):
                if (inlet := self._inlets.get(stream)) is not None:
                    await inlet.put(data)
                    if last:
                        inlet.end()
            case Reset(stream):
                if (inlet := self._inlets.get(stream)) is not None:
                    inlet.end()
            case Ping(answer):
                await self._session.send(answer)

    async def _begin(self, stream: int, headers: Mapping[str, str], *, last: bool) -> None:
        number, type_ = headers.get("requestid", ""), headers.get("streamtype", "")
        full = len(self._errors) + len(self._inlets) >= 2 * CONNECTIONS
        try:
            port = port_of(headers.get("port", ""))
        except BadRequest:
            port = 0
        if full or not port or type_ not in ("error", "data") or (type_ == "data" and number not in self._errors):
            await self._session.send(self._spdy.refuse(stream))
            return
        await self._session.send(self._spdy.reply(stream))
        if type_ == "error":
            self._errors[number] = stream
            return
        inlet = self._inlets[stream] = Inlet()
        if last:
            inlet.end()
        errors = self._errors.pop(number)
        self._tasks.add(asyncio.create_task(self._connection(port, stream, errors, inlet)))

    async def _connection(self, port: int, stream: int, errors: int, inlet: Inlet) -> None:
        """One connection to the port, from its beginning to its end."""
        trouble = b""
        try:
            with self._session.one_more():
                async with self._forwarding.connect(port) as agent:
                    outwards = asyncio.ensure_future(self._answer(agent, stream))
                    await first_of(outwards, asyncio.ensure_future(_fill(inlet, agent)))
        except ApiError as error:
            trouble = self._forwarding.trouble(port, error)
        finally:
            inlet.close()
            del self._inlets[stream]
        for one, text in ((errors, trouble), (stream, b"")):
            await self._send(one, text, last=True)
            self._spdy.forget(one)

    async def _answer(self, agent: AgentStream, stream: int) -> None:
        with suppress(ConnectionError, BadMessage):
            while (frame := await agent.receive()) is not None:
                channel, data = frame
                if channel == STDOUT:
                    await self._send(stream, data)
                elif channel == ERROR:
                    return

    async def _send(self, stream: int, data: bytes, *, last: bool = False) -> None:
        for frame in self._spdy.data(stream, data, last=last):
            await self._session.send(frame)


class ChannelForwarder:
    """Two channels for each port that the query names: data, errors. Each begins with the port's number."""

    def __init__(self, session: Session, forwarding: Forwarding, protocol: Subprotocol, ports: Sequence[int]) -> None:
        self._session, self._forwarding, self._protocol = session, forwarding, protocol
        self._ports = tuple(ports)
        self._inlets = [Inlet() for _ in ports]

    async def run(self) -> None:
        """Until the client has gone, or every connection has ended."""
        await self._session.accept(self._protocol.name)
        await first_of(asyncio.ensure_future(self._listen()), asyncio.ensure_future(self._connect_all()))

    async def _listen(self) -> None:
        with suppress(BadMessage):
            while (message := await self._session.receive()) is not None:
                channel, data = self._protocol.read(message)
                if channel % 2 == 0 and channel // 2 < len(self._inlets):
                    await self._inlets[channel // 2].put(data)

    async def _connect_all(self) -> None:
        await asyncio.gather(*(self._connection(number) for number in range(len(self._ports))))
        await self._session.close()

    async def _connection(self, number: int) -> None:
        port, inlet = self._ports[number], self._inlets[number]
        for channel in (2 * number, 2 * number + 1):
            await self._tell(channel, struct.pack("<H", port))
        try:
            with self._session.one_more():
                async with self._forwarding.connect(port) as agent:
                    outwards = asyncio.ensure_future(self._answer(agent, 2 * number))
                    await first_of(outwards, asyncio.ensure_future(_fill(inlet, agent)))
        except ApiError as error:
            await self._tell(2 * number + 1, self._forwarding.trouble(port, error))
        finally:
            inlet.close()

    async def _answer(self, agent: AgentStream, channel: int) -> None:
        with suppress(ConnectionError, BadMessage):
            while (frame := await agent.receive()) is not None:
                if frame[0] == STDOUT:
                    await self._tell(channel, frame[1])
                elif frame[0] == ERROR:
                    return

    async def _tell(self, channel: int, data: bytes) -> None:
        await self._session.send(self._protocol.message(channel, data))


# The API server's own connections -------------------------------------------------------------------------------------


class PortStream:
    """A port of a pod."""

    def __init__(self, agent: AgentStream) -> None:
        self._agent = agent

    async def send(self, data: bytes) -> None:
        """Raises: OSError."""
        await self._agent.send(STDIN, data)

    async def receive(self) -> bytes:
        """b"" at the end. Raises: OSError."""
        try:
            while (frame := await self._agent.receive()) is not None:
                channel, data = frame
                if channel == STDOUT:
                    return data
                if channel in (ERROR, CLOSE):
                    break
        except BadMessage as error:
            raise ConnectionError(str(error)) from error
        return b""


def connect_to_port(namespace: str, name: str, uid: str, port: int) -> AbstractAsyncContextManager[PortStream]:
    """For webhooks that run in pods. Raises: ApiError, also on entering."""
    agent, path = find_pod(namespace, name, uid=uid)

    @asynccontextmanager
    async def connected() -> AsyncIterator[PortStream]:
        async with agents.converse(agent, path, [("port", str(port))], person=tokens.API_SERVER.name) as stream:
            yield PortStream(stream)

    return connected()


# What is served -------------------------------------------------------------------------------------------------------


_OF_STREAMS = (
    ("container", "string", "The container; required if the pod has several."),
    ("stdin", "boolean", "Whether standard input is sent."),
    ("stdout", "boolean", "Whether standard output is wanted."),
    ("stderr", "boolean", "Whether standard error is wanted."),
    ("tty", "boolean", "Whether there is a terminal; its standard error is part of standard output."),
)
EXEC = Upgraded(
    name="exec",
    kind="PodExecOptions",
    parameters=(("command", "string", "The command and its arguments, each by itself; no shell."), *_OF_STREAMS),
    read=partial(read_stream_options, attach=False),
    check=find,
    serve=_enter,
)
ATTACH = Upgraded(
    name="attach",
    kind="PodAttachOptions",
    parameters=_OF_STREAMS,
    read=partial(read_stream_options, attach=True),
    check=find,
    serve=_enter,
)
PORT_FORWARD = Upgraded(
    name="portforward",
    kind="PodPortForwardOptions",
    parameters=(("ports", "integer", "The ports, for a WebSocket without SPDY."),),
    read=read_forward_options,
    check=lambda namespace, name, _options: find_pod(namespace, name),
    serve=_forward,
)

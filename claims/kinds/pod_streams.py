"""core/v1 PodExecOptions, PodAttachOptions and PodPortForwardOptions: what a client wants of a running pod. Pure.

The options go from the client to the API server in the query, and from there to the node's agent.
Source: k8s.io/api/core/v1; kubernetes pkg/registry/core/pod/strategy.go (ExecLocation, AttachLocation,
PortForwardLocation); k8s.io/kubelet/pkg/cri/streaming/remotecommand (NewOptions), .../portforward.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from claims.kinds.pod_logs import chosen_container
from claims.kinds.pods import Pod
from manciple.wire.base import ApiObject
from manciple.wire.errors import BadRequest

#: What a query names, each as often as it is given.
Query = Mapping[str, Sequence[str]]
#: Bytes of a command with its arguments, and ports of one session.
COMMAND_BYTES, PORTS = 128 * 1024, 64
_TRUE = frozenset({"1", "t", "T", "true", "True", "TRUE"})


class StreamOptions(ApiObject):
    """Of exec and attach: PodExecOptions, PodAttachOptions. command: () for attach."""

    container: str = ""
    command: tuple[str, ...] = ()
    stdin: bool = False
    stdout: bool = False
    stderr: bool = False
    tty: bool = False

    def query(self) -> list[tuple[str, str]]:
        """The options as they are handed on to the agent, which finds the container in the path."""
        flags = {"stdin": self.stdin, "stdout": self.stdout, "stderr": self.stderr, "tty": self.tty}
        return [
            *(("command", word) for word in self.command),
            *((name, "true") for name, wanted in flags.items() if wanted),
        ]


class PortForwardOptions(ApiObject):
    """PodPortForwardOptions. ports: of a WebSocket without SPDY, whose streams name theirs."""

    ports: tuple[int, ...] = ()


def read_stream_options(query: Query, *, attach: bool) -> StreamOptions:
    return StreamOptions(
        api_version="v1",
        kind="PodAttachOptions" if attach else "PodExecOptions",
        container=next(iter(query.get("container", ())), ""),
        command=() if attach else tuple(query.get("command", ())),
        stdin=_flag(query, "stdin"),
        stdout=_flag(query, "stdout"),
        stderr=_flag(query, "stderr"),
        tty=_flag(query, "tty"),
    )


def _flag(query: Query, name: str) -> bool:
    return next(iter(query.get(name, ())), "") in _TRUE


def checked_stream_options(options: StreamOptions) -> StreamOptions:
    """With a terminal, stderr is part of stdout. Raises: BadRequest."""
    command = options.command
    if options.kind == "PodExecOptions" and not command:
        raise BadRequest("you must specify at least 1 command for the container")
    if sum(len(word.encode()) for word in command) > COMMAND_BYTES:
        raise BadRequest(f"a command has at most {COMMAND_BYTES} bytes")
    if any("\0" in word for word in command):
        raise BadRequest("a command has no NUL bytes")
    if not (options.stdin or options.stdout or options.stderr):
        raise BadRequest("you must specify at least 1 of stdin, stdout, stderr")
    return replace(options, stderr=options.stderr and not options.tty)


def read_forward_options(query: Query) -> PortForwardOptions:
    """Raises: BadRequest."""
    texts = [text for value in query.get("ports", ()) for text in value.split(",")]
    if len(texts) > PORTS:
        raise BadRequest(f"at most {PORTS} ports are forwarded at once")
    return PortForwardOptions(
        api_version="v1", kind="PodPortForwardOptions", ports=tuple(port_of(text) for text in texts)
    )


def port_of(text: str) -> int:
    """Raises: BadRequest."""
    if not (text.isascii() and text.isdigit() and len(text) <= len("65535") and 1 <= int(text) <= 65535):  # noqa: PLR2004 - a port
        raise BadRequest(f"unable to parse {text!r} as a port")
    return int(text)


def container_on_node(pod: Pod, wanted: str) -> str:
    """The container that is meant, of a pod that has a node. Raises: BadRequest."""
    container = chosen_container(pod, wanted)
    check_node(pod)
    return container


def check_node(pod: Pod) -> None:
    """Raises: BadRequest."""
    if not pod.spec.node_name:
        raise BadRequest(f"pod {pod.metadata.name} does not have a host assigned")

"""core/v1 PodLogOptions: what of a container's log is wanted. Pure.

The same parameters go from the client to the API server and from there to the node's agent.
Source: k8s.io/api/core/v1 PodLogOptions; ValidatePodLogOptions of kubernetes pkg/apis/core/validation; LogLocation of
pkg/registry/core/pod/strategy.go.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from claims.kinds.pods import Pod
from manciple.wire.base import Value
from manciple.wire.errors import BadRequest, FieldError, forbidden, invalid, not_supported

STREAMS = ("All", "Stderr", "Stdout")
#: A number is an int64, as in protobuf.
INT64_BITS = 64


class PodLogOptions(Value):
    """since_time: RFC 3339; at most one of it and since_seconds. stream: one of STREAMS, "" means All."""

    container: str = ""
    follow: bool = False
    previous: bool = False
    since_seconds: int | None = None
    since_time: str = ""
    timestamps: bool = False
    tail_lines: int | None = None
    limit_bytes: int | None = None
    insecure_skip_tls_verify_backend: bool = False
    stream: str = ""


def read_options(query: Mapping[str, str]) -> PodLogOptions:
    """The options of a query string. Raises: BadRequest for a number or a time that is none."""
    return PodLogOptions(
        container=query.get("container", ""),
        follow=_flag(query, "follow"),
        previous=_flag(query, "previous"),
        since_seconds=_number(query, "sinceSeconds"),
        since_time=_time(query, "sinceTime"),
        timestamps=_flag(query, "timestamps"),
        tail_lines=_number(query, "tailLines"),
        limit_bytes=_number(query, "limitBytes"),
        insecure_skip_tls_verify_backend=_flag(query, "insecureSkipTLSVerifyBackend"),
        stream=query.get("stream", ""),
    )


def wrong_options(options: PodLogOptions) -> list[FieldError]:
    """What contradicts the rules; empty when nothing does."""
    wrong: list[FieldError] = []
    if options.tail_lines is not None and options.tail_lines < 0:
        wrong.append(invalid("tailLines", options.tail_lines, "must be greater than or equal to 0"))
    if options.limit_bytes is not None and options.limit_bytes < 1:
        wrong.append(invalid("limitBytes", options.limit_bytes, "must be greater than 0"))
    if options.since_seconds is not None and options.since_time:
        wrong.append(forbidden("", "at most one of `sinceTime` or `sinceSeconds` may be specified"))
    elif options.since_seconds is not None and options.since_seconds < 1:
        wrong.append(invalid("sinceSeconds", options.since_seconds, "must be greater than 0"))
    if options.stream and options.stream not in STREAMS:
        wrong.append(not_supported("stream", options.stream, STREAMS))
    return wrong


def agent_query(options: PodLogOptions) -> dict[str, str]:
    """The options as they are handed on to a node's agent, which finds the container in the path."""
    flags = {"follow": options.follow, "previous": options.previous, "timestamps": options.timestamps}
    numbers = {
        "sinceSeconds": options.since_seconds,
        "tailLines": options.tail_lines,
        "limitBytes": options.limit_bytes,
    }
    texts = {"sinceTime": options.since_time, "stream": options.stream}
    return {
        **{name: "true" for name, wanted in flags.items() if wanted},
        **{name: str(number) for name, number in numbers.items() if number is not None},
        **{name: text for name, text in texts.items() if text},
    }


def chosen_container(pod: Pod, wanted: str) -> str:
    """The container whose log is meant: `wanted`, or the only one. Raises: BadRequest naming those there are."""
    spec = pod.spec
    names = [one.name for one in (*spec.init_containers, *spec.containers, *spec.ephemeral_containers)]
    if wanted:
        if wanted not in names:
            raise BadRequest(f"container {wanted} is not valid for pod {pod.metadata.name}")
        return wanted
    if len(spec.containers) == 1:
        return spec.containers[0].name
    message = f"a container name must be specified for pod {pod.metadata.name}, choose one of: [{' '.join(names)}]"
    raise BadRequest(message)


def _flag(query: Mapping[str, str], name: str) -> bool:
    """As upstream reads it: whatever is there and is not "false" or "0" is true."""
    return name in query and query[name].lower() not in ("false", "0")


def _number(query: Mapping[str, str], name: str) -> int | None:
    text = query.get(name, "")
    try:
        number = int(text) if text else None
    except ValueError as error:
        raise BadRequest(f"{name}: {text!r} is not a whole number") from error
    if number is not None and number.bit_length() >= INT64_BITS:
        raise BadRequest(f"{name}: {text!r} is too large a number")
    return number


def _time(query: Mapping[str, str], name: str) -> str:
    text = query.get(name, "")
    if text and not _is_time(text):
        raise BadRequest(f"{name}: {text!r} is not a time such as 2026-05-01T12:00:00Z")
    return text


def _is_time(text: str) -> bool:
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False

"""A pod's way as a trace of OpenTelemetry: created, queued, scheduled, bound, prepared, started. Off by default.

    if traces.recorder.value:
        traces.tell(pod.metadata.uid, "schedule", began=began, ended=time.time())

No process hands anything to another: the trace's id is the pod's uid, which everybody has who works on it, and the id
of its outermost span is made of the same. So a trace costs the log and the objects nothing, and is whole however many
workers, restarts and retries were on the way. Whether a pod is traced follows from its uid as well, so all agree.
The spans of one process are sent in batches, from a thread of the SDK's; what cannot be sent is lost.

While it is off, nothing is imported, and a place that would tell something asks one variable. The SDK is an optional
group of dependencies ("traces").
"""

from __future__ import annotations

import hashlib
import os
import secrets
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol
from uuid import UUID

from manciple.per_process import PerProcess

#: The extra that has the SDK, for who lacks it.
EXTRA = "traces"
_NANOSECONDS = 1_000_000_000


class Exporter(Protocol):
    """opentelemetry.sdk.trace.export.SpanExporter"""

    def export(self, spans: Any) -> Any: ...
    def shutdown(self) -> None: ...


class SdkMissing(Exception):
    """Traces are wanted, and the packages are not there."""


@dataclass(frozen=True, slots=True)
class _Identity:
    """trace: the pod's uid, as OpenTelemetry has it; outermost: the id of the span around all others."""

    trace: int
    outermost: int


def identity_of(uid: str) -> _Identity:
    digest = int.from_bytes(hashlib.blake2b(uid.encode(), digest_size=8).digest(), "big")
    try:
        trace = UUID(uid).int
    except ValueError:  # a client chose it
        trace = int.from_bytes(hashlib.blake2b(uid.encode(), digest_size=16).digest(), "big")
    return _Identity(trace or 1, digest or 1)


def is_sampled(uid: str, part: float) -> bool:
    """Whether the pod is one of the `part` (0 to 1) of all pods that are traced."""
    return identity_of(uid).outermost < part * 2**64


class _Recorder:
    """What makes spans of this process and sends them."""

    def __init__(self, service: str, exporter: Exporter, part: float) -> None:
        from opentelemetry import context, trace  # noqa: PLC0415 - optional
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415 - as above
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415 - as above
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415 - as above

        self._part = part
        self._ids = _Ids()
        self._trace, self._context = trace, context.Context
        host = os.uname().nodename
        resource = Resource.create({"service.name": service, "service.instance.id": f"{host}-{os.getpid()}"})
        self._made = TracerProvider(resource=resource, shutdown_on_exit=False, id_generator=self._ids)  # type: ignore[arg-type]  # a protocol of ours
        self._made.add_span_processor(BatchSpanProcessor(exporter))  # type: ignore[arg-type]  # a protocol of ours
        self._tracer = self._made.get_tracer("manciple")

    def tell(
        self,
        uid: str,
        name: str,
        began: float,
        ended: float,
        *,
        outermost: bool,
        error: str,
        linked: str,
        attributes: Mapping[str, Any],
    ) -> None:
        if not is_sampled(uid, self._part):
            return
        ids = identity_of(uid)
        if outermost:
            within = self._context()
            self._ids.next = ids
        else:
            parent = self._trace.SpanContext(
                ids.trace, ids.outermost, is_remote=True, trace_flags=self._trace.TraceFlags(1)
            )
            within = self._trace.set_span_in_context(self._trace.NonRecordingSpan(parent), self._context())
        told = {name: value for name, value in attributes.items() if value != ""}
        span = self._tracer.start_span(
            name,
            context=within,
            start_time=int(began * _NANOSECONDS),
            attributes={"k8s.pod.uid": uid, **told},
            links=[self._link(linked)] if linked else [],
        )
        if error:
            span.set_status(self._trace.StatusCode.ERROR, error)
        span.end(end_time=int(max(began, ended) * _NANOSECONDS))

    def _link(self, traceparent: str) -> Any:
        _version, trace, span, flags = traceparent.split("-")
        known = self._trace.SpanContext(
            int(trace, 16), int(span, 16), is_remote=True, trace_flags=self._trace.TraceFlags(int(flags, 16))
        )
        return self._trace.Link(known)

    def close(self) -> None:
        self._made.shutdown()


class _Ids(threading.local):
    """Draws the ids of spans, but for the outermost of a pod, whose are given; of each thread."""

    next: _Identity | None = None

    def generate_trace_id(self) -> int:
        return self.next.trace if self.next is not None else secrets.randbits(128) or 1

    def generate_span_id(self) -> int:
        given, self.next = self.next, None
        return given.outermost if given is not None else secrets.randbits(64) or 1

    def is_trace_id_random(self) -> bool:
        """A pod's uid is random but for six of its bits."""
        return False


def _close(recorder: _Recorder | None) -> None:
    if recorder is not None:
        recorder.close()


#: None while traces are off: checked before the times for a span are taken.
recorder = PerProcess[_Recorder | None](lambda: None, stop=_close)


def begin(service: str, endpoint: str, *, part: float = 1.0, exporter: Exporter | None = None) -> None:
    """Send the spans of this process to `endpoint` (OTLP over HTTP: http://COLLECTOR:4318/v1/traces).

    service: as which this process is told; what it was first, it stays. part: of all pods, those that are traced.
    Raises: SdkMissing.
    """
    if recorder.value:
        return
    try:
        recorder.value = _Recorder(service, exporter or _otlp(endpoint), part)
    except ImportError as error:
        raise SdkMissing(f"traces need packages that are not installed ({error}): uv sync --extra {EXTRA}") from error


def _otlp(endpoint: str) -> Exporter:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415 - optional

    return OTLPSpanExporter(endpoint=endpoint)


def end() -> None:
    """Send what is not sent yet."""
    recorder.reset()


def tell(
    uid: str,
    name: str,
    *,
    began: float,
    ended: float | None = None,
    outermost: bool = False,
    error: str = "",
    linked: str = "",
    attributes: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """One step on the way of the pod with this uid; nothing while traces are off.

    began, ended: POSIX seconds, now unless given. outermost: it is the whole way, and the other steps are within it.
    linked: the traceparent of what somebody else's trace tells of the same step.
    attributes: by their names in OpenTelemetry; those that are "" are left out.
    """
    if (recording := recorder.value) is not None:
        until = time.time() if ended is None else ended
        recording.tell(uid, name, began, until, outermost=outermost, error=error, linked=linked, attributes=attributes)

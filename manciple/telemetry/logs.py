"""Lines of the log as JSON, each with the object that it is about and the request in which it was said.

    {"ts": "2026-11-23T18:40:01.123456Z", "level": "ERROR", "logger": "scheduling.cycle.commit", "msg": "pod lab/train-1
    ...",
     "object": {"kind": "Pod", "namespace": "lab", "name": "train-1", "uid": "..."}, "error": "Traceback ..."}

Whoever works on one object says so once, around the work (`about`); what is logged within, by whichever module, has its
key. Whoever knows the request (`describe`) is asked when a line is written, and only then: where lines are plain text,
all this costs is setting a context variable. The uid of an object is what lines of the API, of workers and of agents
have in common; its resourceVersion is the revision at which it was written, and so leads from a worker's line to the
very request in the audit trail.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextvars import ContextVar, Token
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Protocol

import msgspec

#: Formats of the log: what `--log-format` and MANCIPLE_LOG_FORMAT take.
FORMATS = ("text", "json")
TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"

#: What is added to every line that is written: field -> value; values that are "" or None are left out.
Describe = Callable[[], Mapping[str, Any]]


class Metadata(Protocol):
    """Of an object of the API, as far as logs tell of it."""

    @property
    def namespace(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def uid(self) -> str: ...
    @property
    def resource_version(self) -> str: ...


class Named(Protocol):
    """An object of the API."""

    @property
    def kind(self) -> str: ...
    @property
    def metadata(self) -> Metadata: ...


_subject: ContextVar[Named | None] = ContextVar("subject", default=None)
_describing: list[Describe] = []


class about:  # noqa: N801 - reads as a statement: `with about(pod):`
    """What is logged within is about this object; None leaves the outer one."""

    __slots__ = ("_obj", "_token")

    def __init__(self, obj: Named | None) -> None:
        self._obj = obj
        self._token: Token[Named | None] | None = None

    def __enter__(self) -> None:
        if self._obj is not None:
            self._token = _subject.set(self._obj)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._token is not None:
            _subject.reset(self._token)


def describe(source: Describe) -> None:
    """Ask `source` for more about every line that is written."""
    _describing.append(source)


def key_of(obj: Named) -> dict[str, str]:
    """An object as lines name it."""
    told = {
        "kind": obj.kind,
        "namespace": obj.metadata.namespace,
        "name": obj.metadata.name,
        "uid": obj.metadata.uid,
        "resourceVersion": obj.metadata.resource_version,
    }
    return {field: value for field, value in told.items() if value}


class JsonLines(logging.Formatter):
    """A line of JSON for each record. Its fields: see the module's docstring."""

    def __init__(self) -> None:
        super().__init__()
        self._encode = msgspec.json.Encoder(enc_hook=str).encode

    def format(self, record: logging.LogRecord) -> str:
        told: dict[str, Any] = {
            "ts": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "msg": record.getMessage(),
        }
        subject = _subject.get()
        if subject is not None:
            told["object"] = key_of(subject)
        for source in _describing:
            told |= {field: value for field, value in source().items() if value not in ("", None)}
        if record.exc_info and not record.exc_text:
            record.exc_text = self.formatException(record.exc_info)
        told["thread"] = record.threadName
        if record.exc_text:
            told["error"] = record.exc_text
        return self._encode(told).decode()


def begin(*, level: str, format_: str) -> None:
    """Write the log of this process to standard error; for processes without Django's settings.

    Raises: ValueError for a level or format that does not exist.
    """
    if format_ not in FORMATS:
        raise ValueError(f"{format_!r} is no format of the log: {' or '.join(FORMATS)}")
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines() if format_ == "json" else logging.Formatter(TEXT))
    logging.basicConfig(level=level.upper(), handlers=[handler])

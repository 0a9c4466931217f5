"""What must be true of every answer, and of the state after each request and at the end."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qs, unquote

import msgspec
import orjson
import yaml

from manciple.api import requests
from manciple.api.requests import ResourcePath
from manciple.audit import recording, trail
from manciple.audit.models import Entry
from manciple.store import event_log, objects, records
from manciple.wire import codec
from manciple.wire.registry import Served, registry
from scheduling.cluster_facts import gather
from scheduling.invariants import CHECKS
from tests.indexes import assert_rebuilt_the_same
from tests.security.fuzz.front import Front, Reply, Request

#: Stands in a body for the resourceVersion that the addressed object has when the request is sent.
REVISION = b"__REVISION__"
#: What holds whatever clients write. (The others are promises of controllers, which do not run here.)
ALWAYS = ("1 no device is given twice", "4 quotas tell what is used", "7 the log gives the state")
_REASON = re.compile(r"[A-Z][A-Za-z]+")
#: Deletes object by object: the ones before a refusal are gone.
_ONE_BY_ONE = "deletecollection"


@dataclass(slots=True)
class Tally:
    """How many answers there were with each code."""

    codes: dict[int, int] = field(default_factory=dict)

    def count(self, code: int) -> None:
        self.codes[code] = self.codes.get(code, 0) + 1

    @property
    def total(self) -> int:
        return sum(self.codes.values())


class Judge:
    """Sends requests and keeps what was wrong with their answers, each kind of fault with its first request."""

    def __init__(self, front: Front, *, name: str, namespace: str = "", others: Collection[str] = ()) -> None:
        """name: whose requests they are. namespace: the only one that they may write to; "" for any.

        others: who else writes meanwhile.
        """
        self._front, self._name, self._namespace, self._others = front, name, namespace, others
        self._began = event_log.latest_revision()
        self._told: list[str] = []
        self.tally = Tally()
        self.faults: dict[str, Request | str] = {}

    def send(self, request: Request) -> None:
        request = _current(request)
        before = event_log.latest_revision()
        try:
            reply = self._front.ask(request)
        except Exception as error:  # whatever comes through the door is a fault
            self._blame(f"raised {type(error).__name__}: {error}", request)
            return
        self.tally.count(reply.code)
        wrote = event_log.latest_revision() != before
        for fault in (*wrongs(request, reply, wrote=wrote), *self._told):
            self._blame(fault, request)
        self._told.clear()

    def note(self, asked: str, *, code: int = 0, may_be_502: bool = False) -> None:
        """What was done by another way than through the front door, and how a page was answered."""
        if code:
            self.tally.count(code)
        if code >= 500 and not (code == 502 and may_be_502):
            self._blame(f"{code} of {asked}", asked)
        for fault in self._told:
            self._blame(fault, asked)
        self._told.clear()

    def _blame(self, fault: str, request: Request | str) -> None:
        if fault[:1500] not in self.faults:
            self.faults[fault[:1500]] = request
            print(f"fault: {fault[:1500]}\n    {request}", flush=True)  # long before the end of a long run

    @contextmanager
    def listening(self) -> Iterator[None]:
        """What is logged as an error meanwhile is a fault of the request under way."""
        handler = _Errors(self._told)
        logging.getLogger().addHandler(handler)
        try:
            yield
        finally:
            logging.getLogger().removeHandler(handler)

    def conclude(self) -> list[str]:
        """Every fault, of the answers and of what is left."""
        found = [f"{fault}\n    {request}" for fault, request in self.faults.items()]
        facts = gather(datetime.now(UTC))
        found += [sentence for name in ALWAYS for sentence in CHECKS[name](facts)]
        found += self._trail()
        assert_rebuilt_the_same()
        return found

    def _trail(self) -> Iterator[str]:
        """Every write is in the audit trail as this sender's, and where they may write."""
        trail.flush()
        recording.catch_up()
        entries = {one.revision: one for one in Entry.objects.filter(revision__gt=self._began)}
        for event in event_log.read_after(self._began, limit=10**6):
            entry = entries.get(event.revision)
            if entry is None:
                if event.resource not in (recording.LEASES, *recording.EVENTS):
                    yield f"revision {event.revision} ({event.resource} {event.name}) is not in the trail"
            elif entry.username in self._others or records.is_system(entry.username):
                continue
            elif self._name not in (entry.username, entry.impersonator):
                yield f"revision {event.revision} was written by {entry.username}, says the trail"
            elif self._namespace and event.namespace != self._namespace:
                yield f"{self._name} wrote {event.resource} {event.namespace}/{event.name}"


class _Errors(logging.Handler):
    def __init__(self, told: list[str]) -> None:
        super().__init__(logging.ERROR)
        self._told = told

    def emit(self, record: logging.LogRecord) -> None:
        raised = record.exc_info[1] if record.exc_info else None
        self._told.append(f"logged: {record.getMessage()[:300]} {_where(raised)}")


def _where(raised: BaseException | None) -> str:
    """The last lines of ours that it went through, and what it says."""
    if raised is None:
        return ""
    places, at = [], raised.__traceback__
    while at is not None:
        code = at.tb_frame.f_code
        places.append(f"{code.co_filename.rpartition('wt-fuzz/')[2]}:{at.tb_lineno} {code.co_name}")
        at = at.tb_next
    return f"{type(raised).__name__}: {str(raised)[:200]} <- {' <- '.join(places[-4:])}"


def _current(request: Request) -> Request:
    """With the resourceVersion of the object that it is about, where it asks for that."""
    if REVISION not in request.body:
        return request
    where = requests.parse_path(unquote(request.path))
    served = where.served() if where else None
    held = objects.get(served.kind, where.namespace, where.name) if served and where else None
    revision = orjson.loads(held.text)["metadata"]["resourceVersion"] if held else "1"
    return replace(request, body=request.body.replace(REVISION, revision.encode()))


# Answers --------------------------------------------------------------------------------------------------------------


#: What answers documents alone; everything else is pages.
_API = re.compile(r"/(api|apis|openapi)(/|$)")


def wrongs(request: Request, reply: Reply, *, wrote: bool) -> Iterator[str]:
    """What is wrong with an answer, and with what the request left."""
    where = requests.parse_path(unquote(request.path)) if _API.match(request.path) else None
    collection = request.method == "DELETE" and where is not None and not where.name
    query = parse_qs(request.query, keep_blank_values=True)
    if reply.code >= 500 and not _may_fail(reply):
        yield f"{reply.code}: {reply.body[:300].decode(errors='replace')}"
    if wrote and reply.code >= 400 and not collection:
        yield f"{reply.code}, and something was written: {reply.body[:300].decode(errors='replace')}"
    dry = "All" in query.get("dryRun", [])[-1:] and not (request.method == "DELETE" and request.body)  # its body counts
    if wrote and (dry or request.method not in ("POST", "PUT", "PATCH", "DELETE")):
        yield f"{request.method} with dryRun={query.get('dryRun')} wrote something"
    if request.method == "HEAD":
        return
    try:
        if reply.code >= 400 and _API.match(request.path):
            yield from _wrong_status(reply)
        elif where is not None and reply.headers.get("content-type", "").startswith("application/"):
            yield from _wrong_documents(where, request, reply)
    except (ValueError, KeyError, TypeError, AttributeError, yaml.YAMLError) as error:
        yield f"{reply.code} cannot be read: {type(error).__name__} {error}: {reply.body[:300]!r}"


def _may_fail(reply: Reply) -> bool:
    """Upstream's own: a revision that does not exist yet; what is really out says when to come again; and a stream of
    a node that nobody runs."""
    if reply.headers.get("content-type") != "application/json":
        return False
    causes = [one.get("reason") for one in reply.document.get("details", {}).get("causes", [])]
    return (reply.code == 504 and "ResourceVersionTooLarge" in causes) or (
        reply.code == 503 and "retry-after" in reply.headers
    )


def _wrong_status(reply: Reply) -> Iterator[str]:
    document = reply.document
    expected = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": reply.code}
    shown = {name: document.get(name) for name in expected}
    if shown != expected:
        yield f"{reply.code} is no Status: {shown}"
    if not _REASON.fullmatch(document.get("reason") or "") or not document.get("message"):
        yield f"{reply.code} says nothing: {document}"
    if reply.headers.get("content-type") != "application/json":
        yield f"{reply.code} comes as {reply.headers.get('content-type')}"


def _wrong_documents(where: ResourcePath, request: Request, reply: Reply) -> Iterator[str]:
    """Each document that was answered has its kind, and is what the store holds."""
    is_yaml = reply.headers["content-type"].startswith("application/yaml")
    for text in reply.body.splitlines() if _is_stream(reply) else [reply.body]:
        document = yaml.load(text, yaml.CSafeLoader) if is_yaml else orjson.loads(text)
        if document.keys() == {"type", "object"}:
            yield from _wrong_event(document)
            document = document["object"]
        for one in document.get("items", [document]):
            yield from _wrong_document(where, {"kind": document["kind"].removesuffix("List"), **one}, document)


def _is_stream(reply: Reply) -> bool:
    """A watch: a document a line, or none while nothing happens."""
    return not reply.body or reply.body.startswith(b'{"type":')


def _wrong_event(document: dict[str, Any]) -> Iterator[str]:
    if document["type"] == "ERROR" and document["object"]["code"] >= 500:
        yield f"a watch ends with {document['object']}"


#: What is answered in place of an object.
_OTHERS = ("Status", "Table", "PartialObjectMetadata", "Scale", "Eviction", "Binding")


def _wrong_document(where: ResourcePath, document: dict[str, Any], around: dict[str, Any]) -> Iterator[str]:
    served = where.served()
    if served is None or document["kind"] in _OTHERS or document["kind"] != served.kind.kind:
        if document["kind"] == "Table" and len(document["rows"]) and not document["rows"][0]["cells"]:
            yield "a Table has rows without cells"
        return
    version = document.get("apiVersion", around["apiVersion"])
    if version != served.api_version:
        yield f"{document['kind']} of {version} at {served.api_version}"
    stored = served.to_storage({**document, "apiVersion": served.api_version})
    codec.decode_value(served.kind.type, stored)
    yield from _not_stored(served, document)


def _not_stored(served: Served, document: dict[str, Any]) -> Iterator[str]:
    """Whether the store holds another document of this very revision."""
    meta = document["metadata"]
    held = objects.get(served.kind, meta.get("namespace", ""), meta.get("name", ""))
    if held is None or served.conversion is not None:
        return
    kept = orjson.loads(held.text)
    same = (kept["metadata"]["resourceVersion"], kept["metadata"]["uid"]) == (meta["resourceVersion"], meta["uid"])
    if same and kept != {"apiVersion": served.api_version, **document}:
        yield f"what is answered is not what is stored: {document} {kept}"


def every_stored_document_can_be_read() -> Iterator[str]:
    """In each version, and as a row of a Table."""
    for kind in registry:
        for held in objects.list(kind).items:
            try:
                obj = codec.decode_text(kind.type, held.text)
                again = orjson.loads(codec.encode(obj))
                if again != orjson.loads(held.text):
                    yield f"{kind.resource} {held.name} is not encoded as it was decoded"
                for column in kind.columns:
                    column.cell(obj, 0.0)
            except (msgspec.DecodeError, ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
                yield f"{kind.resource} {held.name}: {type(error).__name__} {error}"

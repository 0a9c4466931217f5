"""Leases of nodes are renewed past Django: all that come within a moment by one thread, in one commit.

Five thousand nodes renew five hundred Leases a second, and nothing else of a cluster at rest costs as much. What is
asked of a renewal is what is asked of every write: who asks, whether they may, the rules, admission, the trail. It
costs less because a thread is woken for a hundred of them, not for each, and because nothing of what Django and DRF do
with a request is needed. What is unusual (a parameter, another verb, apply) goes the way of all requests.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http import HTTPStatus

from django.db import close_old_connections

from manciple.api import answers, patches, requests, verbs
from manciple.api.answers import Form, error_answer, status_of, wanted_form, warning_header
from manciple.api.door import IDENTITY, ORIGIN, SHOWN, admit, attributes_of
from manciple.api.edits import Edit, WriteAnswer, made_together
from manciple.api.first_stage import asking
from manciple.api.flow import FlowLimits
from manciple.api.lanes import Answer, RequestLane
from manciple.api.request_work import RequestWork
from manciple.api.streams import Scope, headers_of
from manciple.store import hooks, objects
from manciple.wire import codec
from manciple.wire.identity import Identity
from manciple.wire.registry import Served, registry

#: Whose Leases: renewed every ten seconds, and valid for forty.
NODE_LEASES = ("leases.coordination.k8s.io", "kube-node-lease")
#: Seconds for which a renewal waits for others.
PATIENCE = 0.25
#: Requests that are answered together: no more than share a commit (`transactions.LARGEST_GROUP`).
MOST = 128
#: Requests that may wait for their commit: they hold no thread.
SEATS = 2048

_LEASE = re.compile(r"/apis/coordination\.k8s\.io/v1/namespaces/kube-node-lease/leases/[a-z0-9.-]+")
_PATCHES = frozenset({patches.MERGE_PATCH, patches.STRATEGIC_MERGE_PATCH, patches.JSON_PATCH})


def is_renewal(scope: Scope) -> bool:
    """Whether the request only replaces or patches a node's Lease."""
    if scope["query_string"] or not _LEASE.fullmatch(scope["path"]):
        return False
    method = scope["method"]
    return method == "PUT" or (method == "PATCH" and headers_of(scope).get("content-type", "") in _PATCHES)


@dataclass(slots=True)
class _Renewal:
    """One request, and what became of it."""

    scope: Scope
    body: bytes
    answered: asyncio.Future[Answer]
    remarks: hooks.Remarks = field(init=False)
    form: Form = field(init=False)

    def begun(self) -> Edit | WriteAnswer:
        """What is asked for, by whom; or the answer, where a PUT has created the Lease. Raises: ApiError."""
        method, path, headers = self.scope["method"], self.scope["path"], headers_of(self.scope)
        identity = admit(self.scope[SHOWN], attributes_of(method, path, {}), known=self.scope[IDENTITY]).let_in()
        self.form = wanted_form(headers.get("accept", ""), {})
        manager = requests.manager_of_agent(headers.get("user-agent", ""))
        name, media = path.rpartition("/")[2], headers.get("content-type", "")
        edit = self._replaced if method == "PUT" else self._patched
        found = edit(name, media, identity, manager)
        return replace(found, within=self.within) if isinstance(found, Edit) else found

    def _patched(self, name: str, media: str, identity: Identity, manager: str) -> Edit:
        patch = patches.read(_served(), self.body, media=media, strictness="Warn")
        kind, namespace = _served().kind, NODE_LEASES[1]
        return Edit(kind, patch.change, namespace, name, identity=identity, manager=manager)

    def _replaced(self, name: str, media: str, identity: Identity, manager: str) -> Edit | WriteAnswer:
        kind, namespace = _served().kind, NODE_LEASES[1]
        decoded = requests.decode_object(_served(), self.body, content_type=media, strictness="Warn")
        for text in decoded.warnings:
            self.remarks.warn(text)
        wanted, complete = verbs.placed(kind, decoded.object, namespace=namespace, name=name), _served().completed
        if objects.cached(kind, namespace, name) is None and objects.get(kind, namespace, name) is None:
            with self.within():
                return verbs.update(
                    kind, wanted, namespace=namespace, name=name, identity=identity, manager=manager, complete=complete
                )
        return verbs.replacement(kind, wanted, identity=identity, manager=manager, complete=complete)

    @contextmanager
    def within(self) -> Iterator[None]:
        with hooks.using(self.remarks), asking(_served().version, {}):
            yield

    def answer(self, outcome: WriteAnswer | Exception) -> Answer:
        if isinstance(outcome, Exception):
            refused = error_answer(status_of(outcome))
            return _answer(refused.status_code, refused.content, list(refused.headers.items()))
        text = codec.encode(outcome.object).decode()
        shown = answers.object_text(_served(), text, self.form, now=time.time())
        body, content_type = answers.in_media(shown, self.form)
        headers = [("Content-Type", content_type)]
        if warned := warning_header(self.remarks.warnings):
            headers.append(("Warning", warned))
        return _answer(HTTPStatus.CREATED if outcome.created else HTTPStatus.OK, body, headers)


def _served() -> Served:
    kind = registry.by_resource(NODE_LEASES[0])
    return Served(kind, kind.version)


def _answer(code: int, body: bytes, headers: list[tuple[str, str]]) -> Answer:
    return Answer(code, [*headers, ("Content-Length", str(len(body)))], body)


class Renewals(RequestLane):
    """Collects them for `PATIENCE`, or until they are `MOST`."""

    def __init__(self, limits: FlowLimits, *, name: str = "renewals") -> None:
        super().__init__(limits, name=name)
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)
        self._collected: list[_Renewal] = []
        self._due: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def begin(self, scope: Scope, body: bytes, work: RequestWork) -> asyncio.Future[Answer]:  # noqa: ARG002 - a Lease has nothing costly
        loop = asyncio.get_running_loop()
        if self._loop is not loop:  # what an ended one left behind has no client any more
            self._loop, self._collected, self._due = loop, [], None
        renewal = _Renewal(scope, body, loop.create_future())
        self._collected.append(renewal)
        if len(self._collected) >= MOST:
            self._go()
        elif self._due is None:
            self._due = loop.call_later(PATIENCE, self._go)
        return renewal.answered

    def _go(self) -> None:
        """Those who have come so far are served."""
        if self._due is not None:
            self._due.cancel()
            self._due = None
        together, self._collected = self._collected, []
        served = asyncio.get_running_loop().run_in_executor(self._thread, _serve, together)
        served.add_done_callback(lambda done: _tell(together, done))


def _tell(together: Sequence[_Renewal], served: asyncio.Future[list[Answer]]) -> None:
    for place, renewal in enumerate(together):
        if renewal.answered.done():
            continue  # its client has gone
        if error := served.exception():
            renewal.answered.set_exception(error)
        else:
            renewal.answered.set_result(served.result()[place])


def _serve(together: Sequence[_Renewal]) -> list[Answer]:
    """The answer to each, in their order."""
    close_old_connections()
    begun = [_begun(renewal) for renewal in together]
    made = iter(made_together([one for one in begun if isinstance(one, Edit)]))
    outcomes = [next(made) if isinstance(one, Edit) else one for one in begun]
    return [renewal.answer(outcome) for renewal, outcome in zip(together, outcomes, strict=True)]


def _begun(renewal: _Renewal) -> Edit | WriteAnswer | Exception:
    with hooks.collecting(renewal.scope.get(ORIGIN)) as renewal.remarks:
        try:
            return renewal.begun()
        except Exception as error:  # of this request alone
            return error

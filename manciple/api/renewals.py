"""Leases of nodes are renewed past Django: all that come within a moment by one thread, in one commit.

Five thousand nodes renew five hundred Leases a second, and nothing else of a cluster at rest costs as much. What is
asked of a renewal is what is asked of every patch: who asks, whether they may, the rules, admission, the trail. It
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
from dataclasses import dataclass, field
from http import HTTPStatus

from django.db import close_old_connections

from manciple.api import answers, patches
from manciple.api.answers import Form, error_answer, status_of, wanted_form, warning_header
from manciple.api.door import IDENTITY, ORIGIN, SHOWN, admit, attributes_of
from manciple.api.edits import NODE_LEASES, PATIENCE_OF_NODES, Edit, WriteAnswer, made_together
from manciple.api.first_stage import asking
from manciple.api.flow import FlowLimits
from manciple.api.lanes import Answer, RequestLane
from manciple.api.streams import Scope, headers_of
from manciple.store import hooks
from manciple.wire import codec
from manciple.wire.registry import Served, registry

#: Requests that are answered together: no more than share a commit (`transactions.LARGEST_GROUP`).
MOST = 128
#: Requests that may wait for their commit: they hold no thread.
SEATS = 2048

_LEASE = re.compile(r"/apis/coordination\.k8s\.io/v1/namespaces/kube-node-lease/leases/[a-z0-9.-]+")
_TAKEN = frozenset({patches.MERGE_PATCH, patches.STRATEGIC_MERGE_PATCH, patches.JSON_PATCH})


def is_renewal(scope: Scope) -> bool:
    """Whether the request only patches a node's Lease."""
    if scope["method"] != "PATCH" or scope["query_string"] or not _LEASE.fullmatch(scope["path"]):
        return False
    return headers_of(scope).get("content-type", "") in _TAKEN


@dataclass(slots=True)
class _Renewal:
    """One request, and what became of it."""

    scope: Scope
    body: bytes
    answered: asyncio.Future[Answer]
    remarks: hooks.Remarks = field(init=False)
    served: Served = field(init=False)
    form: Form = field(init=False)
    patch: patches.Patch = field(init=False)

    def edit(self) -> Edit:
        """What is asked for, by whom. Raises: ApiError."""
        path, headers = self.scope["path"], headers_of(self.scope)
        identity = admit(self.scope[SHOWN], attributes_of("PATCH", path, {}), known=self.scope[IDENTITY]).let_in()
        resource, namespace = NODE_LEASES
        kind = registry.by_resource(resource)
        self.served, self.form = Served(kind, kind.version), wanted_form(headers.get("accept", ""), {})
        self.patch = patches.read(self.served, self.body, media=headers["content-type"], strictness="Warn")
        return Edit(
            kind,
            self.patch.change,
            namespace,
            path.rpartition("/")[2],
            identity=identity,
            manager=headers.get("user-agent", "").partition("/")[0] or identity.name,
            within=self.within,
        )

    @contextmanager
    def within(self) -> Iterator[None]:
        with hooks.using(self.remarks), asking(self.served.version, {}):
            yield

    def answer(self, outcome: WriteAnswer | Exception) -> Answer:
        if isinstance(outcome, Exception):
            refused = error_answer(status_of(outcome))
            return _answer(refused.status_code, refused.content, list(refused.headers.items()))
        text = codec.encode(outcome.object).decode()
        shown = answers.object_text(self.served, text, self.form, now=time.time())
        body, content_type = answers.in_media(shown, self.form)
        headers = [("Content-Type", content_type)]
        if warned := warning_header([*self.patch.warnings, *self.remarks.warnings]):
            headers.append(("Warning", warned))
        return _answer(HTTPStatus.OK, body, headers)


def _answer(code: int, body: bytes, headers: list[tuple[str, str]]) -> Answer:
    return Answer(code, [*headers, ("Content-Length", str(len(body)))], body)


class Renewals(RequestLane):
    """Collects them for `PATIENCE_OF_NODES`, or until they are `MOST`."""

    def __init__(self, limits: FlowLimits, *, name: str = "renewals") -> None:
        super().__init__(limits, name=name)
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)
        self._collected: list[_Renewal] = []
        self._due: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def begin(self, scope: Scope, body: bytes) -> asyncio.Future[Answer]:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:  # what an ended one left behind has no client any more
            self._loop, self._collected, self._due = loop, [], None
        renewal = _Renewal(scope, body, loop.create_future())
        self._collected.append(renewal)
        if len(self._collected) >= MOST:
            self._go()
        elif self._due is None:
            self._due = loop.call_later(PATIENCE_OF_NODES, self._go)
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
    made = iter(made_together([edit for edit in begun if isinstance(edit, Edit)]))
    outcomes = [next(made) if isinstance(edit, Edit) else edit for edit in begun]
    return [renewal.answer(outcome) for renewal, outcome in zip(together, outcomes, strict=True)]


def _begun(renewal: _Renewal) -> Edit | Exception:
    with hooks.collecting(renewal.scope.get(ORIGIN)) as renewal.remarks:
        try:
            return renewal.edit()
        except Exception as error:  # of this request alone
            return error

"""A scene on an empty database, and as many generated requests to it as one likes, judged."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

import orjson
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from manciple.access.authentication import tokens
from manciple.api.namespaces import ensure_namespaces
from manciple.controllers.declaration import Controller, controllers
from manciple.wire.identity import MASTERS
from tests.security.fuzz.front import Front, Request, event_loop
from tests.security.fuzz.judging import Judge, every_stored_document_can_be_read
from tests.security.fuzz.pages import open_every_page, visitor
from tests.security.fuzz.scene import NAMESPACE, documents, places

Drawn = TypeVar("Drawn")
logger = logging.getLogger(__name__)

#: Requests of each kind and sender at every test run; `make fuzz` asks for more (`python -m tests.security.fuzz`).
FEW = 40
REQUESTS = int(os.environ.get("MANCIPLE_FUZZ_REQUESTS", FEW))
#: What is drawn follows from it.
SEED = int(os.environ.get("MANCIPLE_FUZZ_SEED", "1"))


#: Requests after which what was deleted is made again.
REBUILT = 40
BUILDER = "builder"
#: Kinds by which other writes are refused.
REFUSING = frozenset({"ResourceQuota", "ValidatingAdmissionPolicyBinding", "ValidatingWebhookConfiguration"})


@dataclass(frozen=True)
class Sender:
    """Who sends. namespace: where alone they may write, "" for everywhere."""

    name: str
    groups: tuple[str, ...] = ()
    namespace: str = ""


SENDERS = {"admin": Sender("root", (MASTERS,)), "ordinary user": Sender("bob", namespace=NAMESPACE)}


@contextmanager
def judged(sender: Sender) -> Iterator[tuple[Judge, Builder]]:
    """A judge over the scene; afterwards nothing was wrong."""
    ensure_namespaces()
    with event_loop() as loop:
        builder = Builder(Front(loop, tokens.issue(BUILDER, [MASTERS])))
        assert builder.build() == {201}
        front = Front(loop, tokens.issue(sender.name, sender.groups))
        judge = Judge(front, name=sender.name, namespace=sender.namespace, others=[BUILDER])
        with judge.listening():
            yield judge, builder
            if not sender.namespace:  # who may write everything leaves the worst behind
                _aftermath(judge)
        found = [*judge.conclude(), *every_stored_document_can_be_read()]
        assert not found, f"seed {SEED}, {judge.tally.total} requests, {len(found)} faults:\n" + "\n".join(found)


def _aftermath(judge: Judge) -> None:
    """What the controllers and the pages make of what is stored now."""
    for controller in controllers.value:
        _reconcile(controller)
        judge.note(f"controller {controller.name}")
    open_every_page(judge, visitor("ada"))


def _reconcile(controller: Controller) -> None:
    try:
        controller.reconcile(datetime.now(UTC))
    except Exception:
        logger.exception("controller %s failed", controller.name)


class Builder:
    """Makes the scene, and again what of it has been deleted."""

    def __init__(self, front: Front) -> None:
        self._front = front
        self._collections = {
            (one.document["apiVersion"], one.document["kind"]): one.collection for one in reversed(places())
        }

    def build(self) -> set[int]:
        """Returns the codes of the answers: 201, and 409 for what is there."""
        return {self._asked("POST", document) for document in documents()}

    def rebuild(self) -> None:
        """Without what may have come to refuse everything else."""
        for document in documents():
            if document["kind"] in REFUSING:
                self._asked("DELETE", document)
        self.build()

    def _asked(self, method: str, document: dict[str, Any]) -> int:
        request = Request(
            method=method,
            path=self._collections[document["apiVersion"], document["kind"]],
            headers=(("content-type", "application/json"),),
            body=orjson.dumps(document) if method == "POST" else b"",
        )
        return self._front.ask(request).code


def send_all(judge: Judge, builder: Builder, strategy: st.SearchStrategy[Request]) -> None:
    """REQUESTS of them; what was deleted meanwhile is made again now and then."""

    def send(request: Request) -> None:
        if judge.tally.total % REBUILT == 0:
            builder.rebuild()
        judge.send(request)

    drawn(strategy, send)


def drawn(strategy: st.SearchStrategy[Drawn], use: Callable[[Drawn], None]) -> None:
    """REQUESTS of what the strategy draws. What one meets depends on those before, so none is made smaller."""

    @seed(SEED)
    @settings(
        max_examples=REQUESTS,
        database=None,
        deadline=None,
        derandomize=False,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def take(one: Drawn) -> None:
        use(one)

    take()

"""Mutating admission: policies and webhooks change what is about to be written, one after the other.

First the policies by name and binding, then the webhooks by name of the configuration and position in it. Each sees
what those before it left, completed and with its defaults. Where anything has changed there is a second round, of those
with reinvocationPolicy IfNeeded that others have changed something after; who was not asked in the first round is not
asked in the second.

All of them together have `PATIENCE`, as one request has (upstream: --request-timeout).
Sources: apiserver/pkg/admission/{reinvocation,plugin/webhook/mutating/{dispatcher,reinvocationcontext}}.go.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from manciple.admission.requests import AdmissionRequest

#: Seconds for all that are asked about one request.
PATIENCE = 60.0
ROUNDS = 2


class Mutation(Protocol):
    """A policy with a binding, or a webhook."""

    @property
    def is_reinvoked(self) -> bool: ...

    def changed(self, request: AdmissionRequest, *, again: int, until: float) -> Any:
        """What the object becomes; None where it is not asked. again: the round, from 0. Raises: ApiError."""


class _Stage:
    """The policies, or the webhooks, of one request, and which of them a second round asks."""

    def __init__(self, mutations: Sequence[Mutation]) -> None:
        self._mutations = mutations
        #: positions, of those that are asked again if anything changes
        self._asked: set[int] = set()
        #: positions, of those that the second round asks
        self._due: set[int] = set()
        self._left: Any = None

    def run(
        self, request: AdmissionRequest, prepare: Callable[[Any], Any], *, again: int, until: float
    ) -> AdmissionRequest:
        if again and self._left != request.write.new:
            self._require()
        for position, mutation in enumerate(self._mutations):
            if again and position not in self._due:
                continue
            new = mutation.changed(request, again=again, until=until)
            if new is None and request.write.operation != "DELETE":
                continue
            if new != request.write.new:
                request = request.replaced(prepare(new))
                self._require()
            if mutation.is_reinvoked:
                self._asked.add(position)
        self._left = request.write.new
        return request

    def _require(self) -> None:
        self._due |= self._asked
        self._asked.clear()


def mutated(request: AdmissionRequest, stages: Sequence[Sequence[Mutation]], prepare: Callable[[Any], Any]) -> Any:
    """What is to be written. prepare: completes what one of them has changed. Raises: ApiError."""
    until, running = time.monotonic() + PATIENCE, [_Stage(mutations) for mutations in stages]
    for again in range(ROUNDS):
        before = request.write.new
        for stage in running:
            request = stage.run(request, prepare, again=again, until=until)
        if request.write.new == before:
            break
    return request.write.new

"""What the cluster lets the user of a mirror do, as it says by SelfSubjectAccessReview, so that pages offer that alone.

Answers are used again for seconds. Most users may do something either everywhere or in one namespace: the first
question is about all namespaces, and only where that is refused are single ones asked about, for a limited time
together. While the cluster is away nothing is allowed, and it is not asked. What it then says to the act itself is what
counts.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final, NamedTuple

import msgspec

from manciple.access import mirrored
from manciple.access.authorization import Attributes, Decision
from manciple.access.mirrored import ClusterRights
from manciple.mirror import standing
from manciple.mirror.client import Remote
from manciple.mirror.failures import RemoteFailure
from manciple.mirror.naming import Naming
from manciple.mirror.reviews import Memory
from manciple.wire.errors import ApiError
from manciple.wire.identity import Identity

logger = logging.getLogger(__name__)

PATH: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
#: Seconds for which an answer is used again, and for which it is not asked again where there was none.
FRESH, FAILED_FOR = 10.0, 5.0
#: Seconds that a question may take; that questions about single namespaces may take together while answers are fresh.
PATIENCE, MOST_SPENT = 3.0, 2.0
#: Answers that are kept.
KEPT: Final = 4096


class _Question(NamedTuple):
    user: str
    wanted: Attributes


class OwnRights(ClusterRights):
    """namespace: of the kubeconfig. named: the headers by which the cluster knows who asks."""

    def __init__(
        self, remote: Remote, *, named: Naming, namespace: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.namespace = namespace
        self._remote, self._named, self._clock = remote, named, clock
        self._known = Memory[Decision](KEPT, clock)
        self._spent, self._spent_since, self._silent_until = 0.0, clock(), clock()

    def decide(self, identity: Identity, wanted: Attributes) -> Decision:
        cluster = standing.remote()
        if cluster is None or cluster.away_since is not None:
            return Decision(False, "the cluster cannot be reached")
        decision = Decision(False)
        for question in _from_wide_to_narrow(mirrored.as_sent(wanted)):
            decision = self._decided(identity, question)
            if decision.allowed:
                break
        return decision

    def _decided(self, identity: Identity, wanted: Attributes) -> Decision:
        question, now = _Question(identity.name, wanted), self._clock()
        if (known := self._known.get(question)) is not None:
            return known
        if now < self._silent_until:
            return Decision(False, "the cluster did not say a moment ago what its user may do")
        is_narrow = bool(wanted.namespace) and wanted.namespace != self.namespace
        if now - self._spent_since > FRESH:
            self._spent, self._spent_since = 0.0, now
        if is_narrow and self._spent > MOST_SPENT:
            return Decision(False, "the cluster answers too slowly to ask about every namespace")
        decision, lasts = self._asked(identity, wanted)
        if is_narrow:
            self._spent += self._clock() - now
        self._known.put(question, decision, seconds=lasts)
        return decision

    def _asked(self, identity: Identity, wanted: Attributes) -> tuple[Decision, float]:
        """The answer, and how long it may be used."""
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {
                "resourceAttributes": {
                    "verb": wanted.verb,
                    "group": wanted.group,
                    "resource": wanted.resource,
                    "subresource": wanted.subresource,
                    "namespace": wanted.namespace,
                    "name": wanted.name,
                }
            },
        }
        try:
            headers = self._named(identity)
            answer = self._remote.send(
                "POST", PATH, body=msgspec.json.encode(review), headers=headers, timeout=PATIENCE
            )
            status = msgspec.json.decode(answer.content, type=Reviewed).status
        except ApiError as refusal:
            return Decision(False, refusal.message), FRESH
        except (RemoteFailure, msgspec.MsgspecError) as failure:
            logger.warning("The cluster does not say what its user may do: %s", failure)
            self._silent_until = self._clock() + FAILED_FOR
            return Decision(False, "the cluster does not say whether it is allowed"), FAILED_FOR
        return Decision(status.allowed, status.reason), FRESH


class _ReviewStatus(msgspec.Struct):
    allowed: bool
    reason: str = ""


class Reviewed(msgspec.Struct):
    status: _ReviewStatus


def _from_wide_to_narrow(wanted: Attributes) -> Iterator[Attributes]:
    """The question about all namespaces, about the namespace, about the object."""
    whole = replace(wanted, version="", name="")
    if wanted.namespace:
        yield replace(whole, namespace="")
    yield whole
    if wanted.name:
        yield replace(wanted, version="")

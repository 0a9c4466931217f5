"""Live updates of pages: which topics each write touches, and which of these a person may hear.

A page names the topics that it shows; when one is touched, it fetches those parts again
(`static/manciple/kit/parts.js`). Topics name objects, so a person hears no more than their pages show them;
notifications follow the same rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from claims.live import claim_topics
from insight.notifications import may_hear
from manciple.access import rbac
from manciple.access.authentication.chain import Credentials
from manciple.access.namespace_defaults import SERVICE_ACCOUNTS
from manciple.access.page_sessions import identity_signed_in
from manciple.live import topics
from manciple.notifications import sight
from manciple.notifications.models import Notification
from manciple.notifications.recording import TEST
from manciple.people import Person, person_of_identity, person_of_user
from manciple.store.records import EventRecord
from manciple.wire.resources import BUDGETS, CLAIMS, CONTEXTS, DRAFT_CLAIMS, EVENTS, QUOTAS, TEMPLATES
from workloads.kinds.horizontal_pod_autoscalers import HORIZONTAL_POD_AUTOSCALER
from workloads.kinds.summaries import SUMMARIES

TopicsOf = Callable[[EventRecord], Iterable[str]]


def _of_namespace(kind: str) -> TopicsOf:
    """All of a namespace, such as its Events."""
    return lambda record: (f"{kind}:{record.namespace}",)


def _of_object(kind: str) -> TopicsOf:
    """One object."""
    return lambda record: (f"{kind}:{record.namespace}/{record.name}",)


def register() -> None:
    topics.show_only(heard_in)
    sight.ask(may_tell)
    topics.register(EVENTS, _of_namespace("events"))
    topics.register(CLAIMS, _of_object("claim"))
    topics.register(DRAFT_CLAIMS, claim_topics)
    topics.register(CONTEXTS, _of_object("pod"))  # the pod has the same name, and its page shows what was said
    topics.register(TEMPLATES, _of_object("template"))
    topics.register(QUOTAS, _of_namespace("quotas"))
    topics.register(BUDGETS, _of_namespace("budgets"))
    for resource in SUMMARIES:
        topics.register(resource, _of_namespace("workloads"))
    topics.register(HORIZONTAL_POD_AUTOSCALER.resource, _of_namespace("autoscalers"))
    for resource in (SERVICE_ACCOUNTS, rbac.ROLE_BINDINGS):  # the accounts, and what bindings there give to them
        topics.register(resource, _of_namespace("accounts"))


#: Topics of a namespace, by their beginning: `pod:NAMESPACE/NAME`, `claims:NAMESPACE`.
NAMESPACED = frozenset(
    {
        *("pod", "pods", "claim", "claims", "template", "workloads", "autoscalers"),
        *("events", "accounts", "quotas", "budgets"),
    }
)
#: Topics of what belongs to no namespace -> what one must be allowed to list
SHARED = {
    "node": "nodes",
    "nodes": "nodes",
    "node-pods": "nodes",
    "pool": "resourceslices.resource.k8s.io",
    "slices": "resourceslices.resource.k8s.io",
    "class": "deviceclasses.resource.k8s.io",
    "classes": "deviceclasses.resource.k8s.io",
}
#: Names nothing: everybody hears that there are other namespaces than before, and sees their own.
NAMESPACES = "namespaces"
#: Neither does this: whether the cluster answers whose mirror this is, and what of it may be read.
MIRROR = "mirror"


@dataclass(frozen=True, slots=True)
class Hearing:
    """What one person may hear. shared: which of the values of SHARED they may list."""

    person: Person
    shared: frozenset[str]

    @classmethod
    def of(cls, person: Person) -> Hearing:
        return cls(person, frozenset(one for one in set(SHARED.values()) if person.may("list", one)))

    @property
    def name(self) -> str:
        return self.person.name

    def __call__(self, topics: Iterable[str]) -> Iterable[str]:
        return [topic for topic in topics if self._hears(topic)]

    def _hears(self, topic: str) -> bool:
        kind, _, rest = topic.partition(":")
        if kind in NAMESPACED:
            namespace = rest.partition("/")[0]
            return bool(namespace) and self.person.sees(namespace)
        if kind == "node-pods":  # node-pods:NODE:NAMESPACE
            namespace = rest.partition(":")[2]
            return bool(namespace) and SHARED[kind] in self.shared and self.person.sees(namespace)
        return kind in (NAMESPACES, MIRROR) or SHARED.get(kind) in self.shared


def heard_in(session: str, shown: Credentials) -> Hearing | None:
    """Of the person who is signed in by the session of this key; None where nobody is. Reads the database."""
    identity = identity_signed_in(session, shown)
    return None if identity is None else Hearing.of(person_of_identity(identity))


def may_tell(notification: Notification) -> bool:
    if notification.happening == TEST:  # about nothing but the person's own address
        return True
    return may_hear(person_of_user(notification.person), notification.happening, notification.namespaces)

"""What the person of an open page may hear of the live topics, which name objects: no more than its pages show them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user
from django.http import HttpRequest

from manciple.access.authentication.chain import Credentials
from manciple.access.authentication.external import ProxyHeaders
from manciple.pages.outside import BY_PROXY
from manciple.pages.people import Person, person_of_user
from manciple.wire.errors import Unauthorized

#: Topics of a namespace, by their beginning: `pod:NAMESPACE/NAME`, `claims:NAMESPACE`.
NAMESPACED = frozenset({"pod", "pods", "claim", "claims", "template", "events", "accounts", "quotas", "budgets"})
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
        return kind == NAMESPACES or SHARED.get(kind) in self.shared


def heard_in(session: str, shown: Credentials) -> Hearing | None:
    """Of the person who is signed in by the session of this key; None where nobody is. Reads the database."""
    store: Any = import_module(settings.SESSION_ENGINE).SessionStore(session or None)
    request = HttpRequest()
    request.session = store
    user = get_user(request)
    if not user.is_authenticated or not _still_vouched_for(user, store.get(BY_PROXY), shown):
        return None
    return Hearing.of(person_of_user(user))


def _still_vouched_for(user: Any, by_proxy: object, shown: Credentials) -> bool:
    """Whom a proxy signed in listens through the proxy alone."""
    if not settings.PROXY_USER_HEADER:
        return True
    try:
        identity = ProxyHeaders().authenticate(shown)
    except Unauthorized:
        return False
    return identity.name == user.get_username() if identity else not by_proxy

"""How many different entries one sender gets in a minute: beyond that its requests are counted, not listed.

Requests of one sender that ended alike are one entry a minute anyway. What a client varies (paths, names, verbs, user
agents, addresses) must not multiply entries without end, or anybody who can reach the port could fill the trail. A
sender has a budget for one address and one for all of its addresses; what exceeds the first is one entry for the
address, what exceeds the second one entry for the sender, each with the number of requests and the first as an example.

All clients without a credential are one sender, and so are the service accounts of a namespace, which a tenant can
make at will. Addresses of IPv6 count by their network of 64 bits, which one household or server has for itself.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NamedTuple

from manciple.audit.happenings import Happened, name_of
from manciple.wire.identity import ANONYMOUS, Identity

#: What is made by signing in, and goes with signing out.
SESSIONS = "sessions.manciple.dev"
#: The verb of an entry that stands for different requests, and an annotation that says so in an exported event.
ANY_VERB, EXAMPLE = "*", "audit.manciple.dev/example"
SERVICE_ACCOUNT = "system:serviceaccount:"


@dataclass(frozen=True, slots=True)
class Budget:
    """Different entries in a minute: of requests from one address, and from all of them."""

    of_address: int
    of_sender: int


ANONYMOUS_BUDGET = Budget(5, 60)
REFUSALS, READS, ACTS = Budget(40, 100), Budget(100, 300), Budget(1000, 1000)


class Sender(NamedTuple):
    """Who shares a budget, and of which requests. name: "" for everybody without a credential."""

    name: str
    requests: str


Key = tuple[object, ...]


class MinuteLedger:
    """The entries of the current minute. Not thread-safe."""

    def __init__(self) -> None:
        self._minute: datetime | None = None
        self._entries: set[Key] = set()
        self._of_address: Counter[tuple[Sender, str]] = Counter()
        self._of_sender: Counter[Sender] = Counter()

    def place(self, happened: Happened, minute: datetime) -> tuple[Key, Happened, bool]:
        """The key of the entry for a request; what the entry says, if this request is its first; whether it is the
        first of its minute."""
        if minute != self._minute:
            self._minute = minute
            self._entries, self._of_address, self._of_sender = set(), Counter(), Counter()
        sender, budget = _sender(happened)
        address = network_of(happened.origin.addresses[0]) if happened.origin.addresses else ""
        own: Key = (sender, address, happened.likeness)
        if own in self._entries:
            return own, happened, False
        within = self._of_sender[sender] < budget.of_sender
        if within and self._of_address[sender, address] < budget.of_address:
            self._of_address[sender, address] += 1
            return own, happened, self._begin(own, sender)
        rest: Key = (sender, address, happened.code)
        if rest not in self._entries and not within:
            rest = (sender, None, happened.code)
        return rest, _example(happened, sender), self._begin(rest, sender)

    def _begin(self, key: Key, sender: Sender) -> bool:
        if key in self._entries:
            return False
        self._entries.add(key)
        self._of_sender[sender] += 1
        return True


def sender_name(identity: str) -> str:
    """Who shares a budget with the identity of this name."""
    return identity.rpartition(":")[0] if identity.startswith(SERVICE_ACCOUNT) else identity


def _sender(happened: Happened) -> tuple[Sender, Budget]:
    """The identity that showed the credential: in whose name it acts is its own choice."""
    name = sender_name(name_of(happened.origin.impersonator) or name_of(happened.origin.identity))
    if happened.wrote:
        return Sender(name, "acts"), ACTS
    if name in ("", ANONYMOUS.name):
        return Sender("", "sign-ins" if happened.resource == SESSIONS else "refusals"), ANONYMOUS_BUDGET
    if happened.read:
        return Sender(name, "reads"), READS
    return Sender(name, "refusals"), REFUSALS


def _example(happened: Happened, sender: Sender) -> Happened:
    """An entry for requests that have only their sender and their code in common."""
    origin = replace(
        happened.origin,
        verb=ANY_VERB,
        subresource="",
        identity=Identity(sender.name) if sender.name else None,
        impersonator=None,
        annotations={EXAMPLE: "true"},
    )
    message = "Different requests, counted together because there were too many in one minute. One of them is shown."
    return Happened(origin=origin, code=happened.code, reason=happened.reason, message=message)


def network_of(address: str) -> str:
    """What an address counts as."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address[:64]
    found = getattr(found, "ipv4_mapped", None) or found
    return str(ipaddress.ip_network((found, 64), strict=False)) if found.version == 6 else str(found)  # noqa: PLR2004

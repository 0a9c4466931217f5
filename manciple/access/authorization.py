"""Who may do what: the one place that is asked before every read, write, watch, stream, page and computed answer.

The authorizers are asked in their order (`ORDER`). The first that allows or denies ends it; one that has no opinion
passes the question on; what each has to say against it becomes the reason of the refusal, as with kube-apiserver's
union of Node and RBAC. For members of `system:masters` none is asked.

    demand(identity, Attributes(verb="create", resource="pods", namespace="team-a"))   # raises Forbidden
    decide(identity, wanted).allowed                                                   # where only the answer matters

Authorizers read the database (through followers, warm): call from a thread that may.
Source: apiserver/pkg/authorization/union/union.go.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from manciple.access.attributes import Attributes, Decision, refusal
from manciple.access.kinds.roles import PolicyRule
from manciple.wire.identity import MASTERS, Identity

#: (who, what) -> the decision; neither allowed nor denied means "no opinion", with what there is to say against it
Authorizer = Callable[[Identity, Attributes], Decision]


@dataclass(frozen=True, slots=True)
class HeldRules:
    """What somebody may do in a namespace, as far as that can be told beforehand. error: why it may not be all."""

    rules: tuple[PolicyRule, ...] = ()
    incomplete: bool = False
    error: str = ""


#: (who, a namespace) -> what they may do in it
ResolveRules = Callable[[Identity, str], HeldRules]


#: Who is asked first, whenever it was registered; others come after these, in the order of registration.
ORDER = ("node", "driver", "rbac")

_authorizers: dict[str, Authorizer] = {}
_resolvers: dict[str, ResolveRules] = {}


def register_authorizer(name: str, authorizer: Authorizer, *, resolve: ResolveRules | None = None) -> None:
    """Ask `authorizer` as well; the same name replaces what was said. resolve: which rules it knows of somebody."""
    known = {**_authorizers, name: authorizer}
    _authorizers.clear()
    _authorizers.update({one: known.pop(one) for one in ORDER if one in known} | known)
    if resolve is not None:
        _resolvers[name] = resolve


def decide(identity: Identity, wanted: Attributes) -> Decision:
    if MASTERS in identity.groups:
        return Decision(True, f'member of "{MASTERS}"')
    reasons = []
    for authorizer in _authorizers.values():
        decision = authorizer(identity, wanted)
        if decision.allowed or decision.denied:
            return decision
        if decision.reason:
            reasons.append(decision.reason)
    return Decision(False, "; ".join(reasons))


def demand(identity: Identity, wanted: Attributes) -> None:
    """Raises: Forbidden."""
    decision = decide(identity, wanted)
    if not decision.allowed:
        raise refusal(identity, wanted, decision.reason)


def rules_of(identity: Identity, namespace: str) -> HeldRules:
    """Everything that the authorizers know `identity` may do in `namespace`."""
    found = [resolve(identity, namespace) for resolve in _resolvers.values()]
    return HeldRules(
        rules=tuple(rule for one in found for rule in one.rules),
        incomplete=any(one.incomplete for one in found),
        error="; ".join(one.error for one in found if one.error),
    )

"""Rules of roles in words that whoever administers them reads at a glance."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from manciple.access.kinds.policy_rules import ALL
from manciple.access.kinds.roles import PolicyRule

#: Verbs that read, and those of them that a person means by it.
READING = ("get", "list", "watch")
#: Verbs that write.
WRITING = ("create", "update", "patch", "delete")
#: Resources that are named where there are more.
NAMED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleLine:
    """One rule as a row of a table. verbs: in words; exact: as the rule has them."""

    verbs: str
    exact: str
    resources: tuple[str, ...]
    groups: tuple[str, ...]
    names: tuple[str, ...]
    paths: tuple[str, ...]

    @classmethod
    def of(cls, rule: PolicyRule) -> RuleLine:
        return cls(
            verbs=verbs_in_words(rule.verbs),
            exact=", ".join(rule.verbs),
            resources=tuple("everything" if one == ALL else one for one in rule.resources),
            groups=tuple({"": "core", ALL: "any"}.get(one, one) for one in rule.api_groups),
            names=rule.resource_names,
            paths=rule.non_resource_urls,
        )


def verbs_in_words(verbs: Sequence[str]) -> str:
    """`read, write`, `read, impersonate`, `get, list`: verbs that belong together under one word."""
    if ALL in verbs:
        return "do anything"
    words, left = [], list(dict.fromkeys(verbs))
    for word, needed in (("read", READING), ("write", WRITING)):
        if set(needed) <= set(left):
            words.append(word)
            together = {*needed, "deletecollection"} if word == "write" else set(needed)
            left = [one for one in left if one not in together]
    return ", ".join((*words, *left))


def in_short(rules: Sequence[PolicyRule]) -> str:
    """What rules allow, in a sentence: `Writes pods and secrets; reads nodes and 4 more`."""
    if any(ALL in one.verbs and ALL in one.resources and ALL in one.api_groups for one in rules):
        return "Everything"
    written = _resources(one for one in rules if set(one.verbs) - set(READING))
    read = [one for one in _resources(rules) if one not in written]
    paths = list(dict.fromkeys(path for one in rules for path in one.non_resource_urls))
    told = (("writes ", written), ("reads ", read), ("asks for ", paths))
    sentence = "; ".join(verb + _few(what) for verb, what in told if what)
    return sentence[:1].upper() + sentence[1:] or "Nothing"


def _resources(rules: Iterable[PolicyRule]) -> list[str]:
    """Those below an object count as the object's."""
    named = (resource.partition("/")[0] for one in rules for resource in one.resources)
    return list(dict.fromkeys("all resources" if one == ALL else one for one in named))


def _few(names: Sequence[str]) -> str:
    shown, more = list(names[:NAMED]), len(names) - NAMED
    if more > 0:
        shown.append(f"{more} more")
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"

"""What the rules of roles mean: whether they allow something, and whether some cover others. PURE.

A role's rules are compiled to a table from (API group, resource) to verbs to names, so a question costs a few look-ups
however long the role is. Sources: pkg/apis/rbac/v1/evaluation_helpers.go,
component-helpers/auth/rbac/validation/policy_comparator.go, pkg/registry/rbac/validation/policy_compact.go and
pkg/controller/clusterroleaggregation of Kubernetes 1.36.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice

from msgspec.structs import replace

from manciple.access.authorization import Attributes
from manciple.access.kinds.roles import ClusterRole, PolicyRule
from manciple.wire.selectors import as_label_selector

ALL = "*"

# Whether they allow something -----------------------------------------------------------------------------------------


#: (API group, resource), as rules name them: "" and "pods/status", or "*" for either
Place = tuple[str, str]
#: The names of the objects that a verb is allowed on; None for all.
Names = frozenset[str] | None
_NOBODY: frozenset[str] = frozenset()


def places_of(wanted: Attributes) -> tuple[Place, ...]:
    """Where rules may speak of the resource that is wanted."""
    below = wanted.subresource
    resources = (wanted.combined, f"*/{below}", ALL) if below else (wanted.resource, ALL)
    return tuple((group, resource) for group in (wanted.group, ALL) for resource in resources)


class CompiledRules:
    """The rules of one role, ready to be asked."""

    __slots__ = ("named", "paths", "resources", "rules")

    def __init__(self, rules: Sequence[PolicyRule]) -> None:
        self.rules = tuple(rules)
        #: place -> verb -> names
        self.resources: dict[Place, dict[str, Names]] = {}
        #: verbs on paths
        self.paths = [(frozenset(rule.verbs), rule.non_resource_urls) for rule in rules if rule.non_resource_urls]
        tables: dict[Place, dict[str, list[Names]]] = {}
        for rule in rules:
            names = frozenset(rule.resource_names) if rule.resource_names else None
            for place in ((group, resource) for group in rule.api_groups for resource in rule.resources):
                table = tables.setdefault(place, {})
                for verb in rule.verbs:
                    table.setdefault(verb, []).append(names)
        for place, table in tables.items():
            self.resources[place] = {verb: _together(found) for verb, found in table.items()}
        #: what is allowed on single objects only
        self.named = frozenset(
            (place, verb) for place, verbs in self.resources.items() for verb, names in verbs.items() if names
        )

    def allow(self, wanted: Attributes, places: Sequence[Place]) -> bool:
        """places: `places_of(wanted)`, worked out once for all roles that are asked."""
        if wanted.path:
            return self._allow_path(wanted)
        verb, name, known = wanted.verb, wanted.name, self.resources
        for place in places:
            verbs = known.get(place)
            if verbs is not None:
                for one in (verb, ALL):
                    names = verbs.get(one, _NOBODY)
                    if names is None or name in names:
                        return True
        return False

    def _allow_path(self, wanted: Attributes) -> bool:
        return any(
            (wanted.verb in verbs or ALL in verbs) and any(url_covers(url, wanted.path) for url in urls)
            for verbs, urls in self.paths
        )


@lru_cache(maxsize=1024)
def compiled(rules: tuple[PolicyRule, ...]) -> CompiledRules:
    """A policy is read again as a whole, and of its roles hardly any has changed."""
    return CompiledRules(rules)


def names_matter(named: Collection[tuple[Place, str]], wanted: Attributes, places: Sequence[Place]) -> bool:
    """Whether the name of what is wanted may decide. named: what is allowed on single objects only."""
    if not named or wanted.path:
        return False
    return any((place, verb) in named for place in places for verb in (wanted.verb, ALL))


def _together(found: Sequence[Names]) -> Names:
    """The names that any of several rules allows."""
    if len(found) == 1:
        return found[0]  # one set for all verbs and places of its rule
    named = [names for names in found if names is not None]
    return None if len(named) < len(found) else frozenset().union(*named)


def url_covers(pattern: str, path: str) -> bool:
    """Whether a nonResourceURL of a rule means `path`, which may be another such pattern."""
    if pattern in (ALL, path):
        return True
    return pattern.endswith(ALL) and path.startswith(pattern.rstrip(ALL))


# Whether some cover others --------------------------------------------------------------------------------------------


#: Parts that a refusal names.
MOST_UNCOVERED = 500


def uncovered(owned: Sequence[PolicyRule], wanted: Iterable[PolicyRule]) -> list[PolicyRule]:
    """What of `wanted` the rules in `owned` do not allow, a verb on a resource at a time; `MOST_UNCOVERED` at most."""
    held = CompiledRules(owned)
    missing = (part for rule in wanted for part in _parts(rule) if not _covers(held, part))
    return [*islice(missing, MOST_UNCOVERED)]


def _parts(rule: PolicyRule) -> Iterator[PolicyRule]:
    """One verb on one resource of one group and name, or on one path, each."""
    for group in rule.api_groups:
        for resource in rule.resources:
            for verb in rule.verbs:
                one = PolicyRule(verbs=(verb,), api_groups=(group,), resources=(resource,))
                yield from (replace(one, resource_names=(name,)) for name in rule.resource_names)
                if not rule.resource_names:
                    yield one
    for url in rule.non_resource_urls:
        for verb in rule.verbs:
            yield PolicyRule(verbs=(verb,), non_resource_urls=(url,))


def _covers(held: CompiledRules, part: PolicyRule) -> bool:
    """part: as `_parts` makes them."""
    if part.non_resource_urls:
        return held.allow(Attributes(verb=part.verbs[0], path=part.non_resource_urls[0]), ())
    group, resource = part.api_groups[0], part.resources[0]
    _, is_below, subresource = resource.partition("/")
    resources = (resource, ALL, f"*/{subresource}") if is_below else (resource, ALL)
    for place in ((group, one) for group in (group, ALL) for one in resources):
        for verb in (part.verbs[0], ALL):
            names = held.resources.get(place, {}).get(verb, _NOBODY)
            if names is None or (part.resource_names and part.resource_names[0] in names):
                return True
    return False


def described(rules: Iterable[PolicyRule]) -> list[str]:
    """Rules as upstream tells of them, those that differ in their verbs alone as one:
    `{APIGroups:[""], Resources:["pods"], Verbs:["get" "list"]}`.
    """
    verbs: dict[PolicyRule, list[str]] = {}
    for rule in rules:
        together = PolicyRule(
            api_groups=rule.api_groups,
            resources=rule.resources,
            resource_names=rule.resource_names,
            non_resource_urls=rule.non_resource_urls,
        )
        # Verbs on paths stay apart, as upstream: its compaction knows resources alone.
        key = rule if rule.non_resource_urls else together
        verbs.setdefault(key, []).extend(rule.verbs)
    return sorted({_described(rule, tuple(its)) for rule, its in verbs.items()})


def _described(rule: PolicyRule, verbs: Sequence[str]) -> str:
    parts = {
        "APIGroups": rule.api_groups,
        "Resources": rule.resources,
        "NonResourceURLs": rule.non_resource_urls,
        "ResourceNames": rule.resource_names,
        "Verbs": verbs,
    }
    return "{" + ", ".join(f"{name}:{quoted(texts)}" for name, texts in parts.items() if texts) + "}"


def quoted(texts: Iterable[str]) -> str:
    """As Go's %q writes a list of strings."""
    return "[" + " ".join(json.dumps(text, ensure_ascii=False) for text in texts) + "]"


# Gathered from others -------------------------------------------------------------------------------------------------


def gathered(role: ClusterRole, others: Iterable[ClusterRole]) -> tuple[PolicyRule, ...]:
    """The rules of a ClusterRole with an aggregationRule: those of all that it selects, in the order of their names."""
    assert role.aggregation_rule is not None  # noqa: S101  # for the type checker: who asks has looked
    selectors = [as_label_selector(one) for one in role.aggregation_rule.cluster_role_selectors]
    chosen = [
        other
        for other in others
        if other.metadata.name != role.metadata.name and any(one.matches(other.metadata.labels) for one in selectors)
    ]
    chosen.sort(key=lambda other: other.metadata.name)
    return tuple(dict.fromkeys(rule for other in chosen for rule in other.rules))

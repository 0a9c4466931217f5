"""Whether a policy, a binding or a webhook is asked about a request: rules, selectors and match policy.

Sources: apiserver/pkg/admission/plugin/policy/matching/matching.go; .../webhook/predicates/{rules,namespace,object}.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from manciple.admission.kinds.rules import (
    ALL,
    CLUSTER,
    EXACT,
    NAMESPACED,
    AdmissionRule,
    MatchResources,
    NamedRuleWithOperations,
    RuleWithOperations,
)
from manciple.admission.requests import AdmissionRequest
from manciple.wire.base import LabelSelector
from manciple.wire.selectors import ParsedLabelSelector, as_label_selector


@dataclass(frozen=True, slots=True)
class Matcher:
    """rules: one must match; none at all match everything. exact: only the version of the request counts."""

    rules: Sequence[RuleWithOperations]
    excluded: Sequence[RuleWithOperations]
    namespaces: ParsedLabelSelector
    objects: ParsedLabelSelector
    exact: bool

    @classmethod
    def of(cls, match: MatchResources) -> Matcher:
        return cls(
            rules=match.resource_rules,
            excluded=match.exclude_resource_rules,
            namespaces=_selector(match.namespace_selector),
            objects=_selector(match.object_selector),
            exact=match.match_policy == EXACT,
        )

    def concerns(self, operation: str, group: str, plural: str, subresource: str) -> bool:
        """Whether any request of this kind could match, whatever it says."""
        return not self.rules or any(_names(rule, operation, group, plural, subresource) for rule in self.rules)

    def version(self, request: AdmissionRequest) -> str | None:
        """The version in which the request matches; None where it does not."""
        if not self._in_namespace(request) or not self._selects(request) or self._matched(self.excluded, request):
            return None
        return self._matched(self.rules, request) if self.rules else request.version

    def _in_namespace(self, request: AdmissionRequest) -> bool:
        """Objects of the cluster are in any; one whose namespace is missing is refused by others."""
        if self.namespaces.empty or not request.namespace:
            return True
        namespace = request.in_namespace
        return namespace is not None and self.namespaces.matches(namespace.metadata.labels)

    def _selects(self, request: AdmissionRequest) -> bool:
        return self.objects.empty or any(map(self.objects.matches, request.labels()))

    def _matched(self, rules: Sequence[RuleWithOperations], request: AdmissionRequest) -> str | None:
        """The request's own version first; of the others, that of the first rule that names one."""
        if any(_matches(rule, request, request.version) for rule in rules):
            return request.version
        others = () if self.exact else tuple(version for version in request.versions() if version != request.version)
        return next((version for rule in rules for version in others if _matches(rule, request, version)), None)


def _selector(selector: LabelSelector | None) -> ParsedLabelSelector:
    return as_label_selector(selector or LabelSelector())


def _matches(rule: RuleWithOperations, request: AdmissionRequest, version: str) -> bool:
    write, (group, own_version) = request.write, request.group_version(version)
    if not _names(rule, write.operation, group, request.kind.plural, write.subresource):
        return False
    if not _has(rule.api_versions, own_version) or not _is_in_scope(rule, request):
        return False
    names = rule.resource_names if isinstance(rule, NamedRuleWithOperations) else ()
    return not names or request.name in names


def _names(rule: RuleWithOperations, operation: str, group: str, plural: str, subresource: str) -> bool:
    if not _has(rule.operations, operation) or not _has(rule.api_groups, group):
        return False
    return any(_is_resource(text, plural, subresource) for text in rule.resources)


def _has(items: Sequence[Any], wanted: str) -> bool:
    return ALL in items or wanted in items


def _is_resource(text: str, plural: str, subresource: str) -> bool:
    resource, _, below = text.partition("/")
    return resource in (ALL, plural) and below in (ALL, subresource)


def _is_in_scope(rule: AdmissionRule, request: AdmissionRequest) -> bool:
    """Namespaces are of the cluster."""
    namespaced = bool(request.namespace) and not request.is_namespace
    return rule.scope in (None, ALL, NAMESPACED if namespaced else CLUSTER)

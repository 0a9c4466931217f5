"""How much a new pod's spec may list: what the scheduler has to look at again for every node, or every other pod.

Upstream limits only the size of the object (etcd's 1.5 MiB), and a spec of that size keeps our scheduler busy for
minutes on a few thousand nodes, during which no other tenant's pod is placed. Every worker also keeps pods in memory,
where many short values take about ten times the size of their text. The limits are far above what real pods list. They
hold for new pods, and for updates that change the spec; pods that are stored stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from claims.kinds.pods import Affinity, NodeAffinity, PodAffinity, PodAffinityTerm, PodAntiAffinity, PodSpec
from inventory.kinds.nodes import NodeSelectorTerm
from manciple.wire.base import LabelSelector
from manciple.wire.errors import FieldError, too_long, too_many
from manciple.wire.selectors import MOST_REQUIREMENTS
from manciple.wire.validation import SPEC

#: Of each kind of container.
MOST_CONTAINERS = 256
#: Resources that the containers name, each of which is compared with what each node has left.
MOST_RESOURCES = 100
#: ResourceClaims, each of which may be made from a template.
MOST_CLAIMS = 128
MOST_TOLERATIONS = 256
MOST_SPREAD_CONSTRAINTS = 32
#: Required terms, and preferred ones, of pod affinity and of anti-affinity: each is matched with other tenants' pods.
MOST_POD_TERMS = 100
#: Requirements in all required terms of node affinity, and in all preferred ones; an empty term counts as one.
MOST_NODE_REQUIREMENTS = 500
#: Values in all requirements and terms of an affinity.
MOST_VALUES = 5_000
#: Bytes of JSON of an affinity, a node selector, tolerations and spread constraints together.
MOST_TEXT = 128 * 1024

Errors = list[FieldError]

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def validate_size(spec: PodSpec) -> Errors:
    """One error for each list that is too long; where none is, one if all together are too much text."""
    if found := [too_many(SPEC.child(*path), count, most) for path, count, most in _counts(spec) if count > most]:
        return found
    parts = {
        "affinity": spec.affinity,
        "nodeSelector": spec.node_selector,
        "tolerations": spec.tolerations,
        "topologySpreadConstraints": spec.topology_spread_constraints,
    }
    sizes = {name: len(msgspec.json.encode(part)) for name, part in parts.items() if part}
    return (
        [too_long(SPEC.child(max(sizes, key=sizes.__getitem__)), MOST_TEXT)] if sum(sizes.values()) > MOST_TEXT else []
    )


#: (names of fields in the spec, how many are there, how many may be there)
Count = tuple[tuple[str, ...], int, int]


def _counts(spec: PodSpec) -> Iterator[Count]:
    yield ("containers",), len(spec.containers), MOST_CONTAINERS
    yield ("initContainers",), len(spec.init_containers), MOST_CONTAINERS
    yield ("ephemeralContainers",), len(spec.ephemeral_containers), MOST_CONTAINERS
    containers = (*spec.containers, *spec.init_containers)
    resources = {name for one in containers for name in (*one.resources.requests, *one.resources.limits)}
    yield ("containers", "resources"), len(resources), MOST_RESOURCES
    yield ("resourceClaims",), len(spec.resource_claims), MOST_CLAIMS
    yield ("tolerations",), len(spec.tolerations), MOST_TOLERATIONS
    yield ("nodeSelector",), len(spec.node_selector), MOST_REQUIREMENTS
    yield ("topologySpreadConstraints",), len(spec.topology_spread_constraints), MOST_SPREAD_CONSTRAINTS
    affinity = spec.affinity
    if affinity is None:
        return
    yield ("affinity",), _values(affinity), MOST_VALUES
    if affinity.node_affinity is not None:
        yield from _node_counts(affinity.node_affinity)
    if affinity.pod_affinity is not None:
        yield from _pod_counts(affinity.pod_affinity, "podAffinity")
    if affinity.pod_anti_affinity is not None:
        yield from _pod_counts(affinity.pod_anti_affinity, "podAntiAffinity")


def _node_counts(affinity: NodeAffinity) -> Iterator[Count]:
    required = affinity.required_during_scheduling_ignored_during_execution
    terms = required.node_selector_terms if required is not None else ()
    preferred = [one.preference for one in affinity.preferred_during_scheduling_ignored_during_execution]
    yield ("affinity", "nodeAffinity", _REQUIRED), sum(map(_requirements, terms)), MOST_NODE_REQUIREMENTS
    yield ("affinity", "nodeAffinity", _PREFERRED), sum(map(_requirements, preferred)), MOST_NODE_REQUIREMENTS


def _requirements(term: NodeSelectorTerm) -> int:
    return max(1, len(term.match_expressions) + len(term.match_fields))


def _pod_counts(affinity: PodAffinity | PodAntiAffinity, name: str) -> Iterator[Count]:
    required = affinity.required_during_scheduling_ignored_during_execution
    preferred = affinity.preferred_during_scheduling_ignored_during_execution
    yield ("affinity", name, _REQUIRED), len(required), MOST_POD_TERMS
    yield ("affinity", name, _PREFERRED), len(preferred), MOST_POD_TERMS


def _values(affinity: Affinity) -> int:
    found = 0
    if nodes := affinity.node_affinity:
        required = nodes.required_during_scheduling_ignored_during_execution
        terms = [one.preference for one in nodes.preferred_during_scheduling_ignored_during_execution]
        for term in (*terms, *(required.node_selector_terms if required else ())):
            found += sum(len(one.values) for one in (*term.match_expressions, *term.match_fields))
    for pods in (affinity.pod_affinity, affinity.pod_anti_affinity):
        for one in _pod_terms(pods) if pods else ():
            found += len(one.namespaces) + len(one.match_label_keys) + len(one.mismatch_label_keys)
            found += _selector_values(one.label_selector) + _selector_values(one.namespace_selector)
    return found


def _pod_terms(affinity: PodAffinity | PodAntiAffinity) -> Iterator[PodAffinityTerm]:
    yield from affinity.required_during_scheduling_ignored_during_execution
    for one in affinity.preferred_during_scheduling_ignored_during_execution:
        yield one.pod_affinity_term


def _selector_values(selector: LabelSelector | None) -> int:
    if selector is None:
        return 0
    return len(selector.match_labels) + sum(len(one.values) for one in selector.match_expressions)

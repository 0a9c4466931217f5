"""What classic DRA (KEP-3063) and its first draft add to claims and pods: the table of their kinds, versions and rules,
each with its gate. PURE.

Kinds and versions of `claims.classic` and `claims.drafts` are imported through this table (`wire.deferred`); whoever
needs one of their functions names it with `deferred_function`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from claims.kinds.pods import Pod
from inventory.kinds import gates
from inventory.kinds.conversion import with_version
from inventory.kinds.early import classes_are_served, controllers_allocate
from manciple.wire.deferred import deferred, deferred_function, deferred_kind
from manciple.wire.errors import FieldError
from manciple.wire.registry import Conversion, Kind

CLASSIC, DRAFT = "claims.classic.registration", "claims.drafts.cdi.registration"

_of_draft = partial(
    deferred_kind, api_version="cdi.k8s.io/v1alpha1", is_served=partial(gates.enabled, gates.CLAIMS_DRAFT)
)

CONTEXT_VERSIONS: Mapping[str, Conversion] = {
    "v1alpha2": Conversion(
        to_storage=lambda document: with_version(document, "resource.k8s.io/v1alpha3"),
        from_storage=lambda document: with_version(document, "resource.k8s.io/v1alpha2"),
    )
}
KINDS: tuple[Kind, ...] = (
    deferred_kind(
        f"{CLASSIC}:POD_SCHEDULING_CONTEXT",
        "PodSchedulingContext",
        "podschedulingcontexts",
        "resource.k8s.io/v1alpha3",
        is_served=controllers_allocate,
        served_versions=CONTEXT_VERSIONS,
    ),
    _of_draft(f"{DRAFT}:PLUGIN", "ResourcePlugin", "resourceplugins", namespaced=False),
    _of_draft(f"{DRAFT}:CLASS", "ResourceClass", "resourceclasses", namespaced=False),
    _of_draft(f"{DRAFT}:CLAIM", "ResourceClaim", "resourceclaims"),
)
CLAIM_VERSIONS: Mapping[str, Conversion] = {
    "v1alpha3": deferred(Conversion, f"{CLASSIC}:CLAIM_V1ALPHA3", is_served=controllers_allocate),
    "v1alpha2": deferred(Conversion, f"{CLASSIC}:CLAIM_V1ALPHA2", is_served=classes_are_served),
}
TEMPLATE_VERSIONS: Mapping[str, Conversion] = {
    "v1alpha3": deferred(Conversion, f"{CLASSIC}:TEMPLATE_V1ALPHA3", is_served=controllers_allocate),
    "v1alpha2": deferred(Conversion, f"{CLASSIC}:TEMPLATE_V1ALPHA2", is_served=classes_are_served),
}

#: Of a new pod that lists claims in spec.resources.
validate_listed_resources: Callable[[Pod], list[FieldError]] = deferred_function(
    "claims.drafts.cdi.rules:validate_pod_resources"
)

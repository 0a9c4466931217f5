"""core/v1 NodeSelector: which nodes something is available on, or a pod may run on.

Resource slices, allocation results and pod affinity carry one; `manciple.wire.selectors` evaluates it.
Source: k8s.io/api/core/v1.
"""

from __future__ import annotations

from typing import Annotated

from manciple.wire.base import Value, pb

PACKAGE = "io.k8s.api.core.v1"


class NodeSelectorRequirement(Value):
    """One test of a label or field. `operator`: In, NotIn, Exists, DoesNotExist, Gt or Lt."""

    key: Annotated[str, pb(1)] = ""
    operator: Annotated[str, pb(2)] = ""
    values: Annotated[tuple[str, ...], pb(3)] = ()


class NodeSelectorTerm(Value):
    """Requirements that must all hold. A term without any matches no node."""

    match_expressions: Annotated[tuple[NodeSelectorRequirement, ...], pb(1)] = ()
    match_fields: Annotated[tuple[NodeSelectorRequirement, ...], pb(2)] = ()


class NodeSelector(Value):
    """Terms of which one must hold."""

    node_selector_terms: Annotated[tuple[NodeSelectorTerm, ...], pb(1)] = ()

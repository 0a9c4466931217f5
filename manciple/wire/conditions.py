"""metav1.Condition, metav1.LabelSelector and the references that objects of several groups share."""

from __future__ import annotations

from typing import Annotated, ClassVar

from manciple.wire.base import Int64, TimeText, Value, pb

PACKAGE = "io.k8s.apimachinery.pkg.apis.meta.v1"


class Condition(Value):
    """One observed aspect of an object. `status`: True, False or Unknown; `reason`: a CamelCase word."""

    type: Annotated[str, pb(1)] = ""
    status: Annotated[str, pb(2)] = ""
    observed_generation: Annotated[Int64, pb(3)] = 0
    last_transition_time: Annotated[TimeText | None, pb(4, encoding="time")] = None
    reason: Annotated[str, pb(5)] = ""
    message: Annotated[str, pb(6)] = ""


class LabelSelectorRequirement(Value):
    """`operator`: In, NotIn, Exists or DoesNotExist."""

    key: Annotated[str, pb(1)] = ""
    operator: Annotated[str, pb(2)] = ""
    values: Annotated[tuple[str, ...], pb(3)] = ()


class LabelSelector(Value):
    """Labels and requirements that must all hold; an empty one matches everything, an absent one nothing."""

    match_labels: Annotated[dict[str, str], pb(1)] = {}
    match_expressions: Annotated[tuple[LabelSelectorRequirement, ...], pb(2)] = ()


class ObjectReference(Value):
    """core/v1 ObjectReference: an object of any kind, or a part of it."""

    SCHEMA: ClassVar = "io.k8s.api.core.v1.ObjectReference"

    kind: Annotated[str, pb(1)] = ""
    namespace: Annotated[str, pb(2)] = ""
    name: Annotated[str, pb(3)] = ""
    uid: Annotated[str, pb(4)] = ""
    api_version: Annotated[str, pb(5)] = ""
    resource_version: Annotated[str, pb(6)] = ""
    field_path: Annotated[str, pb(7)] = ""

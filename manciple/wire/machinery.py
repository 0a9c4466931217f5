"""The kinds and bodies that belong to the API itself: Namespace, Event, Lease, Status, DeleteOptions, access reviews.

Sources: k8s.io/apimachinery/pkg/apis/meta/v1, k8s.io/api/core/v1, coordination/v1, authorization/v1, policy/v1.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

from manciple.wire.base import ApiObject, Int32, Int64, TimeText, Value, always, pb
from manciple.wire.conditions import ObjectReference

PACKAGE = "io.k8s.apimachinery.pkg.apis.meta.v1"


class NamespaceSpec(Value):
    """`finalizers`: who must let go before the namespace can vanish."""

    SCHEMA: ClassVar = "io.k8s.api.core.v1.NamespaceSpec"

    finalizers: Annotated[tuple[str, ...], pb(1)] = ()


class NamespaceCondition(Value):
    """What holds up the end of a namespace."""

    SCHEMA: ClassVar = "io.k8s.api.core.v1.NamespaceCondition"

    type: Annotated[str, pb(1)] = ""
    status: Annotated[str, pb(2)] = ""
    last_transition_time: Annotated[TimeText | None, pb(4, encoding="time")] = None
    reason: Annotated[str, pb(5)] = ""
    message: Annotated[str, pb(6)] = ""


class NamespaceStatus(Value):
    """`phase`: Active or Terminating."""

    SCHEMA: ClassVar = "io.k8s.api.core.v1.NamespaceStatus"

    phase: Annotated[str, pb(1)] = ""
    conditions: Annotated[tuple[NamespaceCondition, ...], pb(2, merge_key="type")] = ()


class Namespace(ApiObject):
    """A scope of names, and the unit of quota. Cluster scoped."""

    SCHEMA: ClassVar = "io.k8s.api.core.v1.Namespace"

    spec: Annotated[NamespaceSpec, pb(2)] = NamespaceSpec()
    status: Annotated[NamespaceStatus, pb(3)] = NamespaceStatus()


class EventSource(Value):
    """Who saw it, and on which node."""

    SCHEMA: ClassVar = "io.k8s.api.core.v1.EventSource"

    component: Annotated[str, pb(1)] = ""
    host: Annotated[str, pb(2)] = ""


class EventSeries(Value):
    """How often it happened, and when last."""

    SCHEMA: ClassVar = "io.k8s.api.core.v1.EventSeries"

    count: Annotated[Int32, pb(1)] = 0
    last_observed_time: Annotated[TimeText | None, pb(2, encoding="microTime")] = None


class Event(ApiObject):
    """A message about an object, for people. `type`: Normal or Warning. Namespaced."""

    SCHEMA: ClassVar = "io.k8s.api.core.v1.Event"

    involved_object: Annotated[ObjectReference, pb(2)] = always(ObjectReference())
    reason: Annotated[str, pb(3)] = ""
    message: Annotated[str, pb(4)] = ""
    source: Annotated[EventSource, pb(5)] = EventSource()
    first_timestamp: Annotated[TimeText | None, pb(6, encoding="time")] = None
    last_timestamp: Annotated[TimeText | None, pb(7, encoding="time")] = None
    count: Annotated[Int32, pb(8)] = 0
    type: Annotated[str, pb(9)] = ""
    event_time: Annotated[TimeText | None, pb(10, encoding="microTime")] = None
    series: Annotated[EventSeries | None, pb(11)] = None
    action: Annotated[str, pb(12)] = ""
    related: Annotated[ObjectReference | None, pb(13)] = None
    reporting_component: Annotated[str, pb(14)] = ""
    reporting_instance: Annotated[str, pb(15)] = ""


class LeaseSpec(Value):
    """Who holds the lease, since when, and until when without renewal. The duration is in seconds."""

    SCHEMA: ClassVar = "io.k8s.api.coordination.v1.LeaseSpec"

    holder_identity: Annotated[str | None, pb(1)] = None
    lease_duration_seconds: Annotated[Int32 | None, pb(2)] = None
    acquire_time: Annotated[TimeText | None, pb(3, encoding="microTime")] = None
    renew_time: Annotated[TimeText | None, pb(4, encoding="microTime")] = None
    lease_transitions: Annotated[Int32 | None, pb(5)] = None
    strategy: Annotated[str | None, pb(6)] = None
    preferred_holder: Annotated[str | None, pb(7)] = None


class Lease(ApiObject):
    """coordination.k8s.io/v1: a sign of life that must be renewed. Namespaced."""

    SCHEMA: ClassVar = "io.k8s.api.coordination.v1.Lease"

    spec: Annotated[LeaseSpec, pb(2)] = LeaseSpec()


class ListMeta(Value):
    """What a list says of itself. `continue_`: where the next page starts; empty on the last one."""

    self_link: Annotated[str, pb(1)] = ""
    resource_version: Annotated[str, pb(2)] = ""
    continue_: Annotated[str, pb(3)] = msgspec.field(default="", name="continue")
    remaining_item_count: Annotated[Int64 | None, pb(4)] = None


class StatusCause(Value):
    """One reason of a failure, with the field it is about."""

    reason: Annotated[str, pb(1)] = ""
    message: Annotated[str, pb(2)] = ""
    field: Annotated[str, pb(3)] = ""


class StatusDetails(Value):
    """What a failure is about. `retry_after_seconds`: when to try again."""

    name: Annotated[str, pb(1)] = ""
    group: Annotated[str, pb(2)] = ""
    kind: Annotated[str, pb(3)] = ""
    uid: Annotated[str, pb(6)] = ""
    causes: Annotated[tuple[StatusCause, ...], pb(4)] = ()
    retry_after_seconds: Annotated[Int32, pb(5)] = 0


class Status(Value):
    """The answer that is not an object: Success, or Failure with its reason and HTTP code."""

    api_version: str = "v1"
    kind: str = "Status"
    metadata: Annotated[ListMeta, pb(1)] = always(ListMeta())
    status: Annotated[str, pb(2)] = ""
    message: Annotated[str, pb(3)] = ""
    reason: Annotated[str, pb(4)] = ""
    details: Annotated[StatusDetails | None, pb(5)] = None
    code: Annotated[Int32, pb(6)] = 0


class Preconditions(Value):
    """What must still hold of an object that is to be deleted."""

    uid: Annotated[str | None, pb(1)] = None
    resource_version: Annotated[str | None, pb(2)] = None


class DeleteOptions(Value):
    """The body of a DELETE. propagation_policy: Orphan, Background or Foreground."""

    api_version: str = ""
    kind: str = ""
    grace_period_seconds: Annotated[Int64 | None, pb(1)] = None
    preconditions: Annotated[Preconditions | None, pb(2)] = None
    orphan_dependents: Annotated[bool | None, pb(3)] = None
    propagation_policy: Annotated[str | None, pb(4)] = None
    dry_run: Annotated[tuple[str, ...], pb(5)] = ()
    ignore_store_read_error_with_cluster_breaking_potential: Annotated[bool | None, pb(6)] = None


class CreateOptions(Value):
    """The options of a POST when they come as a document."""

    api_version: str = ""
    kind: str = ""
    dry_run: Annotated[tuple[str, ...], pb(1)] = ()
    field_manager: Annotated[str, pb(3)] = ""
    field_validation: Annotated[str, pb(4)] = ""


class Eviction(ApiObject):
    """policy/v1: what is posted to `pods/NAME/eviction`."""

    SCHEMA: ClassVar = "io.k8s.api.policy.v1.Eviction"

    delete_options: Annotated[DeleteOptions | None, pb(2)] = None


class FieldSelectorRequirement(Value):
    """One term of a field selector, as an access review carries it."""

    key: Annotated[str, pb(1)] = ""
    operator: Annotated[str, pb(2)] = ""
    values: Annotated[tuple[str, ...], pb(3)] = ()


class FieldSelectorAttributes(Value):
    """The field or label selector of the request in question."""

    SCHEMA: ClassVar = "io.k8s.api.authorization.v1.FieldSelectorAttributes"

    raw_selector: Annotated[str, pb(1)] = ""
    requirements: Annotated[tuple[FieldSelectorRequirement, ...], pb(2)] = ()


class ResourceAttributes(Value):
    """A request for objects: "*" means all."""

    SCHEMA: ClassVar = "io.k8s.api.authorization.v1.ResourceAttributes"

    namespace: Annotated[str, pb(1)] = ""
    verb: Annotated[str, pb(2)] = ""
    group: Annotated[str, pb(3)] = ""
    version: Annotated[str, pb(4)] = ""
    resource: Annotated[str, pb(5)] = ""
    subresource: Annotated[str, pb(6)] = ""
    name: Annotated[str, pb(7)] = ""
    field_selector: Annotated[FieldSelectorAttributes | None, pb(8)] = None
    label_selector: Annotated[FieldSelectorAttributes | None, pb(9)] = None


class NonResourceAttributes(Value):
    """A request for a path that is no object."""

    SCHEMA: ClassVar = "io.k8s.api.authorization.v1.NonResourceAttributes"

    path: Annotated[str, pb(1)] = ""
    verb: Annotated[str, pb(2)] = ""


class SelfSubjectAccessReviewSpec(Value):
    """What is asked: may I? Exactly one field is set."""

    SCHEMA: ClassVar = "io.k8s.api.authorization.v1.SelfSubjectAccessReviewSpec"

    resource_attributes: Annotated[ResourceAttributes | None, pb(1)] = None
    non_resource_attributes: Annotated[NonResourceAttributes | None, pb(2)] = None


class SubjectAccessReviewStatus(Value):
    """The answer."""

    SCHEMA: ClassVar = "io.k8s.api.authorization.v1.SubjectAccessReviewStatus"

    allowed: Annotated[bool, pb(1)] = always(zero=False)
    denied: Annotated[bool, pb(4)] = False
    reason: Annotated[str, pb(2)] = ""
    evaluation_error: Annotated[str, pb(3)] = ""


class SelfSubjectAccessReview(ApiObject):
    """authorization.k8s.io/v1: whether the asker may do something. Never stored."""

    SCHEMA: ClassVar = "io.k8s.api.authorization.v1.SelfSubjectAccessReview"

    spec: Annotated[SelfSubjectAccessReviewSpec, pb(2)] = always(SelfSubjectAccessReviewSpec())
    status: Annotated[SubjectAccessReviewStatus, pb(3)] = SubjectAccessReviewStatus()

"""The kinds and bodies that belong to the API itself: Namespace, Event and Lease with their defaults, rules and
columns; Status, DeleteOptions and the like.

Sources: k8s.io/apimachinery/pkg/apis/meta/v1, k8s.io/api/core/v1, coordination/v1, policy/v1;
pkg/registry/core/{namespace,event}, pkg/registry/coordination/lease, pkg/apis/core/validation and
pkg/printers/internalversion of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, ClassVar

import msgspec
from msgspec.structs import replace

from manciple.wire import event_forms
from manciple.wire.base import ApiObject, Int32, Int64, ObjectReference, TimeText, Value, always, pb, status_metadata
from manciple.wire.errors import FieldError, immutable, invalid, required, too_long
from manciple.wire.identity import SYSTEM_NAMESPACE
from manciple.wire.registry import VERBS, Column, Conversion, Kind, Subresource, VersionRules
from manciple.wire.tables import AGE_COLUMN, NAME_COLUMN, age
from manciple.wire.validation import (
    SPEC,
    Path,
    check_label_key,
    check_namespace_name,
    each,
    validate_object_meta,
    validate_object_meta_update,
)

PACKAGE = "io.k8s.apimachinery.pkg.apis.meta.v1"


class NamespaceSpec(Value):
    """Obstacles to the deletion of a namespace. `finalizers`: must be removed before it is deleted."""

    SCHEMA: ClassVar = "io.k8s.api.core.v1.NamespaceSpec"

    finalizers: Annotated[tuple[str, ...], pb(1)] = ()


class NamespaceCondition(Value):
    """Why the deletion of a namespace is held up.

    type: what its deletion waits for.
    """

    SCHEMA: ClassVar = "io.k8s.api.core.v1.NamespaceCondition"

    type: Annotated[str, pb(1)] = ""
    status: Annotated[str, pb(2)] = ""
    last_transition_time: Annotated[TimeText | None, pb(4, encoding="time")] = None
    reason: Annotated[str, pb(5)] = ""
    message: Annotated[str, pb(6)] = ""


class NamespaceStatus(Value):
    """The state of a namespace. `phase`: Active or Terminating."""

    SCHEMA: ClassVar = "io.k8s.api.core.v1.NamespaceStatus"

    phase: Annotated[str, pb(1)] = ""
    conditions: Annotated[tuple[NamespaceCondition, ...], pb(2, merge_key="type")] = ()


class Namespace(ApiObject):
    """A scope of names, and the unit of quota. Cluster scoped."""

    SCHEMA: ClassVar = "io.k8s.api.core.v1.Namespace"

    spec: Annotated[NamespaceSpec, pb(2)] = NamespaceSpec()
    status: Annotated[NamespaceStatus, pb(3)] = NamespaceStatus()


class EventSource(Value):
    """Who saw it, and on which node.

    component: who tells of it. host: the node on which that is.
    """

    SCHEMA: ClassVar = "io.k8s.api.core.v1.EventSource"

    component: Annotated[str, pb(1)] = ""
    host: Annotated[str, pb(2)] = ""


class EventSeries(Value):
    """How often it happened, and when last.

    count: how often. last_observed_time: when it last happened.
    """

    SCHEMA: ClassVar = "io.k8s.api.core.v1.EventSeries"

    count: Annotated[Int32, pb(1)] = 0
    last_observed_time: Annotated[TimeText | None, pb(2, encoding="microTime")] = None


class Event(ApiObject):
    """A message about an object, for people. Namespaced.

    `type`: Normal or Warning.

    reason: what happened, as one word. message: the same for people. first_timestamp: when it first happened.
    last_timestamp: when it last happened. count: how often. event_time: when it first happened, exactly. action: what
    was done about it. reporting_component: who tells of it. reporting_instance: which one of those.
    """

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
    """Who holds the lease, since when, and until when without renewal. The duration is in seconds.

    holder_identity: who has it. lease_duration_seconds: how long others wait after the last renewal. acquire_time:
    since when. renew_time: when it was last renewed. lease_transitions: how often it changed hands. strategy: how the
    holder is chosen. preferred_holder: who is to have it next.
    """

    SCHEMA: ClassVar = "io.k8s.api.coordination.v1.LeaseSpec"

    holder_identity: Annotated[str | None, pb(1)] = None
    lease_duration_seconds: Annotated[Int32 | None, pb(2)] = None
    acquire_time: Annotated[TimeText | None, pb(3, encoding="microTime")] = None
    renew_time: Annotated[TimeText | None, pb(4, encoding="microTime")] = None
    lease_transitions: Annotated[Int32 | None, pb(5)] = None
    strategy: Annotated[str | None, pb(6)] = None
    preferred_holder: Annotated[str | None, pb(7)] = None


class Lease(ApiObject):
    """A lock or sign of life that its holder must renew. Namespaced."""

    SCHEMA: ClassVar = "io.k8s.api.coordination.v1.Lease"

    spec: Annotated[LeaseSpec, pb(2)] = LeaseSpec()


# Two groups have these, each with a schema of its own name.


class ServiceReference(Value):
    """A Service, which is called at its endpoints.

    namespace: of the Service. name: of the Service. path: of the URL. port: 443 unless given.
    """

    namespace: Annotated[str, pb(1)] = always("")
    name: Annotated[str, pb(2)] = always("")
    path: Annotated[str | None, pb(3)] = None
    port: Annotated[Int32 | None, pb(4)] = None


class WebhookClientConfig(Value):
    """Where a webhook is.

    service: it is behind a Service; its certificate is that of NAME.NAMESPACE.svc. ca_bundle: PEM; the certificates
    that vouch for the webhook's; those of the system where it is empty. url: its address, https://HOST[:PORT]/PATH.
    """

    service: Annotated[ServiceReference | None, pb(1)] = None
    ca_bundle: Annotated[str, pb(2, encoding="bytes")] = ""
    url: Annotated[str | None, pb(3)] = None


class ListMeta(Value):
    """Metadata of a list. `continue_`: where the next page starts; empty on the last one.

    self_link: of no use any more. resource_version: from which a watch goes on. remaining_item_count: how many more
    there are, where that is known.
    """

    self_link: Annotated[str, pb(1)] = ""
    resource_version: Annotated[str, pb(2)] = ""
    continue_: Annotated[str, pb(3)] = msgspec.field(default="", name="continue")
    remaining_item_count: Annotated[Int64 | None, pb(4)] = None


class StatusCause(Value):
    """One reason of a failure, with the field it is about.

    field: its path in the object.
    """

    reason: Annotated[str, pb(1)] = ""
    message: Annotated[str, pb(2)] = ""
    field: Annotated[str, pb(3)] = ""


class StatusDetails(Value):
    """What a failure is about. `retry_after_seconds`: when to try again.

    name: the name of the object. group: the group of its kind. kind: the kind of the object, or its resource. uid: the
    uid of the object.
    """

    name: Annotated[str, pb(1)] = ""
    group: Annotated[str, pb(2)] = ""
    kind: Annotated[str, pb(3)] = ""
    uid: Annotated[str, pb(6)] = ""
    causes: Annotated[tuple[StatusCause, ...], pb(4)] = ()
    retry_after_seconds: Annotated[Int32, pb(5)] = 0


class Status(Value):
    """The answer that is not an object: Success, or Failure with its reason and HTTP code.

    api_version: v1. kind: Status. status: Success or Failure. code: the HTTP status code.
    """

    api_version: str = "v1"
    kind: str = "Status"
    metadata: Annotated[ListMeta, pb(1)] = always(ListMeta())
    status: Annotated[str, pb(2)] = ""
    message: Annotated[str, pb(3)] = ""
    reason: Annotated[str, pb(4)] = ""
    details: Annotated[StatusDetails | None, pb(5)] = None
    code: Annotated[Int32, pb(6)] = 0


class Preconditions(Value):
    """What must still hold of an object that is to be deleted.

    uid: it is still this object. resource_version: nobody has written it since.
    """

    uid: Annotated[str | None, pb(1)] = None
    resource_version: Annotated[str | None, pb(2)] = None


class DeleteOptions(Value):
    """The body of a DELETE. propagation_policy: Orphan, Background or Foreground.

    api_version: v1. kind: DeleteOptions. grace_period_seconds: the seconds that a pod may take to end; 0 forgets it at
    once. orphan_dependents: an older form of the propagation policy. dry_run: All stores nothing.
    ignore_store_read_error_with_cluster_breaking_potential: deletes an object that cannot be decrypted any more.
    """

    api_version: str = ""
    kind: str = ""
    grace_period_seconds: Annotated[Int64 | None, pb(1)] = None
    preconditions: Annotated[Preconditions | None, pb(2)] = None
    orphan_dependents: Annotated[bool | None, pb(3)] = None
    propagation_policy: Annotated[str | None, pb(4)] = None
    dry_run: Annotated[tuple[str, ...], pb(5)] = ()
    ignore_store_read_error_with_cluster_breaking_potential: Annotated[bool | None, pb(6)] = None


class Binding(ApiObject):
    """What a scheduler posts to `pods/NAME/binding`: run the pod on the node `target`."""

    SCHEMA: ClassVar = "io.k8s.api.core.v1.Binding"

    target: Annotated[ObjectReference, pb(2)] = always(ObjectReference())


class Eviction(ApiObject):
    """policy/v1: what is posted to `pods/NAME/eviction`."""

    SCHEMA: ClassVar = "io.k8s.api.policy.v1.Eviction"

    delete_options: Annotated[DeleteOptions | None, pb(2)] = None


#: The finalizer by which the API server itself holds a namespace until its contents are gone.
KUBERNETES_FINALIZER = "kubernetes"
NAMESPACE_NAME_LABEL = "kubernetes.io/metadata.name"
#: Events about objects of the cluster stand in this namespace.
DEFAULT_NAMESPACE = "default"
#: An event's note, in bytes; and that of an event without an eventTime, for which upstream has no limit. Pages show
#: many events at once, and tenants may write events about nodes, which everybody sees.
EVENT_MESSAGE_MAX, OLD_EVENT_MESSAGE_MAX = 1024, 8192
#: Every other text of an event, in bytes; reason, action and instance of one with an eventTime.
EVENT_TEXT_MAX, REPORTED_TEXT_MAX = 1024, 128
EVENT_TYPES = ("Normal", "Warning")

Errors = list[FieldError]


# Namespace -----------------------------------------------------------------------------------------------------------


def create_namespace(new: Namespace) -> Namespace:
    """Active, held by the API server, and labelled with its own name."""
    finalizers = dict.fromkeys((*new.spec.finalizers, KUBERNETES_FINALIZER))
    return replace(
        _named(new), spec=replace(new.spec, finalizers=tuple(finalizers)), status=NamespaceStatus(phase="Active")
    )


def _named(namespace: Namespace) -> Namespace:
    """With the label that selectors find it by; a generated name gets it when it is known."""
    meta = namespace.metadata
    if not meta.name or meta.labels.get(NAMESPACE_NAME_LABEL) == meta.name:
        return namespace
    return replace(namespace, metadata=replace(meta, labels={**meta.labels, NAMESPACE_NAME_LABEL: meta.name}))


def update_namespace(new: Namespace, old: Namespace) -> Namespace:
    return replace(_named(new), spec=old.spec, status=old.status)


def update_namespace_status(new: Namespace, old: Namespace) -> Namespace:
    return replace(old, metadata=status_metadata(new.metadata, old.metadata), status=new.status)


def finalize_namespace(new: Namespace, old: Namespace) -> Namespace:
    """What `.../finalize` writes: spec.finalizers only."""
    return replace(old, metadata=status_metadata(new.metadata, old.metadata), spec=new.spec)


def validate_namespace(namespace: Namespace) -> Errors:
    found = validate_object_meta(namespace.metadata, namespaced=False, name_rule=check_namespace_name)
    return found + _validate_finalizers(namespace)


def validate_namespace_update(new: Namespace, old: Namespace) -> Errors:
    return validate_object_meta_update(new.metadata, old.metadata)


def validate_namespace_status(new: Namespace, old: Namespace) -> Errors:
    found = validate_object_meta_update(new.metadata, old.metadata)
    wanted = "Terminating" if old.metadata.deletion_timestamp else "Active"
    if new.status.phase != wanted:
        when = "not empty" if old.metadata.deletion_timestamp else "empty"
        message = f"may only be '{wanted}' if `deletionTimestamp` is {when}"
        found.append(invalid("status.phase", new.status.phase, message))
    return found


def validate_namespace_finalize(new: Namespace, old: Namespace) -> Errors:
    return validate_object_meta_update(new.metadata, old.metadata) + _validate_finalizers(new)


def _validate_finalizers(namespace: Namespace) -> Errors:
    path = SPEC.child("finalizers")
    found: Errors = []
    for position, finalizer in enumerate(namespace.spec.finalizers):
        found += each(check_label_key(finalizer), path.at(position), finalizer)
        if "/" not in finalizer and finalizer != KUBERNETES_FINALIZER:
            message = "name is neither a standard finalizer name nor is it fully qualified"
            found.append(invalid(path.at(position), finalizer, message))
    return found


NAMESPACE = Kind(
    group="",
    version="v1",
    plural="namespaces",
    short_names=("ns",),
    namespaced=False,
    verbs=tuple(verb for verb in VERBS if verb != "deletecollection"),
    type=Namespace,
    prepare_create=create_namespace,
    prepare_update=update_namespace,
    validate_create=validate_namespace,
    validate_update=validate_namespace_update,
    subresources={
        "status": Subresource(prepare_update=update_namespace_status, validate_update=validate_namespace_status),
        "finalize": Subresource(prepare_update=finalize_namespace, validate_update=validate_namespace_finalize),
    },
    selectable=lambda namespace: {"status.phase": namespace.status.phase},
    columns=(
        NAME_COLUMN,
        Column(
            name="Status",
            description="The status of the namespace",
            cell=lambda namespace, _now: namespace.status.phase,
        ),
        AGE_COLUMN,
    ),
    description="A scope of names, and the unit of quota.",
)


# Event ---------------------------------------------------------------------------------------------------------------


def validate_event(event: Event) -> Errors:
    """An event stands in the namespace of what it is about; one with an eventTime may stand elsewhere, as upstream."""
    found = validate_object_meta(event.metadata, namespaced=True, any_finalizers=True)
    about, here = event.involved_object.namespace, event.metadata.namespace
    fits = here == (about or DEFAULT_NAMESPACE)
    if event.event_time is not None:
        fits = bool(about) or here in (DEFAULT_NAMESPACE, SYSTEM_NAMESPACE)
    if not fits:
        found.append(invalid("involvedObject.namespace", about, "does not match event.namespace"))
    found += [too_long(field, most) for field, text, most in _texts(event) if len(text.encode()) > most]
    if event.event_time is not None:
        found += _validate_reported(event)
    return found


def _texts(event: Event) -> Iterator[tuple[str, str, int]]:
    """(field, text, its longest) of all that a client wrote in words of its own."""
    yield "message", event.message, OLD_EVENT_MESSAGE_MAX
    texts = {
        "reason": event.reason,
        "action": event.action,
        "type": event.type,
        "reportingComponent": event.reporting_component,
        "reportingInstance": event.reporting_instance,
        "source.component": event.source.component,
        "source.host": event.source.host,
    }
    for field, about in (("involvedObject", event.involved_object), ("related", event.related)):
        for name in about.__struct_fields__ if about is not None else ():
            texts[f"{field}.{name}"] = getattr(about, name)
    for field, text in texts.items():
        yield field, text, EVENT_TEXT_MAX


def _validate_reported(event: Event) -> Errors:
    """What an event of the newer kind, with an eventTime, must tell."""
    parts = {
        "reportingController": event.reporting_component,
        "reportingInstance": event.reporting_instance,
        "action": event.action,
        "reason": event.reason,
    }
    found = [required(field) for field, value in parts.items() if not value]
    controller = parts.pop("reportingController")
    found += each(check_label_key(controller), Path("reportingController"), controller)
    longest = dict.fromkeys(parts, REPORTED_TEXT_MAX) | {"message": EVENT_MESSAGE_MAX}
    found += [
        invalid(field, "", f"can have at most {most} characters")
        for field, most in longest.items()
        if len((parts | {"message": event.message})[field].encode()) > most
    ]
    return found


def validate_event_update(new: Event, old: Event) -> Errors:
    found = validate_object_meta_update(new.metadata, old.metadata, any_finalizers=True) + validate_event(new)
    if old.event_time is None:
        return found
    fixed = (
        ("involvedObject", new.involved_object, old.involved_object),
        ("reason", new.reason, old.reason),
        ("message", new.message, old.message),
        ("type", new.type, old.type),
        ("eventTime", new.event_time, old.event_time),
        ("action", new.action, old.action),
        ("reportingController", new.reporting_component, old.reporting_component),
        ("reportingInstance", new.reporting_instance, old.reporting_instance),
    )
    return found + [immutable(field, now) for field, now, before in fixed if now != before]


def validate_reported_event(event: Event) -> Errors:
    """One that is written through events.k8s.io/v1: it has nothing of the earlier form."""
    found = validate_event(event) + _validate_series(event)
    if event.event_time is None:
        found.append(required("eventTime"))
    if event.type not in EVENT_TYPES:
        found.append(invalid("type", "", f"has invalid value: {event.type}"))
    earlier = {
        "firstTimestamp": event.first_timestamp,
        "lastTimestamp": event.last_timestamp,
        "count": event.count,
        "source": event.source.component or event.source.host,
    }
    return found + [invalid(field, "", "needs to be unset") for field, value in earlier.items() if value]


def validate_reported_event_update(new: Event, old: Event) -> Errors:
    """Only the series goes on."""
    found = validate_event_update(new, old)
    if new.series != old.series:
        found += _validate_series(new)
    earlier = (
        ("firstTimestamp", new.first_timestamp, old.first_timestamp),
        ("lastTimestamp", new.last_timestamp, old.last_timestamp),
        ("count", new.count, old.count),
        ("source", new.source, old.source),
        ("related", new.related, old.related),
    )
    return found + [immutable(field, now) for field, now, before in earlier if now != before]


def _validate_series(event: Event) -> Errors:
    if event.series is None:
        return []
    found = [invalid("series.count", "", "should be at least 2")] if event.series.count < 2 else []  # noqa: PLR2004
    return found if event.series.last_observed_time else [*found, required("series.lastObservedTime")]


def selectable_event(event: Event) -> Mapping[str, str]:
    about = event.involved_object
    return {
        "involvedObject.kind": about.kind,
        "involvedObject.namespace": about.namespace,
        "involvedObject.name": about.name,
        "involvedObject.uid": about.uid,
        "involvedObject.apiVersion": about.api_version,
        "involvedObject.resourceVersion": about.resource_version,
        "involvedObject.fieldPath": about.field_path,
        "reason": event.reason,
        "reportingComponent": event.reporting_component,
        "source": event.source.component or event.reporting_component,
        "type": event.type,
    }


def _last_seen(event: Event, now: float) -> str:
    last = event.series.last_observed_time if event.series is not None else event.last_timestamp
    return age(last or event.last_timestamp or event.event_time or event.first_timestamp, now)


def _object_cell(event: Event, _now: float) -> str:
    about = event.involved_object
    return f"{about.kind.lower()}/{about.name}" if about.name else about.kind.lower()


def _source_cell(event: Event, _now: float) -> str:
    component = event.source.component or event.reporting_component
    host = event.source.host or event.reporting_instance
    return f"{component}, {host}" if host else component


def _count_cell(event: Event, _now: float) -> int:
    return event.series.count if event.series is not None else event.count or 1


EVENT = Kind(
    group="",
    version="v1",
    plural="events",
    short_names=("ev",),
    type=Event,
    validate_create=validate_event,
    validate_update=validate_event_update,
    selectable=selectable_event,
    served_versions={
        event_forms.API_VERSION: Conversion(
            to_storage=event_forms.to_storage,
            from_storage=event_forms.from_storage,
            type=event_forms.Event,
            selectable=event_forms.SELECTABLE,
            rules=VersionRules(validate_create=validate_reported_event, validate_update=validate_reported_event_update),
        )
    },
    columns=(
        Column(name="Last Seen", description="When it happened last", cell=_last_seen),
        Column(name="Type", description="Normal or Warning", cell=lambda event, _now: event.type),
        Column(name="Reason", description="A short word for what happened", cell=lambda event, _now: event.reason),
        Column(name="Object", description="What it is about", cell=_object_cell),
        Column(name="Subobject", priority=1, cell=lambda event, _now: event.involved_object.field_path),
        Column(name="Source", priority=1, cell=_source_cell),
        Column(name="Message", description="What happened", cell=lambda event, _now: event.message.strip()),
        Column(
            name="First Seen",
            priority=1,
            cell=lambda event, now: age(event.first_timestamp or event.event_time, now),
        ),
        Column(name="Count", priority=1, cell=_count_cell),
        Column(name="Name", format="name", priority=1, cell=lambda event, _now: event.metadata.name),
    ),
    description="A message about an object, for people.",
)


# Lease ---------------------------------------------------------------------------------------------------------------


def validate_lease(lease: Lease) -> Errors:
    return validate_object_meta(lease.metadata, namespaced=True, any_finalizers=True) + _validate_lease_spec(lease)


def validate_lease_update(new: Lease, old: Lease) -> Errors:
    return validate_object_meta_update(new.metadata, old.metadata, any_finalizers=True) + _validate_lease_spec(new)


def _validate_lease_spec(lease: Lease) -> Errors:
    spec, found = lease.spec, Errors()
    if spec.lease_duration_seconds is not None and spec.lease_duration_seconds <= 0:
        path = SPEC.child("leaseDurationSeconds")
        found.append(invalid(path, spec.lease_duration_seconds, "must be greater than 0"))
    if spec.lease_transitions is not None and spec.lease_transitions < 0:
        path = SPEC.child("leaseTransitions")
        found.append(invalid(path, spec.lease_transitions, "must be greater than or equal to 0"))
    return found


LEASE = Kind(
    group="coordination.k8s.io",
    version="v1",
    plural="leases",
    type=Lease,
    validate_create=validate_lease,
    validate_update=validate_lease_update,
    columns=(
        NAME_COLUMN,
        Column(
            name="Holder",
            description="Who holds the lease",
            cell=lambda lease, _now: lease.spec.holder_identity or "",
        ),
        AGE_COLUMN,
    ),
    description="A lock or heartbeat that its holder must renew.",
)

KINDS: tuple[Kind, ...] = (NAMESPACE, EVENT, LEASE)

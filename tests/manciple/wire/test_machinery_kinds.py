"""Namespace, Event and Lease: defaults, rules, columns."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from manciple.wire.base import ObjectReference
from manciple.wire.machinery import (
    EVENT,
    LEASE,
    NAMESPACE,
    Event,
    EventSeries,
    EventSource,
    Lease,
    LeaseSpec,
    NamespaceSpec,
    NamespaceStatus,
)
from tests.builders import make_meta, make_namespace, stored

NOW = 1767225660.0  # 2026-01-01T00:01:00Z


def test_a_new_namespace_is_active_held_and_labelled_with_its_name() -> None:
    made = NAMESPACE.prepare_create(make_namespace("team-a", labels={"x": "y"}))
    assert made.status.phase == "Active"
    assert made.spec.finalizers == ("kubernetes",)
    assert made.metadata.labels == {"x": "y", "kubernetes.io/metadata.name": "team-a"}
    assert NAMESPACE.validate_create(made) == []


def test_the_label_with_the_name_cannot_be_taken_away() -> None:
    old = stored(NAMESPACE.prepare_create(make_namespace("team-a")))
    new = NAMESPACE.prepare_update(replace(old, metadata=replace(old.metadata, labels={})), old)
    assert new.metadata.labels == {"kubernetes.io/metadata.name": "team-a"}


def test_finalizers_and_status_are_written_by_their_own_endpoints() -> None:
    old = stored(NAMESPACE.prepare_create(make_namespace("team-a")))
    wanted = replace(old, spec=NamespaceSpec(), status=NamespaceStatus(phase="Terminating"))
    assert NAMESPACE.prepare_update(wanted, old) == old
    finalized = NAMESPACE.subresources["finalize"].prepare_update(wanted, old)
    assert (finalized.spec.finalizers, finalized.status.phase) == ((), "Active")
    ended = NAMESPACE.subresources["status"].prepare_update(wanted, old)
    assert (ended.spec.finalizers, ended.status.phase) == (("kubernetes",), "Terminating")


def test_a_namespace_is_terminating_only_while_it_is_deleted() -> None:
    old = stored(NAMESPACE.prepare_create(make_namespace("team-a")))
    new = replace(old, status=NamespaceStatus(phase="Terminating"))
    validate = NAMESPACE.subresources["status"].validate_update
    assert [str(error) for error in validate(new, old)] == [
        "status.phase: Invalid value: \"Terminating\": may only be 'Active' if `deletionTimestamp` is empty"
    ]
    deleting = replace(old, metadata=replace(old.metadata, deletion_timestamp="2026-01-01T00:00:00Z"))
    assert validate(replace(deleting, status=new.status), deleting) == []


@pytest.mark.parametrize(
    ("name", "finalizers", "fields"),
    [
        ("team-a", ("example.com/x",), []),
        ("team.a", (), ["metadata.name"]),
        ("team-a", ("x",), ["spec.finalizers[0]"]),
    ],
)
def test_wrong_fields_of_a_namespace(name: str, finalizers: tuple[str, ...], fields: list[str]) -> None:
    namespace = replace(make_namespace(name), spec=NamespaceSpec(finalizers=finalizers))
    assert [error.field for error in NAMESPACE.validate_create(namespace)] == fields


#: What an event with an eventTime has.
REPORTED: dict[str, Any] = {
    "event_time": "2026-01-01T00:00:00.000000Z",
    "reporting_component": "example.com/driver",
    "reporting_instance": "driver-1",
    "action": "Prepare",
    "reason": "Prepared",
}


def make_event(namespace: str = "default", about: str = "default", **fields: Any) -> Event:
    reference = ObjectReference(kind="Pod", namespace=about, name="web")
    return Event(metadata=make_meta("web.1", namespace), involved_object=reference, **fields)


@pytest.mark.parametrize(
    ("event", "fields"),
    {
        "of its namespace": (make_event(), []),
        "of another namespace": (make_event(about="team-a"), ["involvedObject.namespace"]),
        "of the newer kind, about another namespace": (make_event(about="team-a", **REPORTED), []),
        "of the newer kind, with words that are too long": (
            make_event(**{**REPORTED, "action": "x" * 129, "reporting_instance": "x" * 129}),
            ["reportingInstance", "action"],
        ),
        "of the cluster": (make_event(about=""), []),
        "of the cluster, elsewhere": (make_event("team-a", about=""), ["involvedObject.namespace"]),
        "of the newer kind, without its parts": (
            make_event(event_time="2026-01-01T00:00:00.000000Z", message="x" * 1025),
            ["reportingController", "reportingInstance", "action", "reason", *["reportingController"] * 2, "message"],
        ),
    }.values(),
)
def test_wrong_fields_of_an_event(event: Event, fields: list[str]) -> None:
    assert [error.field for error in EVENT.validate_create(event)] == fields


def test_an_event_of_the_newer_kind_only_grows_its_series() -> None:
    old = make_event(
        event_time="2026-01-01T00:00:00.000000Z",
        reporting_component="c",
        reporting_instance="i",
        action="a",
        reason="r",
    )
    assert EVENT.validate_update(replace(old, series=EventSeries(count=2)), old) == []
    assert [error.field for error in EVENT.validate_update(replace(old, message="other"), old)] == ["message"]


def cells(event: Event) -> dict[str, Any]:
    return {column.name: column.cell(event, NOW) for column in EVENT.columns}


def test_the_columns_of_events() -> None:
    event = make_event(
        type="Warning",
        reason="Failed",
        message=" it broke\n",
        source=EventSource(component="agent", host="n1"),
        first_timestamp="2026-01-01T00:00:00Z",
        last_timestamp="2026-01-01T00:00:50Z",
        count=3,
    )
    assert cells(event) == {
        "Last Seen": "10s",
        "Type": "Warning",
        "Reason": "Failed",
        "Object": "pod/web",
        "Subobject": "",
        "Source": "agent, n1",
        "Message": "it broke",
        "First Seen": "60s",
        "Count": 3,
        "Name": "web.1",
    }


def test_an_event_with_a_series_was_seen_when_the_series_says() -> None:
    series = EventSeries(count=5, last_observed_time="2026-01-01T00:00:30.000000Z")
    shown = cells(make_event(series=series, event_time="2026-01-01T00:00:00.000000Z"))
    assert (shown["Last Seen"], shown["Count"], shown["First Seen"]) == ("30s", 5, "60s")


def test_events_are_found_by_what_they_are_about() -> None:
    selectable = EVENT.selectable(make_event(reason="Failed", type="Warning", reporting_component="agent"))
    wanted = {"involvedObject.kind": "Pod", "involvedObject.name": "web", "reason": "Failed", "source": "agent"}
    assert wanted.items() <= selectable.items()


@pytest.mark.parametrize(
    ("spec", "fields"),
    [
        (LeaseSpec(holder_identity="n1", lease_duration_seconds=40), []),
        (LeaseSpec(lease_duration_seconds=0), ["spec.leaseDurationSeconds"]),
        (LeaseSpec(lease_transitions=-1), ["spec.leaseTransitions"]),
    ],
)
def test_wrong_fields_of_a_lease(spec: LeaseSpec, fields: list[str]) -> None:
    lease = Lease(metadata=make_meta("n1", "kube-node-lease"), spec=spec)
    assert [error.field for error in LEASE.validate_create(lease)] == fields
    assert [error.field for error in LEASE.validate_update(lease, lease)] == fields


def test_the_columns_of_leases() -> None:
    lease = stored(Lease(metadata=make_meta("n1", "kube-node-lease"), spec=LeaseSpec(holder_identity="n1")))
    assert [column.cell(lease, NOW) for column in LEASE.columns] == ["n1", "n1", "60s"]

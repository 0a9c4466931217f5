"""Admin access to devices: only in namespaces that are labelled for it."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from claims.admission import ADMIN_ACCESS_LABEL, check_admin_access
from claims.kinds.resource_claims import ResourceClaim, ResourceClaimTemplate
from manciple.store import objects
from manciple.store.hooks import Operation, Write
from manciple.wire.errors import Invalid
from manciple.wire.identity import Identity
from tests.builders import make_allocation, make_claim, make_pod, make_request, make_result, make_template
from tests.scheduling.cluster import Cluster, kind_of

ADMIN = [make_request(), make_request("watch", admin_access=True)]
PLAIN = [make_request(admin_access=False)]


def with_allocation(claim: ResourceClaim, *, admin_access: bool) -> ResourceClaim:
    allocation = make_allocation(make_result(admin_access=admin_access))
    return structs.replace(claim, status=structs.replace(claim.status, allocation=allocation))


def refusal(new: Any, old: Any = None) -> str:
    """The message of the refusal; "" when the write is admitted."""
    operation: Operation = "CREATE" if old is None else "UPDATE"
    identity = Identity(name="alice", groups=("system:authenticated",))
    write = Write(operation=operation, kind=kind_of(new), new=new, old=old, identity=identity)
    try:
        with objects.writing(dry_run=True) as writer:
            check_admin_access(writer, write)
    except Invalid as error:
        return error.message
    return ""


WRITES: dict[str, tuple[ResourceClaim | ResourceClaimTemplate, ResourceClaim | None, bool]] = {
    "a claim with admin access": (make_claim(requests=ADMIN), None, False),
    "a template with admin access": (make_template(requests=ADMIN), None, False),
    "a claim without": (make_claim(requests=PLAIN), None, True),
    "a template without": (make_template(requests=PLAIN), None, True),
    "an allocation with admin access": (
        with_allocation(make_claim(requests=ADMIN), admin_access=True),
        make_claim(requests=ADMIN),
        False,
    ),
    "an allocation without": (
        with_allocation(make_claim(requests=ADMIN), admin_access=False),
        make_claim(requests=ADMIN),
        True,
    ),
    "another write to a claim that was admitted before": (
        make_claim(requests=ADMIN, labels={"team": "a"}),
        make_claim(requests=ADMIN),
        True,
    ),
}


@pytest.mark.parametrize("phrase", WRITES)
def test_validate_admin_access_of_claims_and_templates(cluster: Cluster, phrase: str) -> None:
    new, old, admitted = WRITES[phrase]
    cluster.label_namespace("default", {})
    assert (refusal(new, old) == "") is admitted
    namespace = cluster.all_namespaces()["default"]
    cluster.label(namespace, ADMIN_ACCESS_LABEL, "true")
    assert refusal(new, old) == ""


def test_the_refusal_names_the_field_and_the_label(cluster: Cluster) -> None:
    cluster.label_namespace("default", {ADMIN_ACCESS_LABEL: "yes"})
    assert refusal(make_claim("watcher", requests=ADMIN)) == (
        'ResourceClaim.resource.k8s.io "watcher" is invalid: spec.devices.requests[1].adminAccess: Forbidden: '
        "admin access to devices requires the `resource.kubernetes.io/admin-access: true` label on the containing "
        "namespace"
    )


def test_a_namespace_that_lost_its_label_gives_no_more_claims_from_the_template(cluster: Cluster) -> None:
    cluster.label_namespace("default", {ADMIN_ACCESS_LABEL: "true"})
    cluster.create(make_template("watch", requests=ADMIN))
    cluster.label_namespace("default", {})
    cluster.create(make_pod("monitor", templates={"gpu": "watch"}))
    cluster.settle()
    assert cluster.all(ResourceClaim) == []
    (event,) = cluster.events("FailedResourceClaimCreation")
    assert ADMIN_ACCESS_LABEL in event.message

"""Who may change which part of a claim's status."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from msgspec import structs

from claims.access.status_rights import NODE_NAME, changed_drivers, is_on_the_allocated_node
from claims.kinds.registration import RESOURCE_CLAIM
from claims.kinds.resource_claims import (
    DELETE_PROTECTION,
    AllocatedDeviceStatus,
    AllocationResult,
    ResourceClaim,
    ResourceClaimSpec,
    ResourceClaimStatus,
)
from inventory.kinds import gates
from inventory.kinds.nodes import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from manciple.access import authorization
from manciple.access.authorization import Attributes, Decision
from manciple.api import verbs
from manciple.store import objects
from manciple.wire.errors import Invalid
from manciple.wire.identity import MASTERS, Identity, service_account
from tests.builders import DRIVER, make_allocation, make_claim, make_consumer, make_result

pytestmark = pytest.mark.django_db

OTHER = "other.example.com"
PLUGIN = service_account("drivers", "plugin")
SCHEDULER = Identity("system:kube-scheduler")


def bound_to(*nodes: str, who: Identity = PLUGIN) -> Identity:
    """With a token that names these nodes."""
    return Identity(who.name, who.groups, extra=((NODE_NAME, nodes),))


def right(subresource: str, *verbs_: str, name: str = "") -> set[tuple[str, str, str]]:
    return {(verb, f"resourceclaims/{subresource}", name) for verb in verbs_}


BINDING = right("binding", "patch", "update")
ASSOCIATED = right("driver", "associated-node:patch", "associated-node:update")
ARBITRARY = right("driver", "arbitrary-node:patch", "arbitrary-node:update")


@pytest.fixture
def rights(monkeypatch: pytest.MonkeyPatch) -> set[tuple[str, str, str]]:
    """What everybody may do: (verb, resource, the name that it is restricted to or "")."""
    granted: set[tuple[str, str, str]] = set()

    def authorizer(_who: Identity, wanted: Attributes) -> Decision:
        return Decision(any((wanted.verb, wanted.combined, name) in granted for name in ("", wanted.name)))

    monkeypatch.setattr(authorization, "_authorizers", {"rbac": authorizer})
    return granted


def report(driver: str = DRIVER, device: str = "gpu-0", **fields: Any) -> AllocatedDeviceStatus:
    return AllocatedDeviceStatus(driver=driver, pool="node-1", device=device, **fields)


def store(claim: ResourceClaim) -> None:
    with objects.writing() as writer:
        writer.create(RESOURCE_CLAIM, claim)


def change(identity: Identity, *, verb: str = "patch", dry_run: bool = False, **status: Any) -> ResourceClaim:
    """Write these parts of the status. Raises: Invalid."""

    def changed(old: ResourceClaim) -> ResourceClaim:
        return structs.replace(old, status=structs.replace(old.status, **status))

    written = verbs.modify(
        RESOURCE_CLAIM,
        changed,
        namespace="default",
        name="claim",
        identity=identity.let_in(),
        subresource="status",
        verb=verb,
        dry_run=dry_run,
    )
    claim: ResourceClaim = written.object
    return claim


def refused(identity: Identity, *, verb: str = "patch", **status: Any) -> list[tuple[str, str]]:
    """(field, message) of each cause."""
    with pytest.raises(Invalid) as refusal:
        change(identity, verb=verb, **status)
    causes = (refusal.value.details or {})["causes"]
    return [(cause["field"], cause["message"]) for cause in causes]


# The parts ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["patch", "update"])
def test_allocating_and_reserving_takes_the_right_to_bind(rights: set[tuple[str, str, str]], verb: str) -> None:
    store(make_claim())
    rights |= ARBITRARY
    (told,) = refused(SCHEDULER, verb=verb, allocation=make_allocation(), reserved_for=(make_consumer("p"),))
    assert told == (
        "status.allocation",
        "Forbidden: changing status.allocation or status.reservedFor requires resource="
        f'"resourceclaims/binding", verb="{verb}" permission: resourceclaims.resource.k8s.io is forbidden: User '
        f'"system:kube-scheduler" cannot {verb} resource "resourceclaims/binding" in API group "resource.k8s.io" at '
        "the cluster scope",
    )
    rights |= right("binding", verb)
    change(SCHEDULER, verb=verb, allocation=make_allocation(), reserved_for=(make_consumer("p"),))
    rights -= BINDING
    assert [field for field, _ in refused(SCHEDULER, verb=verb, reserved_for=())] == ["status.allocation"]
    assert [field for field, _ in refused(SCHEDULER, verb=verb, allocation=None, reserved_for=())] == [
        "status.allocation"
    ]


def test_who_may_bind_may_not_report_on_devices(rights: set[tuple[str, str, str]]) -> None:
    store(make_claim(allocation=make_allocation()))
    rights |= BINDING
    assert refused(SCHEDULER, devices=(report(),)) == [
        (
            "status.devices",
            'Forbidden: changing status.devices requires resource="resourceclaims/driver", '
            'verb="[arbitrary-node:patch]" permission: resourceclaims.resource.k8s.io "gpu.example.com" is forbidden: '
            'User "system:kube-scheduler" cannot arbitrary-node:patch resource "resourceclaims/driver" in API group '
            '"resource.k8s.io" in the namespace "default"',
        )
    ]


def test_while_the_feature_is_off_the_right_to_write_the_status_suffices(rights: set[tuple[str, str, str]]) -> None:
    """What was written then stays, and is judged again by the next write."""
    store(make_claim())
    with gates.using(DRAResourceClaimGranularStatusAuthorization=False):
        change(PLUGIN, allocation=make_allocation(), reserved_for=(make_consumer("p"),))
        written = change(PLUGIN, devices=(report(),))
    assert written.status.devices == (report(),)
    assert not rights
    assert [field for field, _ in refused(PLUGIN, devices=())] == ["status.devices"]


def test_a_driver_reports_where_its_token_is_bound(rights: set[tuple[str, str, str]]) -> None:
    store(make_claim(allocation=make_allocation()))
    rights |= ASSOCIATED
    for stranger in (PLUGIN, bound_to("node-2"), bound_to("node-1", "node-2"), bound_to("node-1", who=SCHEDULER)):
        assert [field for field, _ in refused(stranger, devices=(report(),))] == ["status.devices"]
    assert change(bound_to("node-1"), devices=(report(),)).status.devices == (report(),)


def test_a_driver_with_the_right_everywhere_reports_from_anywhere(rights: set[tuple[str, str, str]]) -> None:
    store(make_claim(allocation=make_allocation(node=None)))
    rights |= ARBITRARY
    change(PLUGIN, devices=(report(),))


def test_the_right_is_of_one_driver(rights: set[tuple[str, str, str]]) -> None:
    results = (make_result(), make_result(driver=OTHER))
    store(make_claim(allocation=make_allocation(*results)))
    rights |= right("driver", "associated-node:patch", name=DRIVER)
    driver = bound_to("node-1")
    ours, theirs = report(), report(OTHER)
    assert [message for _, message in refused(driver, devices=(ours, theirs))] == [
        'Forbidden: changing status.devices requires resource="resourceclaims/driver", verb="[associated-node:patch '
        'arbitrary-node:patch]" permission: resourceclaims.resource.k8s.io "other.example.com" is forbidden: User '
        '"system:serviceaccount:drivers:plugin" cannot associated-node:patch resource "resourceclaims/driver" in API '
        'group "resource.k8s.io" in the namespace "default"'
    ]
    change(driver, devices=(ours,))
    change(Identity("root", (MASTERS,)), devices=(ours, theirs))
    assert refused(driver, devices=(ours,)) == refused(driver, devices=())
    change(driver, devices=(theirs,))


def test_deallocating_takes_all_reports_along(rights: set[tuple[str, str, str]]) -> None:
    store(make_claim(allocation=make_allocation()))
    rights |= ARBITRARY | BINDING
    change(PLUGIN, devices=(report(),))
    rights -= ARBITRARY
    assert change(SCHEDULER, allocation=None).status.devices == ()


def test_what_stays_as_it_is_takes_no_right(rights: set[tuple[str, str, str]]) -> None:
    claim = make_claim(allocation=make_allocation(), reserved_for=(make_consumer("p"),))
    store(claim)
    rights |= ARBITRARY
    change(PLUGIN, devices=(report(),))
    rights.clear()
    change(PLUGIN, devices=(report(),), allocation=claim.status.allocation)


def test_a_dry_run_takes_the_same_rights(rights: set[tuple[str, str, str]]) -> None:
    store(make_claim(allocation=make_allocation()))
    with pytest.raises(Invalid):
        change(PLUGIN, dry_run=True, devices=(report(),))


def test_only_who_may_bind_takes_the_protection_off_a_claim_that_is_allocated(
    rights: set[tuple[str, str, str]],
) -> None:
    store(make_claim(allocation=make_allocation(), finalizers=(DELETE_PROTECTION, "example.com/other")))

    def keep(*finalizers: str) -> ResourceClaim:
        def changed(old: ResourceClaim) -> ResourceClaim:
            return structs.replace(old, metadata=structs.replace(old.metadata, finalizers=finalizers))

        claim: ResourceClaim = verbs.modify(
            RESOURCE_CLAIM, changed, namespace="default", name="claim", identity=SCHEDULER.let_in()
        ).object
        return claim

    assert keep(DELETE_PROTECTION).metadata.finalizers == (DELETE_PROTECTION,)
    with pytest.raises(Invalid, match=r"metadata\.finalizers: Forbidden: removing .* requires .*claims/binding"):
        keep()
    rights |= BINDING
    change(SCHEDULER, allocation=None)
    rights -= BINDING
    assert keep().metadata.finalizers == ()


# What they are told by ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after", "drivers"),
    [
        ((), (report(),), [DRIVER]),
        ((report(),), (), [DRIVER]),
        ((report(), report(OTHER)), (report(OTHER), report()), []),
        ((report(data={"a": 1}), report(OTHER)), (report(data={"a": 2}), report(OTHER)), [DRIVER]),
        ((report(), report(OTHER)), (report(device="gpu-1"),), [DRIVER, OTHER]),
        ((report(share_id="a"),), (report(share_id="b"),), [DRIVER]),
    ],
)
def test_a_driver_is_concerned_whose_entries_change(
    before: Iterable[AllocatedDeviceStatus], after: Iterable[AllocatedDeviceStatus], drivers: list[str]
) -> None:
    old, new = ResourceClaimStatus(devices=tuple(before)), ResourceClaimStatus(devices=tuple(after))
    assert changed_drivers(new, old) == drivers


def selecting(*terms: NodeSelectorTerm) -> AllocationResult:
    return structs.replace(make_allocation(), node_selector=NodeSelector(node_selector_terms=terms))


def named(*values: str, operator: str = "In", key: str = "metadata.name") -> NodeSelectorRequirement:
    return NodeSelectorRequirement(key=key, operator=operator, values=values)


@pytest.mark.parametrize(
    ("allocation", "is_there"),
    {
        "one node by its name": (selecting(NodeSelectorTerm(match_fields=(named("node-1"),))), True),
        "another node": (selecting(NodeSelectorTerm(match_fields=(named("node-2"),))), False),
        "two nodes": (selecting(NodeSelectorTerm(match_fields=(named("node-1", "node-2"),))), False),
        "all but one": (selecting(NodeSelectorTerm(match_fields=(named("node-1", operator="NotIn"),))), False),
        "by a label": (selecting(NodeSelectorTerm(match_expressions=(named("node-1"),))), False),
        "by name and label": (
            selecting(NodeSelectorTerm(match_fields=(named("node-1"),), match_expressions=(named("x", key="y"),))),
            False,
        ),
        "two alternatives": (selecting(*[NodeSelectorTerm(match_fields=(named("node-1"),))] * 2), False),
        "any node": (make_allocation(node=None), False),
    }.values(),
)
def test_a_claim_is_on_the_node_that_it_names_alone(allocation: AllocationResult, is_there: bool) -> None:
    assert is_on_the_allocated_node(bound_to("node-1"), allocation) is is_there


@pytest.mark.parametrize(
    "name", ["system:serviceaccount:drivers", "system:serviceaccount::plugin", "system:node:node-1", "alice"]
)
def test_only_service_accounts_are_on_nodes(name: str) -> None:
    assert not is_on_the_allocated_node(bound_to("node-1", who=Identity(name)), make_allocation())


def test_a_name_that_is_empty_is_no_node() -> None:
    nowhere = selecting(NodeSelectorTerm(match_fields=(named(""),)))
    assert not is_on_the_allocated_node(bound_to(""), nowhere)


@pytest.mark.parametrize(
    "spec", [ResourceClaimSpec(resource_class_name="lamps"), ResourceClaimSpec(controller_name=DRIVER)]
)
@pytest.mark.usefixtures("rights")
def test_claim_that_a_controller_allocates_needs_the_right_to_its_status_alone(spec: ResourceClaimSpec) -> None:
    """Charts of drivers of Kubernetes 1.26 to 1.31 bring no other (KEP-3063)."""
    store(ResourceClaim(metadata=make_claim().metadata, spec=spec))
    given = AllocationResult(controller_name=DRIVER)
    assert change(PLUGIN, allocation=given).status.allocation == given
    assert change(PLUGIN, reserved_for=(make_consumer("p"),)).status.reserved_for


@pytest.mark.usefixtures("rights")
def test_claim_that_the_scheduler_allocates_needs_the_right_to_bind() -> None:
    store(make_claim())
    with pytest.raises(Invalid, match='requires resource="resourceclaims/binding"'):
        change(PLUGIN, allocation=AllocationResult())

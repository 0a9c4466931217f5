"""Controllers whose work another package does: each entry says when, and what else wakes it."""

from __future__ import annotations

from datetime import datetime

from msgspec.structs import replace

from manciple.access import aggregation, namespace_defaults, sign_ins
from manciple.access.namespace_defaults import CONFIG_MAPS, SERVICE_ACCOUNTS
from manciple.access.rbac import CLUSTER_ROLES
from manciple.admission.kinds.policies import POLICY, ValidatingAdmissionPolicy, ValidatingAdmissionPolicyStatus
from manciple.admission.type_checking import check_policy
from manciple.api import namespaces
from manciple.audit import recording, retention
from manciple.controllers.declaration import ANY, DELETING, Controller
from manciple.extensions import cleanup
from manciple.extensions.definitions import RESOURCE
from manciple.notifications import delivering
from manciple.store import garbage, objects, sql
from manciple.wire import codec
from manciple.wire.identity import controller
from manciple.wire.registry import registry
from manciple.wire.resources import ADDED, DELETED, MODIFIED, NAMESPACES

#: Upstream: the service account of that name in kube-controller-manager.
POLICY_IDENTITY = controller("validatingadmissionpolicy-status-controller")
#: Objects that one run of the garbage collector deletes.
MOST_GARBAGE = 1000


def collect_garbage(_now: datetime) -> int:
    """Returns how many objects were deleted or released, those included that the deletions orphaned."""
    return garbage.collect(MOST_GARBAGE)


def sweep_namespaces(now: datetime) -> int:
    """Returns how many namespaces were removed."""
    return namespaces.sweep(now)


def restore_namespace_defaults(_now: datetime) -> int:
    """Returns how many objects were created or corrected."""
    return namespace_defaults.restore()


def aggregate_cluster_roles(_now: datetime) -> int:
    """Returns how many roles were written."""
    return aggregation.reconcile()


def sweep_custom_resources(_now: datetime) -> int:
    """Returns how many objects were changed or deleted."""
    return cleanup.sweep()


def keep_audit_trail(now: datetime) -> int:
    """Copy writes before the log drops them. Returns how many old entries were deleted."""
    recording.catch_up()
    return retention.prune(now)


def check_admission_policies(_now: datetime) -> int:
    """Type-check policies whose generation has no result yet. Returns how many statuses were written."""
    stored = [codec.decode_text(ValidatingAdmissionPolicy, found.text) for found in objects.list(POLICY).items]
    unchecked = [
        policy
        for policy in stored
        if policy.status.observed_generation < policy.metadata.generation and not policy.metadata.deletion_timestamp
    ]
    statuses = {
        policy.metadata.name: replace(
            policy.status,
            observed_generation=policy.metadata.generation,
            type_checking=check_policy(policy, registry),
        )
        for policy in unchecked
    }
    if not statuses:
        return 0
    with objects.writing(identity=POLICY_IDENTITY) as writer:
        return sum(_write_status(writer, name, status) for name, status in statuses.items())


def _write_status(writer: objects.Writer, name: str, status: ValidatingAdmissionPolicyStatus) -> bool:
    """False where the policy has changed since: that change wakes the controller again."""
    policy = writer.get(POLICY, "", name)
    if not isinstance(policy, ValidatingAdmissionPolicy) or policy.metadata.generation != status.observed_generation:
        return False
    writer.update(POLICY, replace(policy, status=status), subresource="status")
    return True


GARBAGE = Controller(
    name="collect_garbage",
    does="deletes objects whose owners are gone",
    reconcile=collect_garbage,
    every=10,
    wakes_on=frozenset({(ANY, DELETED)}),
    has_work=garbage.HAS_WORK,
    # `release_claims` releases the claims of deleted pods at once; deleting them before that would be more work.
    patience=0.25,
    most_per_turn=MOST_GARBAGE,
)

NAMESPACE_SWEEP = Controller(
    name="sweep_namespaces",
    does="empties and removes namespaces that are being deleted",
    reconcile=sweep_namespaces,
    every=5,
    wakes_on=frozenset({(NAMESPACES, MODIFIED), (NAMESPACES, DELETING), (ANY, DELETED)}),
    has_work=sql.ANY_NAMESPACE_LEAVES,
)

NAMESPACE_DEFAULTS = Controller(
    name="restore_namespace_defaults",
    does="creates the service account `default` and kube-root-ca.crt in every namespace",
    reconcile=restore_namespace_defaults,
    every=60,
    wakes_on=frozenset({(SERVICE_ACCOUNTS, DELETED), (CONFIG_MAPS, DELETED), (CONFIG_MAPS, MODIFIED)}),
)

AGGREGATION = Controller(
    name="aggregate_cluster_roles",
    does="collects the rules of ClusterRoles with an aggregationRule from the roles that it selects",
    reconcile=aggregate_cluster_roles,
    every=60,
    wakes_on=frozenset({(CLUSTER_ROLES, ADDED), (CLUSTER_ROLES, MODIFIED), (CLUSTER_ROLES, DELETED)}),
)

CUSTOM_RESOURCES = Controller(
    name="sweep_custom_resources",
    does="deletes the objects of kinds whose definition is deleted, and then the definition",
    reconcile=sweep_custom_resources,
    every=10,
    wakes_on=frozenset({(RESOURCE, DELETING), (RESOURCE, DELETED)}),
    most_per_turn=cleanup.MOST,
)

ADMISSION_POLICIES = Controller(
    name="check_admission_policies",
    does="checks the expressions of new admission policies and reports problems in their status",
    reconcile=check_admission_policies,
    every=60,
    wakes_on=frozenset({(POLICY.resource, ADDED), (POLICY.resource, MODIFIED)}),
)

AUDIT = Controller(
    name="audit",
    does="copies writes into the audit trail, and prunes it",
    in_mirror=True,
    reconcile=keep_audit_trail,
    every=60,
)

NOTIFICATIONS = Controller(
    name="deliver_notifications",
    does="sends notifications by webhook and e-mail, again where they were not taken",
    in_mirror=True,
    reconcile=delivering.deliver,
    every=5,
    most_per_turn=delivering.MOST,
)

SIGN_INS = Controller(
    name="sign_ins",
    does="removes sessions of the pages that have expired",
    in_mirror=True,
    reconcile=sign_ins.prune,
    every=300,
)

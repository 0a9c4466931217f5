"""Looks at the expressions of admission policies that were written: see `manciple.admission.type_checking`."""

from __future__ import annotations

from datetime import datetime

from msgspec.structs import replace

from manciple.admission.kinds.policies import POLICY, ValidatingAdmissionPolicy, ValidatingAdmissionPolicyStatus
from manciple.admission.type_checking import check_policy
from manciple.store import objects
from manciple.wire import codec
from manciple.wire.identity import controller
from manciple.wire.registry import registry
from scheduling.controllers.declaration import ADDED, MODIFIED, Controller

#: Who writes (upstream: the service account of that name in kube-controller-manager).
IDENTITY = controller("validatingadmissionpolicy-status-controller")


def reconcile(_now: datetime) -> int:
    """Returns how many statuses were written."""
    stored = [codec.decode_text(ValidatingAdmissionPolicy, found.text) for found in objects.list(POLICY).items]
    looked_at = {policy.metadata.name: _status(policy) for policy in stored if _is_unseen(policy)}
    if not looked_at:
        return 0
    with objects.writing(identity=IDENTITY) as writer:
        return sum(_write(writer, name, status) for name, status in looked_at.items())


def _is_unseen(policy: ValidatingAdmissionPolicy) -> bool:
    return policy.status.observed_generation < policy.metadata.generation and not policy.metadata.deletion_timestamp


def _status(policy: ValidatingAdmissionPolicy) -> ValidatingAdmissionPolicyStatus:
    return replace(
        policy.status, observed_generation=policy.metadata.generation, type_checking=check_policy(policy, registry)
    )


def _write(writer: objects.Writer, name: str, status: ValidatingAdmissionPolicyStatus) -> bool:
    """Unless it has been changed again meanwhile: then it is looked at again, soon."""
    policy = writer.get(POLICY, "", name)
    if not isinstance(policy, ValidatingAdmissionPolicy) or policy.metadata.generation != status.observed_generation:
        return False
    writer.update(POLICY, replace(policy, status=status), subresource="status")
    return True


CONTROLLER = Controller(
    name="check_admission_policies",
    does="checks the expressions of new admission policies and reports problems in their status",
    reconcile=reconcile,
    every=60,
    wakes_on=frozenset({(POLICY.resource, ADDED), (POLICY.resource, MODIFIED)}),
)

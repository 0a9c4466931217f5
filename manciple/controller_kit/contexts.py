"""What is to be done about one PodSchedulingContext: say which nodes do not suit, and allocate for the selected one.

Before it allocates, it asks the driver whether the selected node suits all claims of the pod: else some would have to
be given up again. What it said before is checked again together with what the scheduler asks for, which lists no node
twice (KEP-3063, "PodSchedulingContext"; the library of 1.30 forgets the former). Source: k8s.io/
dynamic-resource-allocation/controller of Kubernetes 1.30, syncPodSchedulingContexts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from msgspec.structs import replace

from claims.classic import kinds as v1alpha2
from claims.classic.rules import NODES_MAX
from claims.kinds.pods import Pod
from claims.kinds.resource_claims import ResourceClaimConsumerReference
from manciple.controller_kit.claims import AllocationOutcome, ClaimWork
from manciple.controller_kit.driver import ControlledClaim, PendingClaim
from manciple.controller_kit.forms import ClaimForm, ClassNotFound, ParametersWrong
from manciple.controller_kit.workplace import DriverFailed, Next, Workplace
from nodeagent.api.client import PODS
from nodeagent.claims.prepare import ClaimUse, claims_used, is_made_for
from nodeagent.failures import ApiFailure, PrepareRefused

Context = v1alpha2.PodSchedulingContext
#: Of each claim, by uid.
Unsuitable = Mapping[str, Collection[str]]


class ContextWork:
    """Thread-safe, as far as the driver is; no two threads at one context."""

    def __init__(self, place: Workplace, claims: ClaimWork) -> None:
        self._place = place
        self._claims = claims

    def sync(self, context: Context) -> Next:
        """Raises: ApiFailure, DriverFailed, ClassNotFound, ParametersWrong."""
        if context.metadata.deletion_timestamp or not _asks(context):
            return Next.ON_CHANGE
        pod = self._place.pod(*context.key)
        if pod is None or pod.metadata.deletion_timestamp or not is_made_for(context, pod):
            return Next.ON_CHANGE  # an orphan, which goes soon
        try:
            pending = [one for use in claims_used(pod) for one in self._pending(pod, use)]
        except PrepareRefused:
            return Next.SOON  # a claim of the pod has yet to be made, or we have yet to hear of it
        if not pending:
            return Next.PERIODICALLY
        unsuitable = self._ask(context, pod, pending)
        outcome = self._allocate(context, pod, pending, unsuitable)
        if outcome.refused:
            unsuitable = self._ask(context, pod, pending)
        told = self._tell(context, pending, unsuitable)
        self._complain(outcome)
        return Next.SOON if outcome.outrun or not told else Next.PERIODICALLY

    # The claims of the pod that wait for this driver.

    def _pending(self, pod: Pod, use: ClaimUse) -> Iterator[PendingClaim]:
        """Raises: PrepareRefused for a claim that is not there."""
        for form in self._place.forms:
            claim = self._place.claims[form.version].get(pod.metadata.namespace, use.claim)
            if claim is None:
                raise PrepareRefused(f"ResourceClaim {use.claim} does not exist")
            if _waits(form, claim, use, pod):
                yield from self._ours(form, claim, use, pod)

    def _ours(self, form: ClaimForm, claim: ControlledClaim, use: ClaimUse, pod: Pod) -> Iterator[PendingClaim]:
        classes = self._place.classes_of(form)
        try:
            if not form.is_for(claim, self._place.driver.name, classes):
                return
        except ClassNotFound:
            return  # it may be another's; when its class comes, all is looked at again
        try:
            yield form.pending(claim, use.entry, self._place.driver, classes)
        except (ClassNotFound, ParametersWrong) as error:
            if isinstance(error, ParametersWrong):
                self._place.warn_class(error)
            self._place.warn_claim(claim, str(error))
            self._place.warn(pod, PODS, f"claim {claim.metadata.name}: {error}")
            raise

    # Nodes.

    def _ask(self, context: Context, pod: Pod, pending: Sequence[PendingClaim]) -> Unsuitable:
        """Raises: DriverFailed. Of a pod that was bound by hand nothing is asked: it cannot go elsewhere."""
        if not context.spec.potential_nodes:
            return {}
        mine = {one.entry for one in pending}
        before = (node for one in context.status.resource_claims if one.name in mine for node in one.unsuitable_nodes)
        selected = (context.spec.selected_node,) if context.spec.selected_node else ()
        nodes = tuple(dict.fromkeys((*selected, *context.spec.potential_nodes, *before)))
        with self._place.asking("UnsuitableNodes"):
            given = self._place.driver.unsuitable_nodes(pod, pending, nodes)
        return {uid: [node for node in nodes if node in named] for uid, named in given.items()}

    def _allocate(
        self, context: Context, pod: Pod, pending: Sequence[PendingClaim], unsuitable: Unsuitable
    ) -> AllocationOutcome:
        node = context.spec.selected_node
        if not node or any(node in unsuitable.get(one.uid, ()) for one in pending):
            return AllocationOutcome()
        user = ResourceClaimConsumerReference(resource="pods", name=pod.metadata.name, uid=pod.metadata.uid)
        return self._claims.allocate(pending, selected_node=node, users=(user,))

    def _tell(self, context: Context, pending: Sequence[PendingClaim], unsuitable: Unsuitable) -> bool:
        """Write what has changed; also of claims that are allocated by now, as that may have to be undone.

        False where somebody else's write came before. Raises: ApiFailure.
        """
        told = {one.name: one for one in context.status.resource_claims}
        for one in pending:
            nodes = tuple(unsuitable.get(one.uid, ()))[:NODES_MAX]
            if one.entry not in told or told[one.entry].unsuitable_nodes != nodes:
                told[one.entry] = v1alpha2.ResourceClaimSchedulingStatus(name=one.entry, unsuitable_nodes=nodes)
        status = replace(context.status, resource_claims=tuple(told.values()))
        if status == context.status:
            return True
        try:
            updated = self._place.client.update(
                self._place.context_resource, replace(context, status=status), subresource="status"
            )
        except ApiFailure as failure:
            if not (failure.conflict or failure.not_found):
                raise
            return failure.not_found
        self._place.contexts.put(updated)
        return True

    def _complain(self, outcome: AllocationOutcome) -> None:
        """Raises: DriverFailed where the driver refused a claim."""
        for claim, reason in outcome.refused:
            self._place.warn_claim(claim, f"allocate: {reason}")
        if outcome.refused:
            raise DriverFailed("; ".join(f"claim {claim.metadata.name}: {why}" for claim, why in outcome.refused))


def _asks(context: Context) -> bool:
    return bool(context.spec.selected_node or context.spec.potential_nodes)


def _waits(form: ClaimForm, claim: ControlledClaim, use: ClaimUse, pod: Pod) -> bool:
    """Whether the claim is to be allocated for this pod."""
    if claim.metadata.deletion_timestamp or (use.generated and not is_made_for(claim, pod)):
        return False
    return form.is_made_in(claim) and form.is_delayed(claim) and claim.status.allocation is None

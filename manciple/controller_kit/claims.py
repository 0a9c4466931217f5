"""What is to be done about one claim: allocate it, alone or with others, and give it up.

The order of the writes is the protocol's: the finalizer before the driver is asked, so that no claim goes while
something is given; the allocation and who it is reserved for in one write; the finalizer off last. Each may be
interrupted and is done again. Source: k8s.io/dynamic-resource-allocation/controller of Kubernetes 1.30, syncClaim.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as with_fields

from msgspec.structs import replace

from manciple.controller_kit.driver import Allocation, ControlledClaim, NotAllocated, PendingClaim
from manciple.controller_kit.forms import ClassNotFound, ParametersWrong, Users, form_of
from manciple.controller_kit.workplace import DriverFailed, Next, Workplace
from nodeagent.failures import ApiFailure


@dataclass(frozen=True, slots=True)
class AllocationOutcome:
    """Of allocating several claims. refused: the claim and why; outrun: somebody else's write came before ours."""

    refused: tuple[tuple[ControlledClaim, str], ...] = ()
    outrun: bool = False


_UNANSWERED = NotAllocated("the driver did not answer for this claim")


class ClaimWork:
    """Thread-safe, as far as the driver is; no two threads at one claim."""

    def __init__(self, place: Workplace) -> None:
        self._place = place

    def sync(self, claim: ControlledClaim) -> Next:
        """Raises: ApiFailure, DriverFailed, ParametersWrong."""
        if claim.status.reserved_for:
            return Next.ON_CHANGE
        if claim.metadata.deletion_timestamp or claim.status.deallocation_requested:
            return self._give_up(claim)
        form = form_of(claim)
        if claim.status.allocation is not None or not form.is_made_in(claim) or form.is_delayed(claim):
            return Next.ON_CHANGE
        classes = self._place.classes_of(form)
        try:
            if not form.is_for(claim, self._place.driver.name, classes):
                return Next.ON_CHANGE
            pending = form.pending(claim, "", self._place.driver, classes)
        except ClassNotFound:
            return Next.ON_CHANGE  # it may be another's; when its class comes, it is looked at again
        except ParametersWrong as error:
            self._place.warn_class(error)
            raise
        return self._allocate_alone(pending)

    def _allocate_alone(self, pending: PendingClaim) -> Next:
        outcome = self.allocate([pending], selected_node="", users=())
        if outcome.refused:
            raise DriverFailed(f"allocate: {outcome.refused[0][1]}")
        return Next.SOON if outcome.outrun else Next.ON_CHANGE

    def allocate(self, pending: Sequence[PendingClaim], *, selected_node: str, users: Users) -> AllocationOutcome:
        """Those of them that are not allocated yet. Raises: ApiFailure."""
        marked = [self._marked(one) for one in pending if one.claim.status.allocation is None]
        ready = [one for one in marked if one is not None]
        if not ready:
            return AllocationOutcome(outrun=bool(marked))
        metrics = self._place.metrics
        metrics.asked_to_allocate(len(ready))
        answers: Mapping[str, Allocation | NotAllocated]
        try:
            with self._place.asking("Allocate"):
                answers = self._place.driver.allocate(ready, selected_node)
        except DriverFailed as error:
            answers = dict.fromkeys((one.uid for one in ready), NotAllocated(str(error)))
        refused, outrun = [], len(ready) < len(marked)
        for one in ready:
            answer = answers.get(one.uid, _UNANSWERED)
            if isinstance(answer, NotAllocated):
                refused.append((one.claim, answer.reason))
            elif not self._write(one.claim, answer, users):
                outrun = True
        metrics.not_allocated(len(refused))
        return AllocationOutcome(tuple(refused), outrun)

    def _marked(self, pending: PendingClaim) -> PendingClaim | None:
        """The claim with our finalizer; None where it is not as we know it."""
        meta = pending.claim.metadata
        if self._place.finalizer in meta.finalizers:
            return pending
        marked = replace(pending.claim, metadata=replace(meta, finalizers=(*meta.finalizers, self._place.finalizer)))
        try:
            return with_fields(pending, claim=self._place.update(marked))
        except ApiFailure as failure:
            if failure.conflict or failure.not_found:
                return None
            raise

    def _write(self, claim: ControlledClaim, given: Allocation, users: Users) -> bool:
        """False where somebody else's write came before, or the claim is gone. Raises: ApiFailure."""
        reserved = users if self._place.reserve else ()
        allocated = form_of(claim).allocated(claim, self._place.driver.name, given, reserved)
        try:
            self._place.update(allocated, status=True)
        except ApiFailure as failure:
            if failure.conflict or failure.not_found:
                return False
            raise
        return True

    def _give_up(self, claim: ControlledClaim) -> Next:
        """The finalizer tells that the claim is ours; without one there is nothing of ours to take back."""
        if self._place.finalizer not in claim.metadata.finalizers:
            return Next.ON_CHANGE
        with self._place.asking("Deallocate"):
            self._place.driver.deallocate(claim)
        if claim.status.allocation is not None or claim.status.deallocation_requested:
            claim = self._place.update(form_of(claim).deallocated(claim), status=True)
        left = tuple(one for one in claim.metadata.finalizers if one != self._place.finalizer)
        try:
            self._place.update(replace(claim, metadata=replace(claim.metadata, finalizers=left)))
        except ApiFailure as failure:
            if not failure.not_found:
                raise
        self._place.given_up()
        return Next.ON_CHANGE

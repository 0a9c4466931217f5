"""What other limits would mean for what there is: nothing is written.

Limits take nothing away: what is used already stays, also above them. They refuse what is made from then on. Of the
pods that wait, some lack a claim that is still to be made, and get it or are refused; the others are counted already,
and would be refused if somebody made them anew (a Job does, when one fails).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from claims.kinds.resource_claims import ResourceClaim
from claims.kinds.resource_usage import (
    CLAIMS,
    NONE,
    PODS,
    ExtendedNames,
    QuotaLimits,
    Usage,
    minus,
    parsed,
    plus,
    usage_of,
)
from claims.pod_claims import is_for_pod
from dashboard.capacity.quotas.reading import QuotaLimit, UnplacedPod
from manciple.wire.quantity import Quantity
from scheduling.state.quota_room import least


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitChange:
    """A key with another limit. before, after: None for none."""

    limit: QuotaLimit
    before: Quantity | None
    after: Quantity | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why a quota refuses: it wants so much of a key, of which so much is used."""

    quota: str
    limit: QuotaLimit
    wanted: Quantity


@dataclass(frozen=True, slots=True, kw_only=True)
class PodOutcome:
    """What becomes of a pod that waits.

    given: its claims are made; refused: they are not; again: it stays, and would be refused if it were made anew; held:
    its claims are given no devices, whatever is free.
    """

    waiting: UnplacedPod
    outcome: Literal["given", "refused", "again", "held"]
    refusal: Refusal | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsRehearsal:
    """changes: of the limits; above: limits below what is used; verdicts: on pods for which something is decided."""

    changes: Sequence[LimitChange]
    above: Sequence[QuotaLimit]
    verdicts: Sequence[PodOutcome]

    def _of(self, outcome: str) -> list[PodOutcome]:
        return [one for one in self.verdicts if one.outcome == outcome]

    @property
    def given(self) -> list[PodOutcome]:
        return self._of("given")

    @property
    def refused(self) -> list[PodOutcome]:
        return self._of("refused")

    @property
    def again(self) -> list[PodOutcome]:
        return self._of("again")

    @property
    def held(self) -> list[PodOutcome]:
        return self._of("held")


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedQuota:
    """A quota's limits with what is used of them."""

    limits: QuotaLimits
    used: Usage


def rehearse(
    before: Mapping[str, str],
    tried: CountedQuota,
    others: Iterable[CountedQuota],
    waiting: Sequence[UnplacedPod],
    classes: ExtendedNames,
) -> LimitsRehearsal:
    """before: the limits that `tried` replaces; others: the namespace's other quotas, which refuse as they do now."""
    found = [
        QuotaLimit(key=key, hard=hard, used=tried.used.get(key)) for key, hard in sorted(tried.limits.hard.items())
    ]
    quotas = sorted((tried, *others), key=lambda one: one.limits.name)
    made = _to_be_made(quotas, waiting, classes)
    return LimitsRehearsal(
        changes=_changes(parsed(before), tried),
        above=[one for one in found if one.is_over],
        verdicts=[*made, *_made_anew(tried, waiting, classes), *_held(tried, waiting)],
    )


def _changes(before: Usage, tried: CountedQuota) -> list[LimitChange]:
    after = tried.limits.hard
    return [
        LimitChange(
            limit=QuotaLimit(key=key, hard=after.get(key, NONE), used=tried.used.get(key)),
            before=before.get(key),
            after=after.get(key),
        )
        for key in sorted({*before, *after})
        if before.get(key) != after.get(key)
    ]


def _to_be_made(
    quotas: Sequence[CountedQuota], waiting: Iterable[UnplacedPod], classes: ExtendedNames
) -> Iterable[PodOutcome]:
    """On the pods that lack claims, in the order in which these are made."""
    used = {one.limits.name: one.used for one in quotas}
    for one in waiting:
        if not one.lacking:
            continue
        wanted = {quota.limits.name: _claims_share(quota.limits, one.lacking, classes) for quota in quotas}
        refusals = (_refusal(quota.limits, wanted[quota.limits.name], used[quota.limits.name]) for quota in quotas)
        refusal = next((found for found in refusals if found), None)
        if refusal is None:
            used = {name: plus(amounts, wanted[name]) for name, amounts in used.items()}
        yield PodOutcome(waiting=one, outcome="refused" if refusal else "given", refusal=refusal)


def _made_anew(tried: CountedQuota, waiting: Iterable[UnplacedPod], classes: ExtendedNames) -> Iterable[PodOutcome]:
    """On the pods that are counted and would not be let in again, after all that does not wait."""
    shares = [(one, _share(tried.limits, one, classes)) for one in waiting if not one.lacking]
    used = tried.used
    for _, share in shares:
        used = minus(used, share)
    for one, share in shares:
        refusal = _refusal(tried.limits, share, used)
        if refusal is not None:
            yield PodOutcome(waiting=one, outcome="again", refusal=refusal)
        else:
            used = plus(used, share)


def _held(tried: CountedQuota, waiting: Iterable[UnplacedPod]) -> Iterable[PodOutcome]:
    """On the pods that would get no devices, by the least that they ask for; those before them get theirs."""
    used = tried.used
    for one in waiting:
        wanted: Usage = {}
        for claim in (*one.lacking, *one.made):
            of_pod = one.pod if claim in one.lacking or is_for_pod(claim, one.pod) else None
            if claim.status.allocation is None and tried.limits.concerns(CLAIMS, claim, of_pod):
                wanted = plus(wanted, {key: n for key, n in least(claim).items() if key in tried.limits.hard})
        refusal = _refusal(tried.limits, wanted, used)
        if refusal is not None:
            yield PodOutcome(waiting=one, outcome="held", refusal=refusal)
        else:
            used = plus(used, wanted)


def _share(limits: QuotaLimits, one: UnplacedPod, classes: ExtendedNames) -> Usage:
    """What the pod counts, and the claims that were made for it alone."""
    own = limits.share(PODS, one.pod, usage_of(PODS, one.pod, classes=classes), classes)
    uid = one.pod.metadata.uid
    made = [claim for claim in one.made if any(owner.uid == uid for owner in claim.metadata.owner_references)]
    return plus(own, _claims_share(limits, made, classes))


def _claims_share(limits: QuotaLimits, claims: Iterable[ResourceClaim], classes: ExtendedNames) -> Usage:
    total: Usage = {}
    for claim in claims:
        total = plus(total, limits.share(CLAIMS, claim, usage_of(CLAIMS, claim, classes=classes), classes))
    return total


def _refusal(limits: QuotaLimits, wanted: Usage, used: Usage) -> Refusal | None:
    """As the writer judges it (`claims.quotas`): what is not counted limits nothing."""
    for key, amount in sorted(wanted.items()):
        if amount.sign > 0 and key in used and used[key] + amount > limits.hard[key]:
            limit = QuotaLimit(key=key, hard=limits.hard[key], used=used[key])
            return Refusal(quota=limits.name, limit=limit, wanted=amount)
    return None

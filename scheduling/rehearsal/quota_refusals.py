"""Whether a quota would refuse the generated claims of a pod, or more pods like it. Nothing is written.

They are created together, as the claim controller would create them, in a transaction that is rolled back: so the
answer is the writer's own.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Container, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import cast

from django.conf import settings
from msgspec import structs

from claims.causes.causes import QuotaUsedUp
from claims.controllers.generated_claims import IDENTITY, wanted_claims
from claims.kinds.pods import Pod
from claims.kinds.quotas import ResourceQuota
from claims.kinds.resource_claims import ResourceClaim, ResourceClaimTemplate
from claims.pod_claims import claim_for
from claims.quotas import Excess, QuotaExceeded
from manciple.store import objects
from manciple.store.objects import Writer
from manciple.wire.base import ObjectMeta
from manciple.wire.errors import ApiError, BadRequest, Forbidden, Invalid, NotFound
from manciple.wire.identity import SYSTEM, Identity
from manciple.wire.quantity import Quantity
from manciple.wire.resources import CLAIMS, PODS, QUOTAS, TEMPLATES, kind
from scheduling.rehearsal.workload import Changes, Workload, replica


def _maker() -> Identity:
    """Who creates the claims; of a mirror's cluster nobody here has the rights of its controller."""
    return SYSTEM if settings.MIRROR else IDENTITY


def refused(workload: Workload, *, instead: Changes | None = None) -> QuotaUsedUp | None:
    """Why one replica would wait for its first claim that is refused; None where all of them would be made.

    instead: it comes in the place of the pod, with these changes. The pod's own claims go; those that it shares stay,
    and where they are changed others are made beside them.
    """
    _, claims = replica(workload, 1)
    entries, made = tuple(workload.own), 0
    try:
        with objects.writing(identity=_maker(), dry_run=True) as writer:
            for entry, claim in workload.shared.items() if instead else ():
                if instead and instead.concern(entry) and claim.status.allocation is None:
                    made_anew = ResourceClaim(
                        api_version=claim.api_version,
                        kind=claim.kind,
                        metadata=ObjectMeta(namespace=claim.metadata.namespace, name="new-claim"),
                        spec=claim.spec,
                    )
                    writer.create(kind(CLAIMS), kind(CLAIMS).prepare_create(made_anew))
            for claim in workload.own.values() if instead else ():
                if claim.metadata.uid and writer.get(kind(CLAIMS), *claim.key) is not None:
                    writer.delete(kind(CLAIMS), *claim.key)
            for claim in claims:
                writer.create(kind(CLAIMS), kind(CLAIMS).prepare_create(claim))
                made += 1
    except QuotaExceeded as error:
        _, quota, key, requested, used, hard = error.excess
        return QuotaUsedUp(quota=quota, key=key, requested=requested, used=used, hard=hard, entry=(*entries, "")[made])
    except ApiError:
        return None  # what else is wrong with them is told where they are made
    return None


@dataclass(frozen=True, slots=True)
class RaisedLimit:
    """A limit of a quota (`key`) that has to be at least `to`."""

    quota: str
    key: str
    to: str


#: Limits that are raised, and claims of other pods that are counted, at most.
MOST_RAISED, MOST_OTHERS = 6, 100


def raises_for(workload: Workload, cause: QuotaUsedUp, others: Sequence[tuple[str, str]]) -> tuple[RaisedLimit, ...]:
    """How high the limits have to be so that the claims that the pod lacks are made, beginning with the one in `cause`;
    none where other things refuse them as well.

    others: keys of pods of the namespace that wait, too. Nobody knows whose claims come first when there is room, so
    there has to be enough for theirs as well.
    Raises: ApiError, where the store cannot say so now.
    """
    namespace, limits = workload.pod.metadata.namespace, {(cause.quota, cause.key): _raised(cause)}
    claims = [claim for claim in workload.own.values() if not claim.metadata.uid] if cause.entry else []
    lacking = Workload(pod=workload.pod, own={f"e{at}": claim for at, claim in enumerate(claims)})
    theirs = [claim_for(*wanted) for wanted in islice(wanted_claims(others), MOST_OTHERS + 1)] if claims else []
    if len(theirs) > MOST_OTHERS:
        return ()
    try:
        with objects.writing(identity=SYSTEM, dry_run=True) as writer:  # the claim controller changes no quota
            _set_limits(writer, namespace, limits.values())
            for claim in theirs:
                with suppress(ApiError):  # it is refused as before, and takes no room
                    _create(writer, claim, limits, may_raise=limits.keys())
            for claim in replica(lacking, 1)[1]:
                _create(writer, claim, limits)
    except (BadRequest, Forbidden, Invalid, NotFound):
        return ()
    return tuple(limits.values())


def _create(
    writer: Writer,
    claim: ResourceClaim,
    limits: dict[tuple[str, str], RaisedLimit],
    *,
    may_raise: Container[tuple[str, str]] | None = None,
) -> None:
    """Raise limits until the claim is accepted: any, or only those. Raises: ApiError."""
    for left in reversed(range(MOST_RAISED)):
        try:
            writer.create(kind(CLAIMS), kind(CLAIMS).prepare_create(claim))
        except QuotaExceeded as error:
            namespace, quota, key, requested, used, hard = error.excess
            if not left or (may_raise is not None and (quota, key) not in may_raise):
                raise
            more = QuotaUsedUp(quota=quota, key=key, requested=requested, used=used, hard=hard)
            limits[quota, key] = _raised(more)
            _set_limits(writer, namespace, limits.values())
        else:
            return


def _set_limits(writer: Writer, namespace: str, limits: Collection[RaisedLimit]) -> None:
    for quota in {one.quota for one in limits}:
        stored = cast("ResourceQuota | None", writer.get(kind(QUOTAS), namespace, quota))
        if stored is not None:
            writer.update(kind(QUOTAS), with_limits(stored, limits))


def raises_for_pods(pod: Pod, number: int) -> tuple[RaisedLimit, ...]:
    """How high limits have to be so that so many more pods like this one are made; none where they are high enough, or
    where other things refuse the pods as well.
    """
    namespace, raised = pod.metadata.namespace, list[RaisedLimit]()
    for _ in range(MOST_RAISED):
        made = 0
        try:
            with objects.writing(identity=SYSTEM, dry_run=True) as writer:
                _set_limits(writer, namespace, raised)
                while made < number:
                    name = str(uuid.uuid4())  # a StatefulSet's next one would have the name of a pod that is there
                    writer.create(kind(PODS), structs.replace(pod, metadata=structs.replace(pod.metadata, name=name)))
                    made += 1
        except QuotaExceeded as error:
            _, quota, key, requested, used, _ = error.excess
            to = sum([Quantity.parse(requested)] * (number - made), start=Quantity.parse(used))
            raised = [one for one in raised if (one.quota, one.key) != (quota, key)]
            raised.append(RaisedLimit(quota, key, to.canonical()))
        except ApiError:
            return ()
        else:
            return tuple(raised)
    return ()


def with_limits(quota: ResourceQuota, raised: Iterable[RaisedLimit]) -> ResourceQuota:
    """The quota with those of the limits that are its own."""
    hard = {**quota.spec.hard, **{one.key: one.to for one in raised if one.quota == quota.metadata.name}}
    return structs.replace(quota, spec=structs.replace(quota.spec, hard=hard))


def _raised(cause: QuotaUsedUp) -> RaisedLimit:
    to = Quantity.parse(cause.used) + Quantity.parse(cause.requested)
    return RaisedLimit(cause.quota, cause.key, to.canonical())


def refused_by_quota(pod: Pod, entry: str) -> Excess | None:
    """The quota that would refuse the claim for this entry of spec.resourceClaims now; nothing is written."""
    (wanted,) = (one for one in pod.spec.resource_claims if one.name == entry)
    try:
        with objects.writing(identity=_maker(), dry_run=True) as writer:
            name = wanted.resource_claim_template_name or ""
            template = cast("ResourceClaimTemplate | None", writer.get(kind(TEMPLATES), pod.metadata.namespace, name))
            if template is not None:
                writer.create(kind(CLAIMS), kind(CLAIMS).prepare_create(claim_for(pod, wanted, template)))
    except QuotaExceeded as error:
        return error.excess
    except ApiError:
        return None
    return None


def limit_on_new(namespace: str, resource: str) -> RaisedLimit | None:
    """What has to be raised before anybody can create a claim, or a template, there; nothing is written."""
    made = ResourceClaim if resource == CLAIMS else ResourceClaimTemplate
    served = kind(resource)
    new = made(api_version=served.api_version, kind=served.kind, metadata=ObjectMeta(namespace=namespace, name="new"))
    try:
        with objects.writing(identity=SYSTEM, dry_run=True) as writer:
            writer.create(served, served.prepare_create(new))
    except QuotaExceeded as error:
        _, quota, key, requested, used, hard = error.excess
        return _raised(QuotaUsedUp(quota=quota, key=key, requested=requested, used=used, hard=hard))
    except ApiError:
        return None
    return None

"""What may be concluded of a cluster that is not known entirely: a mirror's, whose kubeconfig may not read every kind.

    judged(cause, pod)      # the cause, or `NotJudged` where not enough is known to tell it
    lacking_for(pod)        # what would have to be known for a rehearsal about the pod

A cause is found as if what was read were all there is. It holds where the kinds on which it, and each number in its
words, depends are known (`_NEEDS`): that no device passes a selector does not depend on claims; that all are held does.
That the pod fits somewhere, and every rehearsed step, need everything; so does a cause without an entry.

Which kinds are not known entirely, `manciple.gaps` says. PURE but for that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Final

from django.conf import settings

from claims.causes import causes
from claims.causes.causes import AnyCause, CannotAllocate, NodeRefusal, NoNodeFits, NotJudged
from claims.kinds.pods import Pod
from claims.pod_claims import has_group
from manciple.gaps import Gap, gaps
from manciple.wire.base import ApiObject
from manciple.wire.resources import (
    CLAIMS,
    CLASSES,
    NAMESPACES,
    NODES,
    POD_GROUPS,
    PODS,
    QUOTAS,
    SLICES,
    TAINT_RULES,
    TEMPLATES,
)
from scheduling.allocator.outcome import COMPLETE, FREE, LARGE, PUBLISHED, UNTAINTED, Funnel, Stage

_VOLUME_CLAIMS, _VOLUMES, _STORAGE_CLASSES = (
    "persistentvolumeclaims",
    "persistentvolumes",
    "storageclasses.storage.k8s.io",
)


# What each statement needs --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Need:
    """own: only of the object's namespace."""

    resource: str
    own: bool = False


def _all(*resources: str) -> frozenset[_Need]:
    return frozenset(map(_Need, resources))


def _own(*resources: str) -> frozenset[_Need]:
    return frozenset(_Need(one, own=True) for one in resources)


_NOTHING: Final = frozenset[_Need]()
#: Which nodes take the pod; what devices they see; which of these are free.
_ON_NODES: Final = _all(NODES, PODS, NAMESPACES)
_PUBLISHED: Final = _ON_NODES | _all(SLICES, CLASSES)
_HELD: Final = _PUBLISHED | _all(TAINT_RULES, CLAIMS)
_OF_VOLUMES: Final = _all(_VOLUMES, _STORAGE_CLASSES) | _own(_VOLUME_CLAIMS)

_NEEDS: Final[Mapping[type[causes.Cause], frozenset[_Need]]] = {
    causes.Gated: _NOTHING,
    causes.SearchStopped: _NOTHING,
    causes.NotJudged: _NOTHING,
    # Read of the claim or the group itself.
    causes.ClaimBeingDeleted: _NOTHING,
    causes.ClaimNotForPod: _NOTHING,
    causes.ClaimInUse: _NOTHING,
    causes.ClaimNotShareable: _NOTHING,
    causes.AwaitingBinding: _NOTHING,
    causes.BindingFailed: _NOTHING,
    causes.ClaimNotCreated: _own(CLAIMS, TEMPLATES, QUOTAS),
    causes.ClaimNotFound: _own(CLAIMS),
    causes.ClassMissing: _all(CLASSES),
    causes.VolumeClaimMissing: _own(_VOLUME_CLAIMS),
    causes.QuotaUsedUp: _own(QUOTAS, CLAIMS),
    causes.GroupMissing: _own(POD_GROUPS),
    causes.GroupIncomplete: _own(POD_GROUPS, PODS),
    causes.TooFewPublished: _PUBLISHED,
    causes.PoolsUnusable: _PUBLISHED,
    causes.NotVisible: _PUBLISHED,
    causes.NotSelected: _PUBLISHED,
    causes.Misconfigured: _PUBLISHED,
    causes.Tainted: _PUBLISHED | _all(TAINT_RULES),
    causes.TooSmall: _PUBLISHED | _all(TAINT_RULES),
}
_NEEDS_OF_PLUGIN: Final[Mapping[str, frozenset[_Need]]] = {
    "VolumeBinding": _ON_NODES | _OF_VOLUMES,
    "DynamicResources": _ON_NODES | _own(CLAIMS),
}
#: In another cluster others decide about these, by rules of their own, which are not known here.
_OF_OTHERS: Final[Mapping[type[causes.Cause], str]] = {
    causes.NobodyAllocates: "a controller of its driver allocates its claim (classic DRA), which is not judged here",
    causes.AwaitingDrivers: "a controller of its driver allocates its claim (classic DRA), which is not judged here",
    causes.ParametersMissing: "its claim is of classic DRA, which is not judged here",
    causes.VolumeClaimNotCreated: "its volumes are provisioned by others, which is not judged here",
    causes.VolumeClaimUnusable: "its volumes are provisioned by others, which is not judged here",
    causes.ClaimNotMade: "the scheduler could not make its claim; its events say why",
    causes.Interrupted: "its scheduler's last attempt failed; its events say why",
}


def _needs(cause: AnyCause, about: ApiObject) -> frozenset[_Need]:
    match cause:
        case causes.NotPlaced():
            return _to_fit(about)
        case NoNodeFits():
            found = _ON_NODES if cause.because is None else _needs(cause.because, about)
            told = (one for one, _ in cause.refused if cause.because is None or not isinstance(one, CannotAllocate))
            return found.union(*(_needs(one, about) for one in told))
        case NodeRefusal():
            return _NEEDS_OF_PLUGIN.get(cause.plugin, _ON_NODES)
    return _NEEDS.get(type(cause), _HELD)


def _to_fit(about: ApiObject) -> frozenset[_Need]:
    """What "it fits on a node" needs."""
    if not isinstance(about, Pod):
        return _HELD
    spec, found = about.spec, _ON_NODES
    resources = {name for one in (*spec.containers, *spec.init_containers) for name in one.resources.requests}
    if spec.resource_claims or any("/" in name for name in resources):
        found |= _HELD
    volumes: Any = spec.volumes  # of a type that is made while Python runs
    if any(volume.persistentVolumeClaim is not None or volume.ephemeral is not None for volume in volumes):
        found |= _OF_VOLUMES
    if has_group(about):
        found |= _own(POD_GROUPS)
    return found


#: For what is rehearsed about any pod.
TO_REHEARSE: Final = (NODES, PODS, NAMESPACES, SLICES, CLASSES, TAINT_RULES, CLAIMS, QUOTAS, POD_GROUPS)


# The judgement --------------------------------------------------------------------------------------------------------


def not_judged(cause: AnyCause | None, about: ApiObject) -> NotJudged | None:
    """Why `cause` may not be told of a pod or a claim; None where it may. cause: None for that it fits."""
    if not settings.MIRROR:
        return None
    if cause is not None and (others := _of_others(cause)):
        return NotJudged(why=(others,))
    needs, missing = _to_fit(about) if cause is None else _needs(cause, about), gaps()
    if not _lacking(needs, missing, about):
        return None
    found = _lacking(needs | _to_fit(about), missing, about)
    return NotJudged(why=tuple(one.why for one in found), forbidden=any(one.forbidden for one in found))


def judged(cause: AnyCause, about: ApiObject) -> AnyCause:
    """`cause`, or that it cannot be judged."""
    return not_judged(cause, about) or cause


def lacking_for(about: ApiObject) -> Sequence[Gap]:
    """What would have to be known for what is rehearsed about a pod or a claim."""
    return _lacking(_to_fit(about) | _own(QUOTAS, TEMPLATES), gaps(), about)


def known_stages(funnel: Funnel, about: ApiObject) -> Funnel:
    """The beginning of a funnel, as far as its counts are right."""
    missing = gaps()
    return tuple(takewhile(lambda stage: not _lacking(_of_stage(stage), missing, about), funnel))


def _of_others(cause: AnyCause) -> str:
    if isinstance(cause, NoNodeFits):
        within = (cause.because, *(one for one, _ in cause.refused))
        return next(filter(None, (_of_others(one) for one in within if one is not None)), "")
    return _OF_OTHERS.get(type(cause), "")


def _lacking(needs: Iterable[_Need], missing: Sequence[Gap], about: ApiObject) -> list[Gap]:
    if not missing:
        return []
    # A claim by itself goes to every node.
    skipped = () if isinstance(about, Pod) else (PODS, NAMESPACES)
    everywhere = {need.resource for need in needs if not need.own and need.resource not in skipped}
    here = {need.resource for need in needs if need.own}
    namespace = about.metadata.namespace
    return [
        gap for gap in missing
        if gap.resource in everywhere or (gap.resource in here and gap.but_for != namespace)
    ]  # fmt: skip


def _of_stage(stage: Stage) -> frozenset[_Need]:
    if stage.name in (PUBLISHED, COMPLETE):
        return _all(SLICES)
    if stage.name == FREE:
        return _HELD
    return _PUBLISHED | _all(TAINT_RULES) if stage.name in (UNTAINTED, LARGE) else _PUBLISHED

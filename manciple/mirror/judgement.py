"""What may be concluded from what may be read.

    judged = judge(explained, found)
    judged.unknown      # what could not be read; () if the cause is known
    judged.steps        # those whose rehearsal could see everything that matters

An explanation is computed as if what was listed were all there is. Which of its statements still hold where kinds are
missing? A cause names the kinds on which it, and each number in its words, depends (`_NEEDS`): that no device passes a
selector does not depend on claims; that all are held does. That the pod fits somewhere, and every rehearsed step, need
everything. What has no entry needs everything, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from claims.causes import causes
from claims.causes.causes import AnyCause, NodeRefusal, NoNodeFits
from claims.kinds.pods import Pod
from claims.kinds.resource_claims import ResourceClaim
from claims.pod_claims import has_group
from insight.advice import Advice, CreateClaim, RemoveGates, Step
from manciple.mirror.listing import Found
from manciple.mirror.sources import (
    CLAIM,
    CLASS,
    NAMESPACE,
    NODE,
    POD,
    POD_GROUP,
    QUOTA,
    SLICE,
    STORAGE_CLASS,
    TAINT_RULE,
    TEMPLATE,
    VOLUME,
    VOLUME_CLAIM,
    KindState,
    Reach,
    Source,
)
from manciple.wire.base import ApiObject
from scheduling.allocator.outcome import COMPLETE, FREE, LARGE, PUBLISHED, UNTAINTED, Stage
from scheduling.rehearsal.explanations import Explanation, RequestReport

# What each statement needs --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Need:
    """own: only of the object's namespace."""

    source: Source
    own: bool = False


def _all(*sources: Source) -> frozenset[Need]:
    return frozenset(map(Need, sources))


def _own(*sources: Source) -> frozenset[Need]:
    return frozenset(Need(source, own=True) for source in sources)


NOTHING: Final = frozenset[Need]()
#: Which nodes take the pod; what devices they see; which of these are free.
_NODES: Final = _all(NODE, POD, NAMESPACE)
_PUBLISHED: Final = _NODES | _all(SLICE, CLASS)
_HELD: Final = _PUBLISHED | _all(TAINT_RULE, CLAIM)
_VOLUMES: Final = _all(VOLUME, STORAGE_CLASS) | _own(VOLUME_CLAIM)

_NEEDS: Final[Mapping[type[causes.Cause], frozenset[Need]]] = {
    causes.Gated: NOTHING,
    causes.SearchStopped: NOTHING,
    # Read of the claim or the group itself.
    causes.ClaimBeingDeleted: NOTHING,
    causes.ClaimNotForPod: NOTHING,
    causes.ClaimInUse: NOTHING,
    causes.ClaimNotShareable: NOTHING,
    causes.AwaitingBinding: NOTHING,
    causes.BindingFailed: NOTHING,
    causes.ClaimNotCreated: _own(CLAIM),
    causes.ClaimNotFound: _own(CLAIM),
    causes.ClassMissing: _all(CLASS),
    causes.VolumeClaimMissing: _own(VOLUME_CLAIM),
    causes.QuotaUsedUp: _own(QUOTA, CLAIM),
    causes.GroupMissing: _own(POD_GROUP),
    causes.GroupIncomplete: _own(POD_GROUP, POD),
    causes.TooFewPublished: _PUBLISHED,
    causes.PoolsUnusable: _PUBLISHED,
    causes.NotVisible: _PUBLISHED,
    causes.NotSelected: _PUBLISHED,
    causes.Misconfigured: _PUBLISHED,
    causes.Tainted: _PUBLISHED | _all(TAINT_RULE),
    causes.TooSmall: _PUBLISHED | _all(TAINT_RULE),
}
_NEEDS_OF_PLUGIN: Final[Mapping[str, frozenset[Need]]] = {
    "VolumeBinding": _NODES | _VOLUMES,
    "DynamicResources": _NODES | _own(CLAIM),
}
#: Others decide about these by rules of their own, which are not known here.
_OF_OTHERS: Final[Mapping[type[causes.Cause], str]] = {
    causes.NobodyAllocates: "a controller of its driver allocates its claim (classic DRA), which is not judged here",
    causes.AwaitingDrivers: "a controller of its driver allocates its claim (classic DRA), which is not judged here",
    causes.ParametersMissing: "its claim is of classic DRA, which is not judged here",
    causes.VolumeClaimNotCreated: "its volumes are provisioned by others, which is not judged here",
    causes.VolumeClaimUnusable: "its volumes are provisioned by others, which is not judged here",
    causes.ClaimNotMade: "the scheduler could not make its claim; its events say why",
    causes.Interrupted: "its scheduler's last attempt failed; its events say why",
}


def _needs(cause: AnyCause) -> frozenset[Need]:
    match cause:
        case NoNodeFits():
            found = _NODES if cause.because is None else _needs(cause.because)
            return found.union(*(_needs(one) for one, _ in cause.refused))
        case NodeRefusal():
            return _NEEDS_OF_PLUGIN.get(cause.plugin, _NODES)
    return _NEEDS.get(type(cause), _HELD)


def _to_fit(about: ApiObject) -> frozenset[Need]:
    """What "it fits on a node" needs."""
    if not isinstance(about, Pod):
        return _HELD
    spec, found = about.spec, _NODES
    resources = {name for one in (*spec.containers, *spec.init_containers) for name in one.resources.requests}
    if spec.resource_claims or any("/" in name for name in resources):
        found |= _HELD
    volumes: Any = spec.volumes  # of a type that is made while Python runs
    if any(volume.persistentVolumeClaim is not None or volume.ephemeral is not None for volume in volumes):
        found |= _VOLUMES
    if has_group(about):
        found |= _own(POD_GROUP)
    return found


# The judgement --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """explained: without what does not hold. unknown: why it is not known what keeps the pod, a sentence's end each.

    outside: what to do where no step is known to help. gaps: the kinds that are not known entirely.
    """

    explained: Explanation
    unknown: tuple[str, ...] = ()
    steps: tuple[Step, ...] = ()
    outside: str = ""
    gaps: tuple[KindState, ...] = ()
    #: that steps are about
    claims: Mapping[str, ResourceClaim] = field(default_factory=dict)


def judge(explained: Explanation, advice: Advice, found: Found) -> Judged:
    gaps = tuple(state for state in found.states.values() if not state.is_whole)
    waits = explained.state in ("Waiting", "Schedulable")
    if not waits:  # its own status is the answer
        return Judged(explained=explained, gaps=gaps)
    cause = explained.cause
    others = _others(cause)
    to_fit = _to_fit(explained.about)
    lacking = _lacking(to_fit if cause is None else _needs(cause), found, explained.about)
    whole = not _lacking(to_fit | _own(QUOTA, TEMPLATE), found, explained.about)
    # Hints, nodes and victims come from rehearsals that must see everything.
    shown = explained if whole else replace(explained, preemption=None)
    if not whole and explained.report is not None:
        requests = tuple(_visible(one, found, explained.about) for one in explained.report.requests)
        shown = replace(shown, report=replace(explained.report, requests=requests, nodes=(), notes=(), loosenings=()))
    if others or lacking:
        lacking = _lacking(to_fit | (NOTHING if cause is None else _needs(cause)), found, explained.about)
        unknown = (others,) if others else tuple(may_not(state) for state in lacking)
        return Judged(explained=replace(shown, state="Unknown", cause=None, remark=""), unknown=unknown, gaps=gaps)
    steps = advice.steps if whole else tuple(_certain(advice.steps, found, explained.about))
    return Judged(explained=shown, steps=steps, outside=advice.outside, gaps=gaps, claims=advice.claims)


def may_not(state: KindState) -> str:
    """Why a kind is not known, as the end of "It cannot be judged: "."""
    resource = state.source.resource
    match state.reach:
        case Reach.FORBIDDEN:
            return f"you may not list {resource}"
        case Reach.NAMESPACE:
            return f"you may list {resource} of one namespace only"
        case Reach.FAILED:
            return f"{resource} could not be listed: {state.detail}"
    return f"{state.unread} of the {resource} cannot be read"


def _others(cause: AnyCause | None) -> str:
    if isinstance(cause, NoNodeFits):
        return next(filter(None, map(_others, (cause.because, *(one for one, _ in cause.refused)))), "")
    return _OF_OTHERS.get(type(cause), "") if cause is not None else ""


def _lacking(needs: Iterable[Need], found: Found, about: ApiObject) -> Sequence[KindState]:
    """The kinds that are not known as far as needed, in the order of the lists."""
    lacking = set[str]()
    for need in needs:
        if need.source in (POD, NAMESPACE) and not isinstance(about, Pod):
            continue  # a claim by itself goes to every node
        state = found.states[need.source.resource]
        if not (state.is_whole_in_namespace if need.own else state.is_whole):
            lacking.add(need.source.resource)
    return [state for resource, state in found.states.items() if resource in lacking]


def _certain(steps: Iterable[Step], found: Found, about: ApiObject) -> Iterable[Step]:
    """Steps that must be taken in any case; what follows is not known."""
    for step in steps:
        match step.act:
            case RemoveGates():
                yield Step(act=step.act, then="what follows cannot be told")
            case CreateClaim(template=template):
                if not _lacking(_own(TEMPLATE if template else CLAIM), found, about):
                    yield step


def _visible(request: RequestReport, found: Found, about: ApiObject) -> RequestReport:
    """With the beginning of its funnel, as far as its counts are right."""
    kept = list[Stage]()
    for stage in request.funnel:
        if _lacking(_of_stage(stage), found, about):
            break
        kept.append(stage)
    return replace(request, funnel=tuple(kept), constraints=())


def _of_stage(stage: Stage) -> frozenset[Need]:
    if stage.name in (PUBLISHED, COMPLETE):
        return _all(SLICE)
    if stage.name == FREE:
        return _HELD
    return _PUBLISHED | _all(TAINT_RULE) if stage.name in (UNTAINTED, LARGE) else _PUBLISHED

"""What is not known of the cluster that is looked at, as `manciple.gaps` has it.

What follows from that is decided where something is concluded (`scheduling.judgement`, `claims.devices.states`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from django.conf import settings

from manciple.gaps import Gap
from manciple.mirror import standing
from manciple.mirror.sources import WHY, KindState, Reach


def gaps_of(states: Mapping[str, KindState], namespace: str) -> Sequence[Gap]:
    """states: by resource; one that has none was not listed yet. namespace: where kinds are listed that may not be
    listed everywhere.
    """
    return tuple(_gaps(states, namespace))


def gaps_of_mirror() -> Sequence[Gap]:
    """Of the cluster that this installation copies."""
    cluster = standing.remote()
    return gaps_of(standing.kinds(), cluster.namespace if cluster else "")


def _gaps(states: Mapping[str, KindState], namespace: str) -> Iterator[Gap]:
    resources = dict.fromkeys((*(source.resource for source in WHY), *states))  # what says most comes first
    for resource in resources:
        state = states.get(resource)
        if state is None:
            yield Gap(resource, f"{resource} are not listed yet")
        elif not state.is_whole:
            forbidden = state.reach in (Reach.FORBIDDEN, Reach.NAMESPACE)
            but_for = namespace if state.is_whole_in_namespace else ""
            yield Gap(resource, may_not(state), but_for=but_for, forbidden=forbidden)


def may_not(state: KindState) -> str:
    """Why a kind is not known, as the end of "It cannot be judged: "."""
    resource, who = state.source.resource, "the mirror" if settings.CLUSTER_USERS else "you"
    match state.reach:
        case Reach.FORBIDDEN:
            return f"{who} may not list {resource}"
        case Reach.NAMESPACE:
            return f"{who} may list {resource} of one namespace only"
        case Reach.FAILED:
            return f"{resource} could not be listed: {state.detail}"
    return f"{state.unread} of the {resource} cannot be read"

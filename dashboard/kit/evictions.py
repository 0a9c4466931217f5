"""What becomes of pods when devices or nodes are tainted or drained, as previews tell it to one person.

A drain evicts, so disruption budgets keep pods from it (`kept_back`). Taints do not ask them.

Pods of namespaces that the person does not see are counted and not named.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from claims.kinds.disruption_budgets import PodDisruptionBudget
from claims.kinds.pods import Pod
from claims.pod_claims import is_done
from dashboard.kit.previews import Consequence
from dashboard.templatetags.kit import counted, pod_url
from inventory.reachability import lost_nodes
from manciple.durations import duration
from manciple.people import Person
from manciple.store.objects import listed
from manciple.wire.resources import BUDGETS, Key
from scheduling.rehearsal.changes import Aftermath
from scheduling.rehearsal.departures import StartedPod
from scheduling.state.budgets import ImaginedEvictions, KeptPod

#: Pods that one line names.
NAMED = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaving:
    """A pod that would be evicted. seconds: until then; 0 for at once."""

    pod: Pod
    seconds: float = 0


def told_of(leaving: Sequence[Leaving], found: Aftermath, person: Person) -> Iterator[Consequence]:
    """Who goes, who of them would find a place if they were created again, and who starts on what comes free."""
    later = [one.seconds for one in leaving if one.seconds > 0]
    when = "at once" if not later else f"within {duration(max(later))}"
    if leaving:
        said = f"{counted(len(leaving), 'pod is', 'pods are')} evicted, {when}:"
        yield _named("Evicted", said, [one.pod.key for one in leaving], person)
        if stays := tuple(what_stays(lost_with(one.pod for one in leaving))):
            yield Consequence(term="Stays", sentences=stays)
    if found.again:
        where = ", ".join(sorted({one.node for one in found.again})[:NAMED])
        said = f"{counted(len(found.again), 'pod')} would fit, if created again, on {where}:"
        yield _named("Would fit", said, _keys(found.again), person)
    if found.stranded:
        said = f"{counted(len(found.stranded), 'pod')} would wait if created again:"
        yield _named("Would wait", said, found.stranded, person)
    if leaving:
        yield Consequence(term="After", sentences=(_after([one.pod for one in leaving]),))
    if found.started:
        said = f"{counted(len(found.started), 'pod that waits', 'pods that wait')} would start:"
        yield _named("Then", said, _keys(found.started), person)
    if not found.tried_all:
        yield Consequence(term="Not tried", sentences=("Not all of them could be tried.",))


def lost_with(pods: Iterable[Pod]) -> dict[str, int]:
    """Unreachable nodes -> how many of these pods run there. Nobody hears of their end, so their devices stay held."""
    on = Counter(pod.spec.node_name for pod in pods if pod.spec.node_name and not is_done(pod))
    lost = lost_nodes(datetime.now(UTC)).intersection(on) if on else ()
    return {node: on[node] for node in sorted(lost)}


def what_stays(lost: Mapping[str, int]) -> Iterator[str]:
    """lost: as `lost_with` counts."""
    for node, count in lost.items():
        what = "the pod stays, and keeps its devices" if count == 1 else f"{count} pods stay, and keep their devices"
        yield f"Node {node} is unreachable: {what}, until its agent reports again."


def read_kept(pods: Iterable[Pod]) -> list[KeptPod]:
    """Of pods that are evicted one after the other, whom their disruption budgets keep as they are now."""
    asked = list(pods)
    budgets = listed(BUDGETS, PodDisruptionBudget)[1] if asked else ()
    return ImaginedEvictions(lambda _namespace: budgets).kept(asked)


def kept_back(kept: Sequence[KeptPod], person: Person) -> Iterator[Consequence]:
    """Who stays as a disruption budget keeps them, by budget."""
    by_budget: dict[tuple[str, str], list[KeptPod]] = {}
    for one in kept:
        by_budget.setdefault((one.pod.metadata.namespace, one.why), []).append(one)
    hidden = [one.pod.key for one in kept if not person.sees(one.pod.metadata.namespace)]
    for (namespace, why), those in by_budget.items():
        if person.sees(namespace):
            said = f"{counted(len(those), 'pod stays', 'pods stay')} for now, as {why}:"
            yield _named("Kept", said, [one.pod.key for one in those], person)
    if hidden:
        said = f"{counted(len(hidden), 'pod stays', 'pods stay')} for now, kept by budgets"
        yield _named("Kept", said, hidden, person)


def _after(pods: Sequence[Pod]) -> str:
    owners = {(one.kind, one.name) for pod in pods for one in pod.metadata.owner_references if one.controller}
    alone = any(not any(one.controller for one in pod.metadata.owner_references) for pod in pods)
    whose = [f"{kind} {name}" for kind, name in sorted(owners)[:3]]
    if not whose:
        whom = "it" if len(pods) == 1 else "them"
        return f"Nothing creates {whom} again."
    rest = " Nothing creates the others again." if alone else ""
    return f"{', '.join(whose)}{' and others' if len(owners) > len(whose) else ''} may create them again.{rest}"


def _named(term: str, said: str, keys: Sequence[Key], person: Person) -> Consequence:
    seen = [key for key in keys if person.sees(key[0])]
    links = tuple((f"{namespace}/{name}", pod_url(namespace, name)) for namespace, name in seen[:NAMED])
    if not links:
        hidden = "in namespaces that you do not see."
        return Consequence(term=term, sentences=(f"{said.removesuffix(':')}, {hidden}",))
    return Consequence(term=term, sentences=(said,), links=links, more=len(keys) - len(links))


def _keys(pods: Iterable[StartedPod]) -> list[Key]:
    return [(one.namespace, one.name) for one in pods]

"""Changing a node by hand: cordon, drain, taint and back, each rehearsed before it is done.

A drain is `kubectl drain --ignore-daemonsets`: the node is cordoned and its pods are evicted; those of DaemonSets stay,
and so do those whom a disruption budget keeps.

What a change would do to pods is reckoned with the scheduler's own rules (`scheduling.state.node_fit`) and the
eviction's (`controllers.node_lifecycle`), on values; writing goes through the API with the person's identity.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Literal

from django import forms
from msgspec import structs

from claims import evictions
from claims.controllers.node_lifecycle import eviction_time
from claims.kinds.pods import Pod
from claims.models import Pod as PodRow
from dashboard.inventory.nodes.queries import PodsThere
from dashboard.kit.evictions import Leaving, read_kept
from dashboard.kit.forms import PageForm, code_input
from inventory.kinds.node_rules import TAINT_EFFECTS
from inventory.kinds.nodes import LIFECYCLE_TAINTS, Node, Taint
from manciple.api import verbs
from manciple.store import objects
from manciple.store.objects import decoded
from manciple.wire.base import timestamp
from manciple.wire.errors import ApiError, NotFound
from manciple.wire.identity import Identity
from manciple.wire.resources import NEW_PHASES, NODES, PODS, kind
from scheduling.rehearsal.changes import Aftermath, Imagined, what_if_changed
from scheduling.rehearsal.departures import could_run_on
from scheduling.state.budgets import KeptPod
from scheduling.state.node_fit import check, needs_of

What = Literal["cordon", "uncordon", "drain", "taint", "untaint"]
WHATS: tuple[What, ...] = ("cordon", "uncordon", "drain", "taint", "untaint")
#: What each effect means for pods without a toleration.
EFFECT_MEANINGS = {
    "NoSchedule": "keeps new pods without a toleration away",
    "PreferNoSchedule": "avoids the node for pods without a toleration",
    "NoExecute": "also evicts running pods without a toleration",
}
#: Waiting pods that are asked whether they could come, the first by name.
ASKED = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeChange:
    """One edit of a node. key, value, effect: of the taint."""

    what: What
    key: str = ""
    value: str = ""
    effect: str = ""

    @property
    def taint(self) -> str:
        """As `kubectl taint` writes it."""
        return f"{self.key}{f'={self.value}' if self.value else ''}:{self.effect}"

    def done(self, node: str) -> str:
        """What is said once it is done."""
        return {
            "cordon": f"{node} is cordoned: no new pods.",
            "drain": f"{node} is cordoned, and its pods are evicted.",
            "uncordon": f"{node} takes new pods again.",
            "taint": f"{node} is tainted {self.taint}.",
            "untaint": f"{node} no longer has the taint {self.taint}.",
        }[self.what]


@dataclass(frozen=True, slots=True, kw_only=True)
class Effects:
    """What a change would do now. kept_off, let_in: the waiting pods that the node could run if nobody held its devices
    and that the change keeps away, or lets come. asked: how many wait. kept: by disruption budgets; they stay.
    """

    leaving: tuple[Leaving, ...]
    staying: int
    ending: int  # those that are being deleted, whatever is done
    kept_off: tuple[Pod, ...]
    let_in: tuple[Pod, ...]
    asked: int
    nothing: bool
    kept: tuple[KeptPod, ...] = ()

    @property
    def at_once(self) -> int:
        return sum(one.seconds <= 0 for one in self.leaving)


def read_change(data: Mapping[str, str]) -> NodeChange | None:
    """The change that a query or a form tells of; None where it tells of none."""
    what = data.get("change", "")
    if what not in WHATS:
        return None
    fields = {name: data.get(name, "").strip() for name in ("key", "value", "effect")}
    return NodeChange(what=what, **fields)


def changed(node: Node, change: NodeChange, now: datetime) -> Node:
    """`node` as the change leaves it. A taint replaces that of its key and effect, as --overwrite does."""
    spec = node.spec
    if change.what in ("cordon", "uncordon", "drain"):
        return structs.replace(node, spec=structs.replace(spec, unschedulable=change.what != "uncordon"))
    others = tuple(taint for taint in spec.taints if (taint.key, taint.effect) != (change.key, change.effect))
    if change.what == "untaint":
        return structs.replace(node, spec=structs.replace(spec, taints=others))
    # Patience is counted from here; taints that evict nobody have no such time.
    since = timestamp(now) if change.effect == "NoExecute" else None
    added = Taint(key=change.key, value=change.value, effect=change.effect, time_added=since)
    return structs.replace(node, spec=structs.replace(spec, taints=(*others, added)))


class NodeChangeForm(PageForm):
    """The change as it is typed. errors: what is against it, the refusal of a dry run included."""

    ids = "t-%s"
    key = forms.CharField(required=False, widget=code_input("maintenance", required=True))
    value = forms.CharField(required=False, widget=code_input("may be empty"))
    effect = forms.CharField(required=False)

    def __init__(self, name: str, change: NodeChange, *, identity: Identity, asks: bool = False) -> None:
        """asks: nothing is typed yet."""
        super().__init__(None if asks else asdict(change))
        self.name, self.change, self.identity = name, change, identity

    @property
    def ready(self) -> bool:
        return self.is_bound and self.is_valid()

    def clean(self) -> None:
        what, key = self.change.what, self.change.key
        if what in ("taint", "untaint") and key in LIFECYCLE_TAINTS:
            self.add_error("key", "The node lifecycle controller manages this taint.")
        elif what == "taint" and not key:
            self.add_error("key", "A taint needs a key, for example `maintenance`.")
        elif what == "taint" and self.change.effect not in TAINT_EFFECTS:
            self.add_error("effect", f"Choose one of {', '.join(TAINT_EFFECTS)}.")
        else:
            self.write(dry_run=True)

    def write(self, *, dry_run: bool = False) -> Node | None:
        """Make the change through the API; what it says against it stands at the field that it is about, and there is
        no node then."""
        make = partial(changed, change=self.change, now=datetime.now(UTC))
        try:
            node: Node = verbs.modify(kind(NODES), make, name=self.name, identity=self.identity, dry_run=dry_run).object
        except ApiError as refusal:
            self.add_refusal(refusal)
            return None
        return node


def rehearse(node: Node, change: NodeChange, there: PodsThere, *, now: datetime) -> Effects:
    """What the change would do to the pods on the node, and to those that wait."""
    after, waiting, drains = changed(node, change, now), read_waiting(), change.what == "drain"
    kept = read_kept(pod for pod in there.pods if is_drained(pod)) if drains else ()
    found = effects(node, after, there, waiting, now=now, drains=drains, kept=kept)
    kept_off, let_in = could_run_on(node, node, found.kept_off), could_run_on(after, node, found.let_in)
    return replace(found, kept_off=kept_off, let_in=let_in)


def effects(
    before: Node,
    after: Node,
    there: PodsThere,
    waiting: Iterable[Pod],
    *,
    now: datetime,
    drains: bool = False,
    kept: Sequence[KeptPod] = (),
) -> Effects:
    """PURE. A waiting pod is asked about everything but new devices. drains: pods go, whatever they tolerate, but for
    those that are kept.
    """
    leaving = [one for pod in there.pods if (one := _leaves(pod, before, after, now))]
    if drains:
        staying = {one.pod.metadata.uid for one in kept}
        leaving = [Leaving(pod=pod) for pod in there.pods if is_drained(pod) and pod.metadata.uid not in staying]
    ending = sum(pod.metadata.deletion_timestamp is not None for pod in there.pods)
    asked = list(waiting)
    could = [pod for pod in asked if _fits(pod, before, there)]
    can = [pod for pod in asked if _fits(pod, after, there)]
    now_in, then_in = ({pod.metadata.uid for pod in pods} for pods in (could, can))
    return Effects(
        leaving=tuple(sorted(leaving, key=lambda one: (one.seconds, one.pod.metadata.name))),
        staying=len(there.pods) - len(leaving) - ending,
        ending=ending,
        kept_off=tuple(pod for pod in could if pod.metadata.uid not in then_in),
        let_in=tuple(pod for pod in can if pod.metadata.uid not in now_in),
        asked=len(asked),
        nothing=before == after and not leaving and not kept,
        kept=tuple(kept),
    )


def _leaves(pod: Pod, before: Node, after: Node, now: datetime) -> Leaving | None:
    """None for a pod that stays, leaves anyway no later, or is going already."""
    if pod.metadata.deletion_timestamp is not None:
        return None
    then, already = eviction_time(pod, after), eviction_time(pod, before)
    if then is None or (already is not None and already <= then):
        return None
    return Leaving(pod=pod, seconds=max(0.0, (then - now).total_seconds()))


def is_drained(pod: Pod) -> bool:
    """Whether a drain evicts it. Upstream: k8s.io/kubectl/pkg/drain/filters.go, with --ignore-daemonsets."""
    of_set = any(owner.controller and owner.kind == "DaemonSet" for owner in pod.metadata.owner_references)
    mirrored = "kubernetes.io/config.mirror" in pod.metadata.annotations
    return not of_set and not mirrored and pod.metadata.deletion_timestamp is None


def aftermath(node: Node, change: NodeChange, found: Effects, *, now: datetime) -> Aftermath:
    """Where the pods that leave would find a place if they were created again, and who starts on what they leave."""
    imagined = [Imagined(resource=NODES, before=node, after=changed(node, change, now))]
    return what_if_changed(imagined, [one.pod for one in found.leaving])


def evict(pod: Pod, identity: Identity) -> str:
    """Evict one pod through the API; returns what it says against it, "" for nothing."""
    try:
        evictions.evict(pod, identity=identity)
    except NotFound:
        return ""
    except ApiError as refusal:
        return evictions.said(refusal)
    return ""


def _fits(pod: Pod, node: Node, there: PodsThere) -> bool:
    return not check(needs_of(pod), node, used=there.used, pods=len(there.pods))


def read_waiting() -> list[Pod]:
    """The pods without a node, the first by name, at most `ASKED`."""
    rows = PodRow.objects.filter(node_name="", phase__in=NEW_PHASES, deleting=False)
    keys = list(rows.order_by("namespace", "name").values_list("namespace", "name")[:ASKED])
    found = [decoded(stored, Pod) for stored in objects.get_many(kind(PODS), keys)]
    return sorted(found, key=lambda pod: (pod.metadata.namespace, pod.metadata.name))

"""What an act on many objects would do: together where they concern each other, else of each by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from claims.devices.cache import read_devices
from claims.models import Claim
from dashboard.inventory.classes import users as class_users
from dashboard.inventory.classes import views as classes
from dashboard.inventory.nodes.changes import NodeChange, What, changed, is_drained
from dashboard.inventory.nodes.reading import pods_on
from dashboard.inventory.taint_rules.effects import RuleChange, effect_of
from dashboard.kit.evictions import Leaving, kept_back, read_kept, told_of
from dashboard.kit.previews import ActionEffect, Consequence
from dashboard.tools.bulk.picked import PickedObject
from dashboard.workloads import templates as templates_pages
from dashboard.workloads.claims import views as claims_pages
from dashboard.workloads.claims.queries import read_claims
from dashboard.workloads.pods.deletion import effect_of_deletion
from inventory.kinds.nodes import Node
from manciple.people import Person
from manciple.wire.resources import CLAIMS, CLASSES, NODES, PODS, TAINT_RULES, TEMPLATES
from scheduling.rehearsal.changes import Imagined, what_if_changed
from scheduling.rehearsal.departures import what_if_gone


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkEffect:
    """whole: of all together; each: what follows from one of them."""

    whole: ActionEffect
    each: Sequence[tuple[PickedObject, Sequence[Consequence]]] = ()


Picks = Sequence[PickedObject]


def effect_of_bulk(resource: str, act: str, picked: Picks, person: Person) -> BulkEffect:
    if resource == NODES:
        return BulkEffect(whole=_of_nodes(_WHATS[act], [one.object for one in picked], person))
    return _OF_DELETION[resource](picked, person)


# Deletion ------------------------------------------------------------------------------------------------------------


def _of_pods(picked: Picks, person: Person) -> BulkEffect:
    pods = [one.object for one in picked]
    return BulkEffect(whole=effect_of_deletion(pods, what_if_gone(*pods), person))


def _of_claims(picked: Picks, person: Person) -> BulkEffect:
    claims = Claim.objects.restrict(person).filter(uid__in=[one.uid for one in picked])
    lines = {line.uid: line for line in read_claims(claims)}
    known = [one for one in picked if one.uid in lines]
    return _each((one, claims_pages.effect_of_deletion(one.object, lines[one.uid])) for one in known)


def _of_templates(picked: Picks, _person: Person) -> BulkEffect:
    effects = templates_pages.effects_of_deletion([(one.namespace, one.name) for one in picked])
    return _each((one, effects[one.namespace, one.name]) for one in picked if (one.namespace, one.name) in effects)


def _of_classes(picked: Picks, person: Person) -> BulkEffect:
    return _each(
        (one, classes.effect_of_deletion(one.object, class_users.users_of(one.name, person))) for one in picked
    )


def _of_rules(picked: Picks, person: Person) -> BulkEffect:
    changes = [RuleChange(before=one.object) for one in picked]
    return BulkEffect(whole=effect_of(changes, person, read_devices(), datetime.now(UTC)))


def _each(found: Iterable[tuple[PickedObject, ActionEffect]]) -> BulkEffect:
    each = [(one, effect.consequences) for one, effect in found]
    return BulkEffect(whole=ActionEffect(consequences=()), each=each)


_OF_DELETION: Mapping[str, Callable[[Picks, Person], BulkEffect]] = {
    PODS: _of_pods,
    CLAIMS: _of_claims,
    TEMPLATES: _of_templates,
    CLASSES: _of_classes,
    TAINT_RULES: _of_rules,
}


# Nodes ---------------------------------------------------------------------------------------------------------------

_WHATS: Mapping[str, What] = {"cordon": "cordon", "uncordon": "uncordon", "drain": "drain"}


def _of_nodes(what: What, nodes: Sequence[Node], person: Person) -> ActionEffect:
    now, change = datetime.now(UTC), NodeChange(what=what)
    after = [(node, changed(node, change, now)) for node in nodes]
    moving = [(node, then) for node, then in after if node.spec != then.spec]
    there = pods_on([node.metadata.name for node in nodes]) if what == "drain" else {}
    drained = [pod for on in there.values() for pod in on.pods if is_drained(pod)]
    kept = read_kept(drained)
    stay = {one.pod.metadata.uid for one in kept}
    leaving = [Leaving(pod=pod) for pod in drained if pod.metadata.uid not in stay]
    if not moving and not drained:
        return ActionEffect(consequences=(), refused=f"nothing would change: {_IDLE[what]}")
    imagined = [Imagined(resource=NODES, before=node, after=then) for node, then in moving]
    found = what_if_changed(imagined, [one.pod for one in leaving])
    told = (*told_of(leaving, found, person), *kept_back(kept, person))
    idle = len(nodes) - len(moving)
    same = (Consequence(term="As before", sentences=(f"{idle} of them: {_IDLE[what]}.",)),) if idle else ()
    return ActionEffect(summary=_DOES[what], consequences=(*told, *same))


_DOES = {
    "cordon": "No new pod comes to them; what runs there goes on.",
    "uncordon": "New pods come to them again.",
    "drain": "They are cordoned, and their pods are evicted; those of DaemonSets stay.",
}
_IDLE = {
    "cordon": "they are cordoned already",
    "uncordon": "they are not cordoned",
    "drain": "they are cordoned already",
}


def changed_node(node: Node, act: str) -> Node:
    """As the act leaves it."""
    return changed(node, NodeChange(what=_WHATS[act]), datetime.now(UTC))

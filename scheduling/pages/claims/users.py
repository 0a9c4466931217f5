"""Reads who claims are reserved for, and what became of each: five queries for any number of claims."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from datetime import datetime
from typing import Any

from claims.kinds.pods import Pod as PodObject
from claims.models import Pod, Reservation
from manciple.pages.durations import moment
from manciple.store import history, objects
from scheduling.hints import FINISHED_PHASES
from scheduling.pages.claims.states import MOMENT, User, fate_of
from scheduling.resources import PODS, Key, decoded, kind

_POD = ("uid", "namespace", "name", "node_name", "phase", "deleting")


def read_users(uid: str = "", *, now: datetime) -> dict[str, tuple[User, ...]]:
    """claim -> who it is reserved for; of the claim with `uid` alone, where one is given."""
    entries = Reservation.objects.order_by("name")
    if uid:
        entries = entries.filter(claim=uid)
    rows = list(entries.values_list("claim_id", "claim__namespace", "resource", "name", "uid"))
    wanted = Pod.objects.filter(uid__in=[row[4] for row in rows]) if uid else Pod.objects.all()
    pods = {pod[0]: pod for pod in wanted.values_list(*_POD)}
    ends = _ends({(pod[1], pod[2]) for pod in pods.values() if pod[5]})
    replaced = _keys_in_use({name for _, _, _, name, pod in rows if pod not in pods})
    over = {row[4] for row in rows if row[4] not in pods or pods[row[4]][4] in FINISHED_PHASES}
    lately = history.touched_lately(over, within=MOMENT)
    users: dict[str, list[User]] = defaultdict(list)
    for claim, namespace, resource, name, pod_uid in rows:
        key, is_late = (namespace, name), pod_uid in lately
        if (pod := pods.get(pod_uid)) is not None:
            user = _living(resource, pod, ends_at=ends.get(key), lately=is_late, now=now)
        else:
            fate = "other" if resource != PODS else "replaced" if key in replaced else "gone"
            user = User(resource=resource, name=name, uid=pod_uid, fate=fate, lately=is_late)
        users[claim].append(user)
    return {claim: tuple(found) for claim, found in users.items()}


def _living(resource: str, pod: tuple[Any, ...], *, ends_at: datetime | None, lately: bool, now: datetime) -> User:
    """The user that is a pod which exists."""
    uid, _, name, node, phase, deleting = pod
    fate = fate_of(phase, node=node, ends_at=ends_at, deleting=deleting, now=now)
    return User(
        resource=resource, name=name, uid=uid, fate=fate, node=node, phase=phase, ends_at=ends_at, lately=lately
    )


def _keys_in_use(names: Collection[str]) -> set[Key]:
    """The pods that have one of `names` now."""
    return set(Pod.objects.filter(name__in=names).values_list("namespace", "name")) if names else set()


def _ends(keys: Collection[Key]) -> dict[Key, datetime]:
    """When the grace periods of pods that are being deleted are over."""
    found = {}
    for stored in objects.get_many(kind(PODS), keys) if keys else ():
        at = moment(decoded(stored, PodObject).metadata.deletion_timestamp)
        if at is not None:
            found[stored.namespace, stored.name] = at
    return found

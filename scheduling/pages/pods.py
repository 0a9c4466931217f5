"""The pod pages: the list, and one pod with why it waits.

- `/pods`: every pod, those that wait first, with what keeps them; `?ns=` shows one namespace.
- `/pods/NAMESPACE/NAME`: its status, claims and devices; for a pod that waits the dominant reason with its next step,
  the funnel of each request, the nodes, and who holds the devices that it could use.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.decorators import login_required
from django.db.models import Case, IntegerField, Q, Value, When
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from claims.kinds.pods import Pod
from claims.kinds.resource_claims import ResourceClaim
from claims.models import Pod as PodRow
from claims.pages.grid import Holder, natural
from claims.pages.shelf import read_holders
from manciple.pages.durations import age
from manciple.pages.people import demand_sight, person_of
from manciple.store import objects
from manciple.store.tail import latest_revision
from manciple.wire.errors import NotFound
from scheduling.explanations.current import explain_pod
from scheduling.explanations.documents import Explanation
from scheduling.messages import CANNOT_ALLOCATE, STILL_NOT_SCHEDULABLE, sentence
from scheduling.models import QueuedPod
from scheduling.pages.funnels import NAMED_HELD, held_devices, node_lines, sections
from scheduling.pod_claims import references
from scheduling.resources import CLAIMS, decoded, kind

#: Pods in the list; of more, the first so many.
LISTED = 500

#: what the list and the page call a pod's state -> icon
ICONS = {"Waiting": "i-wait", "Running": "i-ok", "Succeeded": "i-ok", "Failed": "i-alert"}


@dataclass(frozen=True, slots=True, kw_only=True)
class PodLine:
    """One row of the list."""

    namespace: str
    name: str
    state: str
    node: str
    reason: str

    @property
    def icon(self) -> str:
        return ICONS.get(self.state, "i-pod")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimLine:
    """One entry of the pod's claims: the claim, if it is there, and what it holds."""

    entry: str
    name: str
    state: str
    devices: tuple[tuple[str, str], ...]  # (address, what to call it)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldLine:
    """Devices of one pool that the same claims hold."""

    pool: str
    holders: tuple[Holder, ...]
    devices: tuple[tuple[str, str], ...]  # (address, name)


@login_required
@require_safe
def list_pods(request: HttpRequest) -> HttpResponse:
    """The list."""
    revision = latest_revision()
    namespace = request.GET.get("ns", "")
    seen = person_of(request).seen(PodRow.objects.all())
    rows = seen.filter(namespace=namespace) if namespace else seen
    total = rows.count()
    context = {
        "place": "pods",
        "revision": revision,
        "namespace": namespace,
        "namespaces": seen.order_by("namespace").values_list("namespace", flat=True).distinct(),
        "total": total,
        "waiting": rows.filter(_IS_WAITING).count(),
        "pods": _lines(rows.order_by(_WAITING_FIRST, "namespace", "name")[:LISTED]),
        "more": max(0, total - LISTED),
    }
    return render(request, "scheduling/pods.html", context)


@login_required
@require_safe
def show_pod(request: HttpRequest, namespace: str, name: str) -> HttpResponse:
    """One pod."""
    demand_sight(request, namespace, f"Pod {name}")
    try:
        explained = explain_pod(namespace, name)
    except NotFound as missing:
        raise Http404(missing.message) from None
    pod = explained.about
    assert isinstance(pod, Pod)  # noqa: S101 - explain_pod explains pods
    context = {
        "place": "pods",
        "revision": explained.revision,
        "pod": pod,
        "namespace": namespace,
        "name": name,
        "state": _state_of(explained, pod),
        "icon": ICONS.get(_state_of(explained, pod), "i-pod"),
        "age": age(pod.metadata.creation_timestamp),
        "owners": [f"{owner.kind} {owner.name}" for owner in pod.metadata.owner_references],
        "claims": _claims(pod),
        "conditions": pod.status.conditions,
    } | _why(explained)
    return render(request, "scheduling/pod.html", context)


def _why(explained: Explanation) -> dict[str, Any]:
    """What the page says of a pod that has no node yet."""
    report = explained.report
    if explained.state not in ("Waiting", "Schedulable"):
        return {"explained": explained, "waits": False}
    held = held_devices(report) if report else ()
    keys = {(device.key.driver, device.key.name, device.name) for device in held}
    lines = _held(keys)
    return {
        "explained": explained,
        "waits": True,
        "cause": explained.reason,
        "sections": sections(report) if report else (),
        "nodes": node_lines(report) if report else (),
        "node_count": len(report.nodes) if report else 0,
        "hints": report.hints if report else (),
        "held": lines[:NAMED_HELD],
        "held_count": len(keys),
        "held_more": max(0, len(lines) - NAMED_HELD),
    }


def _held(keys: set[tuple[str, str, str]]) -> list[HeldLine]:
    """The devices by pool and holder, those with most devices first."""
    if not keys:
        return []
    holders = read_holders(keys)
    found: dict[tuple[str, tuple[Holder, ...]], list[tuple[str, str]]] = {}
    for driver, pool, device in sorted(keys, key=lambda key: natural("/".join(key))):
        by = tuple(holders.get((driver, pool, device), ()))
        found.setdefault((pool, by), []).append((_address(driver, pool, device), device))
    lines = [HeldLine(pool=pool, holders=by, devices=tuple(held)) for (pool, by), held in found.items()]
    return sorted(lines, key=lambda line: (-len(line.devices), natural(line.pool)))


def _address(driver: str, pool: str, device: str) -> str:
    return f"{driver}/{pool}/{device}"


def _state_of(explained: Explanation, pod: Pod) -> str:
    if explained.state in ("Waiting", "Deleting"):
        return explained.state
    return "Being scheduled" if explained.state == "Schedulable" else pod.status.phase or "Pending"


def _claims(pod: Pod) -> list[ClaimLine]:
    return [_claim(pod, reference.entry, reference.claim) for reference in references(pod) if reference.needed]


def _claim(pod: Pod, entry: str, name: str | None) -> ClaimLine:
    stored = objects.get(kind(CLAIMS), pod.metadata.namespace, name) if name else None
    if stored is None:
        state = "Does not exist" if name else "Not created yet"
        return ClaimLine(entry=entry, name=name or "", state=state, devices=())
    claim = decoded(stored, ResourceClaim)
    results = claim.status.allocation.devices.results if claim.status.allocation else ()
    devices = tuple((_address(one.driver, one.pool, one.device), f"{one.pool} / {one.device}") for one in results)
    return ClaimLine(
        entry=entry, name=claim.metadata.name, state="Allocated" if devices else "Pending", devices=devices
    )


# The list ------------------------------------------------------------------------------------------------------------

#: Neither bound nor over.
_IS_WAITING = Q(node_name="", phase__in=("", "Pending"), deleting=False)
_WAITING_FIRST = Case(When(_IS_WAITING, then=Value(0)), default=Value(1), output_field=IntegerField())


def _lines(rows: Iterable[PodRow]) -> list[PodLine]:
    found = list(rows)
    waiting = [row.uid for row in found if _row_state(row) == "Waiting"]
    messages = dict(QueuedPod.objects.filter(uid__in=waiting).values_list("uid", "message"))
    return [
        PodLine(
            namespace=row.namespace,
            name=row.name,
            state=_row_state(row),
            node=row.node_name,
            reason=_short(messages.get(row.uid, "")),
        )
        for row in found
    ]


def _row_state(row: PodRow) -> str:
    if row.deleting:
        return "Deleting"
    return "Waiting" if not row.node_name and row.phase in ("", "Pending") else row.phase or "Pending"


def _short(message: str) -> str:
    """The scheduler's message without what all of them begin and end with."""
    before, _, dominant = message.removesuffix(STILL_NOT_SCHEDULABLE).strip().partition(f"{CANNOT_ALLOCATE}. ")
    return sentence(dominant or before)

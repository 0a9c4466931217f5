"""One pod: `/pods/NAMESPACE/NAME`, in parts that `?tab=` names.

- `why`: why it waits, with a rehearsal where the address asks for one (see `pod_why`); only while it waits
- `claims`: its claims and their devices, its containers with what they were given
- `events`, `logs`, `yaml`, `history`
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import yaml
from django.http import Http404, HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from claims.kinds import pod_groups
from claims.kinds.pods import Pod
from dashboard.capacity.quotas import quotas_refusing
from dashboard.kit.rendering import PageContext, render_page
from dashboard.kit.rights import namespaced
from dashboard.tools.history.views import TAB, ShownHistory, history_of
from dashboard.workloads.pods.conversation import Conversation, read_conversation
from dashboard.workloads.pods.logs import Log, may_read_log, read_log
from dashboard.workloads.pods.reading import (
    ClaimLine,
    ContainerLine,
    Moment,
    container_lines,
    latest,
    read_claims,
    read_moments,
)
from dashboard.workloads.pods.views import STATES, state_of
from dashboard.workloads.pods.why import PodVerdict, Why, read_stay, read_why, waits, what_if_url
from dashboard.workloads.whatif.query import changes_of
from manciple.people import demand_sight
from manciple.wire import codec
from manciple.wire.errors import NotFound
from scheduling.models import QueuedPod
from scheduling.rehearsal.explanations.current import explain_pod
from scheduling.rehearsal.explanations.documents import Explanation


@dataclass(frozen=True, slots=True, kw_only=True)
class PodTab:
    """One part of the page. number: what stands beside the word, "" for nothing."""

    name: str
    word: str
    number: str = ""
    current: bool = False

    @property
    def url(self) -> str:
        return f"?tab={self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodContext(PageContext):
    """refusing: quotas that keep it without claims; moments: all that happened to it; latest: the last of that.

    placement: why its node and devices were chosen. stay: what keeps it although it is being deleted. conversation,
    why, log, text, history: of the `tab` that shows them.
    """

    pod: Pod
    namespace: str
    name: str
    state: str
    icon: str
    waits: bool
    owners: Sequence[str]
    gang: str
    placement: str
    queued: QueuedPod | None
    gone_by: str | None
    tabs: Sequence[PodTab]
    tab: str
    claims: Sequence[ClaimLine]
    refusing: Sequence[str]
    containers: Sequence[ContainerLine]
    moments: Sequence[Moment]
    latest: Sequence[Moment]
    stay: PodVerdict | None
    may_edit: bool
    what_if_url: str
    topics: str
    conversation: Conversation | None
    why: Why | None
    log: Log | None
    text: str
    history: ShownHistory | None


@namespaced()
@require_safe
def show_pod(request: HttpRequest, namespace: str, name: str) -> HttpResponse:
    """See the module's docstring."""
    person = demand_sight(request, namespace, f"Pod {name}")
    try:
        explained = explain_pod(namespace, name)
    except NotFound as missing:
        raise Http404(f"Pod {name} does not exist in namespace {namespace}.") from missing
    pod = explained.about
    assert isinstance(pod, Pod)  # noqa: S101 - explain_pod explains pods
    claims = read_claims(pod, explained.extended)
    moments = read_moments(pod, [claim.name for claim in claims])
    waiting = waits(explained)
    tabs = _tabs(
        request.GET.get("tab", ""),
        waiting=waiting,
        claims=len(claims),
        moments=len(moments),
        logs=may_read_log(person, namespace, name),
    )
    tab = next(one.name for one in tabs if one.current)
    changes = changes_of(request.GET)
    speaks = tab in ("why", "claims")
    context = PodContext(
        place="pods",
        revision=explained.revision,
        pod=pod,
        namespace=namespace,
        name=name,
        state=state(explained, pod),
        icon=STATES.get(state(explained, pod), "i-wait"),
        waits=waiting,
        gang=_gang(pod),
        owners=[f"{owner.kind} {owner.name}" for owner in pod.metadata.owner_references],
        placement=explained.placement,
        queued=QueuedPod.objects.filter(uid=pod.metadata.uid).first(),
        gone_by=pod.metadata.deletion_timestamp,
        tabs=tabs,
        tab=tab,
        claims=claims,
        refusing=quotas_refusing(person, namespace, name) if any(not claim.name for claim in claims) else (),
        containers=container_lines(pod, claims),
        moments=moments,
        latest=latest(moments),
        stay=read_stay(pod, claims, moments, datetime.now(UTC), person),
        may_edit=person.may_edit(namespace),
        what_if_url=what_if_url(pod, changes),
        topics=_topics(namespace, name, waiting=waiting),
        conversation=read_conversation(pod, claims) if speaks else None,
        why=read_why(explained, person, changes) if tab == "why" else None,
        log=read_log(pod, request.GET) if tab == "logs" else None,
        text=as_yaml(pod) if tab == "yaml" else "",
        history=history_of(request, [pod.metadata.uid], namespace=namespace) if tab == TAB else None,
    )
    return render_page(request, "workloads/pods/page.html", context)


def _gang(pod: Pod) -> str:
    """`gang train of 4`, `group train`: what it is placed together with; "" for a pod by itself."""
    name = pod_groups.shown_name(pod_groups.gang_name(pod))
    size = pod.metadata.annotations.get(pod_groups.GANG_SIZE, "")
    if pod.spec.scheduling_group or not name:
        return name and f"group {name}"
    return f"gang {name} of {size}"


def _tabs(wanted: str, *, waiting: bool, claims: int, moments: int, logs: bool) -> list[PodTab]:
    found = [PodTab(name="why", word="Why it waits")] if waiting else []
    found += [
        PodTab(name="claims", word="Claims and containers" if not waiting else "Claims", number=str(claims or "")),
        PodTab(name="events", word="Events", number=str(moments)),
        *((PodTab(name="logs", word="Logs"),) if logs else ()),
        PodTab(name="yaml", word="YAML"),
        PodTab(name=TAB, word="History"),
    ]
    chosen = wanted if wanted in {tab.name for tab in found} else found[0].name
    return [PodTab(name=tab.name, word=tab.word, number=tab.number, current=tab.name == chosen) for tab in found]


def _topics(namespace: str, name: str, *, waiting: bool) -> str:
    """What touches the page: a pod that waits waits for almost anything."""
    own = f"pod:{namespace}/{name} claims:{namespace} events:{namespace}"
    return f"{own} pool: slices classes nodes" if waiting else own


def state(explained: Explanation, pod: Pod) -> str:
    """What the pod's state is called on its page."""
    if explained.state == "Schedulable":
        return "Being scheduled"
    if explained.state in ("Waiting", "Deleting"):
        return explained.state
    return state_of(deleting=False, phase=pod.status.phase, node=pod.spec.node_name)


def as_yaml(pod: Pod) -> str:
    """The object as `kubectl get -o yaml` shows it: without managedFields."""
    document = codec.to_builtins(pod)
    document.get("metadata", {}).pop("managedFields", None)
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=10_000)

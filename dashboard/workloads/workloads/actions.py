"""What people do to workloads: scale, restart, pause, roll back, suspend, extend, run again, delete.

`/workloads/RESOURCE/NAMESPACE/NAME/ACT`: a GET shows what would follow, a POST does it through the API with the
person's identity. What some acts need besides (a number of pods, minutes, a revision) stands in the address.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from msgspec import structs

from claims.causes.messages import clause
from claims.kinds.pods import Pod
from dashboard.kit.differences import difference, dump
from dashboard.kit.previews import ActionEffect, BelowAnObject, consequences, not_changed
from dashboard.templatetags.kit import counted, joined, listed
from dashboard.workloads.owners import TIME_LIMITS, WORDS
from dashboard.workloads.pods.actions import NAMED, effect_of_deletion
from dashboard.workloads.pods.forms import free_name, manifest
from dashboard.workloads.workloads.queries import pods_of, read_revisions
from insight.start_estimates import end_of
from manciple.api import verbs
from manciple.durations import duration, moment
from manciple.people import Person
from manciple.store import objects
from manciple.store.objects import decoded
from manciple.wire import codec
from manciple.wire.base import timestamp
from manciple.wire.errors import ApiError
from manciple.wire.machinery import DeleteOptions, Preconditions
from manciple.wire.quantity import whole
from manciple.wire.registry import Kind
from manciple.wire.resources import FINISHED_PHASES, PODS
from manciple.wire.resources import kind as kind_of
from manciple.wire.validation import DNS_LABEL_MAX
from scheduling.rehearsal.departures import what_if_gone
from scheduling.rehearsal.quota_refusals import refused
from scheduling.rehearsal.simulation import Placed, try_one
from scheduling.rehearsal.workload import NotRehearsable, of_documents, spoken
from workloads.kinds.cron_jobs import CronJob
from workloads.kinds.jobs import JOB, NAME_LABELS, UID_LABELS, Job
from workloads.kinds.templates import PodTemplateSpec, owner_reference, pod_of
from workloads.models import Autoscaler, Workload

#: How many pods a preview rehearses the end of. Beyond that it gives only their number.
REHEARSED = 200
RESTARTED_AT = "kubectl.kubernetes.io/restartedAt"
#: Kinds by what can be done to them.
SCALED = frozenset({"Deployment", "ReplicaSet", "StatefulSet"})
ROLLED = frozenset({"Deployment", "DaemonSet", "StatefulSet"})
#: Minutes by which a time limit is extended unless another number is asked for, and at most.
MINUTES, MOST_MINUTES = 60, 60 * 24 * 90
#: The most pods that may be asked for: an Int32.
MOST_PODS = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadAct:
    """word: of the button. kinds: that have it. refuses: why a workload does not offer it as it is now, "" where it
    does. asks: the parameter that it needs, "" for none; label: of its input. Somebody needs the right to `verb` one of
    `resources`: "" is the workload's own.
    """

    word: str
    verb: str
    kinds: frozenset[str]
    refuses: Callable[[Any], str] = lambda _one: ""
    resources: tuple[str, ...] = ("",)
    asks: str = ""
    label: str = ""
    destroys: bool = False

    def offers(self, one: Any) -> bool:
        return one.kind in self.kinds and not self.refuses(one)

    def is_allowed(self, person: Person, kind: Kind, namespace: str, name: str) -> bool:
        return any(person.may(self.verb, one or kind.resource, namespace, name) for one in self.resources)


def _has_ended(one: Any) -> str:
    return "it has ended" if one.kind == "Job" and one.status.is_finished else ""


def _is_stopped(one: Any) -> str:
    return _has_ended(one) or ("it is suspended already" if one.spec.suspend else "")


def _goes_on(one: Any) -> str:
    if one.kind == "Deployment":
        return "" if one.spec.paused else "it is not paused"
    return _has_ended(one) or ("" if one.spec.suspend else "it is not suspended")


def _is_paused(one: Any) -> str:
    return "it is paused" if getattr(one.spec, "paused", False) else ""


_JOB, _CRON_JOB, _DEPLOYMENT = frozenset({"Job"}), frozenset({"CronJob"}), frozenset({"Deployment"})

#: The last part of the address -> the act, in the order of the buttons.
ACTS: Mapping[str, WorkloadAct] = {
    "scale": WorkloadAct(word="Scale", verb="patch", asks="pods", label="Number of pods", kinds=SCALED),
    "restart": WorkloadAct(word="Restart", verb="patch", kinds=ROLLED, refuses=_is_paused),
    "pause": WorkloadAct(word="Pause", verb="patch", kinds=_DEPLOYMENT, refuses=_is_paused),
    "resume": WorkloadAct(word="Resume", verb="patch", kinds=_DEPLOYMENT | _JOB | _CRON_JOB, refuses=_goes_on),
    "suspend": WorkloadAct(word="Suspend", verb="patch", kinds=_CRON_JOB, refuses=_is_stopped),
    "stop": WorkloadAct(word="Stop", verb="patch", kinds=_JOB, refuses=_is_stopped, destroys=True),
    "extend": WorkloadAct(
        word="Extend",
        verb="patch",
        resources=("", TIME_LIMITS),
        asks="minutes",
        label="Minutes to add",
        kinds=_JOB,
        refuses=_has_ended,
    ),
    "rerun": WorkloadAct(word="Run again", verb="create", resources=(JOB.resource,), kinds=_JOB),
    "run": WorkloadAct(word="Run now", verb="create", resources=(JOB.resource,), kinds=_CRON_JOB),
    "undo": WorkloadAct(word="Roll back", verb="patch", asks="to", kinds=ROLLED),
    "delete": WorkloadAct(word="Delete", verb="delete", kinds=frozenset(WORDS.values()), destroys=True),
}


def word_of(key: str, one: Any) -> str:
    """Of the button."""
    return "Set a time limit" if key == "extend" and one.spec.active_deadline_seconds is None else ACTS[key].word


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadPreview(BelowAnObject):
    """What `workloads/workloads/act.html` shows. effect: None while something has to be typed first. asked: what was
    typed, where `label` asks for something; complaint: what is wrong with it. scaled_by: autoscalers that set their own
    number of pods again.
    """

    key: str
    act: WorkloadAct
    word: str
    noun: str
    uid: str
    effect: ActionEffect | None
    asked: str = ""
    scaled_by: Sequence[Autoscaler] = ()
    complaint: str = ""
    error: str = ""
    topics: str = ""
    by_force: bool = False

    @property
    def action(self) -> str:
        return self.word

    @property
    def label(self) -> str:
        """Of the input; "" where nothing is asked."""
        if self.effect is not None and self.effect.refused and not self.asked:
            return ""
        return "Minutes from its start" if self.word != self.act.word else self.act.label

    @property
    def url(self) -> str:
        return f"{self.back}/{self.key}"

    @property
    def button(self) -> str:
        if self.key == "undo":
            return f"Roll back to revision {self.asked}"
        return self.word if self.word != self.act.word else f"{self.word} {self.noun}"

    @property
    def question(self) -> str:
        to = f" to revision {self.asked}" if self.key == "undo" else ""
        word = self.word if self.word == self.act.word else f"{self.word} for"
        return f"{word} {self.noun} {self.name}{to}?"


class NotAsked(ValueError):
    """What an act needs besides is missing, or makes no sense; says so, "" where it is only missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedAct:
    """change: makes the workload's successor. made: what is created instead. effect: what would follow."""

    effect: ActionEffect
    change: Callable[[Any], Any] | None = None
    made: Any = None


def plan(key: str, one: Any, asked: str, person: Person) -> PlannedAct:
    """What the act would do to the workload as it is. Raises: NotAsked."""
    if why := ACTS[key].refuses(one):
        return PlannedAct(effect=ActionEffect(consequences=(), refused=why))
    return _PLANS[key](one, asked, person)


def _number(text: str, least: int, most: int, what: str) -> int:
    """Raises: NotAsked."""
    if not text:
        raise NotAsked("")
    number = whole(text, digits=len(str(most)))
    if number is None or not least <= number <= most:
        raise NotAsked(f"{what} must be a whole number from {least:,} to {most:,}.")
    return number


def _scale(one: Any, asked: str, _person: Person) -> PlannedAct:
    wanted, before = _number(asked, 0, MOST_PODS, "The number of pods"), one.spec.replicas or 0
    more = wanted - before
    lines = []
    if more > 0:
        lines.append(("Pods", f"{counted(more, 'pod is', 'pods are')} made: {before:,} become {wanted:,}."))
        lines.append(("Then", _next_pod(one)))
    elif more < 0:
        lines.append(("Pods", f"{counted(-more, 'pod ends', 'pods end')}: {before:,} become {wanted:,}."))
        lines.append(("Which", "Pods that wait go first, then those that are not ready, then the youngest."))
    owner = next((owner for owner in one.metadata.owner_references if owner.controller), None)
    if owner is not None:
        lines.append(("After", f"{owner.kind} {owner.name} controls it and may set its own number again."))
    return PlannedAct(
        effect=ActionEffect(
            consequences=consequences(lines),
            refused="" if more else f"it has {counted(wanted, 'pod')} already",
        ),
        change=lambda now: _with_spec(now, replicas=wanted),
    )


def _next_pod(one: Any) -> str:
    """Where the first of further pods would start."""
    pod: Any = pod_of(one.spec.template, one)
    pod = structs.replace(pod, metadata=structs.replace(pod.metadata, name=f"{one.metadata.name}-new", labels={}))
    try:
        workload = of_documents([kind_of(PODS).prepare_create(pod)])
        answer = refused(workload) or try_one(workload)
    except (NotRehearsable, ApiError):
        return ""
    if isinstance(answer, Placed):
        devices = joined([device.device for device in answer.devices], NAMED)
        return f"The next pod would start on {answer.node}{f', with {devices}' if devices else ''}."
    because = f" because {spoken(clause(answer))}".replace("`", "") if answer else ""
    return f"The next pod would wait{because}."


def _restart(one: Any, _asked: str, _person: Person) -> PlannedAct:
    number, now = pods_of(one.metadata.uid).exclude(deleting=True).count(), timestamp(datetime.now(UTC))

    def change(current: Any) -> Any:
        template = current.spec.template
        annotations = {**template.metadata.annotations, RESTARTED_AT: now}
        template = structs.replace(template, metadata=structs.replace(template.metadata, annotations=annotations))
        return _with_spec(current, template=template)

    lines = [("Pods", f"{counted(number, 'pod is', 'pods are')} replaced by new ones of the same template."), _how(one)]
    return PlannedAct(effect=ActionEffect(consequences=consequences(lines)), change=change)


def _how(one: Any) -> tuple[str, str]:
    """In which order pods of another template take the place of those that there are."""
    strategy = one.spec.strategy if one.kind == "Deployment" else one.spec.update_strategy
    if strategy.type == "Recreate":
        return "How", "All of them end before the first new one is made."
    if strategy.type == "OnDelete":
        return "How", "Each is replaced when somebody deletes it."
    rolling = strategy.rolling_update
    if rolling is None or getattr(rolling, "max_unavailable", None) is None:
        return "How", "One after the other."
    surge = getattr(rolling, "max_surge", 0) or 0
    return "How", f"Step by step: at most {rolling.max_unavailable} may be missing, and {surge} more may exist."


def _pause(_one: Any, _asked: str, _person: Person) -> PlannedAct:
    lines = [
        ("Pods", "What runs goes on. Scaling goes on, too."),
        ("Then", "Another template changes nothing until the Deployment is resumed."),
    ]
    effect = ActionEffect(consequences=consequences(lines))
    return PlannedAct(effect=effect, change=lambda now: _with_spec(now, paused=True))


def _resume(one: Any, _asked: str, _person: Person) -> PlannedAct:
    if one.kind == "Deployment":
        then = "A template that was changed meanwhile is rolled out."
        effect = ActionEffect(consequences=consequences([("Then", then)]))
        return PlannedAct(effect=effect, change=lambda now: _with_spec(now, paused=False))
    of_job, of_cron_job = "Its pods are made, and its time limit begins anew.", "It makes Jobs by its schedule."
    what = of_job if one.kind == "Job" else of_cron_job
    effect = ActionEffect(consequences=consequences([("Then", what)]))
    return PlannedAct(effect=effect, change=lambda now: _with_spec(now, suspend=False))


def _suspend(_one: Any, _asked: str, _person: Person) -> PlannedAct:
    lines = [("Then", "It makes no more Jobs until it is resumed. Those that run go on.")]
    effect = ActionEffect(consequences=consequences(lines))
    return PlannedAct(effect=effect, change=lambda now: _with_spec(now, suspend=True))


def _stop(one: Any, _asked: str, person: Person) -> PlannedAct:
    effect = _effect_on_pods(one, person)
    then = consequences([("Then", "It is kept, with what has succeeded, and can be resumed.")])
    effect = replace(effect, consequences=(*effect.consequences, *then))
    return PlannedAct(effect=effect, change=lambda now: _with_spec(now, suspend=True))


def _extend(one: Any, asked: str, person: Person) -> PlannedAct:
    minutes = _number(asked or str(MINUTES), 1, MOST_MINUTES, "Minutes")
    before, meta = one.spec.active_deadline_seconds, one.metadata
    if before is None and not person.may("patch", JOB.resource, meta.namespace, meta.name):
        refused = "it has no time limit to extend, and to set one takes the right to change the Job"
        return PlannedAct(effect=ActionEffect(consequences=(), refused=refused))
    limit = (before or 0) + minutes * 60
    lines = [("Time limit", f"{'None becomes' if before is None else f'{duration(before)} become'} {duration(limit)}.")]
    ends_at = end_of(moment(one.status.start_time), limit)
    if ends_at is not None:
        left = (ends_at - datetime.now(UTC)).total_seconds()
        lines.append(
            ("Left", f"{duration(left)}, if it has not ended before." if left > 0 else "Nothing: it ends now.")
        )
    effect = ActionEffect(consequences=consequences(lines))
    return PlannedAct(effect=effect, change=lambda now: _with_spec(now, active_deadline_seconds=limit))


def _free_job_name(one: Any) -> str:
    """One with which its pods' names, too, are short enough."""
    names = Workload.objects.filter(namespace=one.metadata.namespace, resource=JOB.resource)
    is_indexed = one.kind == "Job" and one.spec.is_indexed
    end = f"-{(one.spec.completions or 1) - 1}" if is_indexed else ""
    return free_name(one.metadata.name, set(names.values_list("name", flat=True)), most=DNS_LABEL_MAX - len(end))


def _rerun(one: Any, _asked: str, _person: Person) -> PlannedAct:
    name, document = _free_job_name(one), manifest(one)
    meta, spec = document["metadata"], document["spec"]
    meta["name"] = name
    if not spec.get("manualSelector"):
        spec.pop("selector", None)
        for labels in (meta.get("labels", {}), spec.get("template", {}).get("metadata", {}).get("labels", {})):
            for label in (*UID_LABELS, *NAME_LABELS):  # which a Job gets by itself
                labels.pop(label, None)
    spec.pop("suspend", None)
    lines = [
        ("Makes", f"Job {name}, with the same template and the same settings."),
        ("Keeps", f"Job {one.metadata.name}, as it is."),
        ("Then", _next_pod(one)),
    ]
    return PlannedAct(effect=ActionEffect(consequences=consequences(lines)), made=document)


def _run_now(cron_job: CronJob, _asked: str, _person: Person) -> PlannedAct:
    """As `kubectl create job --from=cronjob/NAME` does."""
    name, template = _free_job_name(cron_job), cron_job.spec.job_template
    metadata = structs.replace(
        template.metadata,
        name=name,
        namespace=cron_job.metadata.namespace,
        annotations={**template.metadata.annotations, "cronjob.kubernetes.io/instantiate": "manual"},
        owner_references=(owner_reference(cron_job),),
    )
    job = Job(api_version="batch/v1", kind="Job", metadata=metadata, spec=template.spec)
    lines = [("Makes", f"Job {name}, of its template, now."), ("Keeps", "Its schedule, as it is.")]
    return PlannedAct(effect=ActionEffect(consequences=consequences(lines)), made=codec.to_builtins(job))


def _undo(one: Any, asked: str, _person: Person) -> PlannedAct:
    revisions = read_revisions(one)
    wanted = next((line for line in revisions if str(line.number) == asked), None)
    if wanted is None:
        raise NotAsked("There is no such revision, or no longer.")
    try:
        template = codec.decode_value(PodTemplateSpec, wanted.template)
    except ApiError as error:  # clients may write revisions, too
        raise NotAsked("This revision cannot be read.") from error
    number = pods_of(one.metadata.uid).exclude(deleting=True).count()
    lines = [
        ("Template", f"That of revision {wanted.number} again."),
        ("Pods", f"{counted(number, 'pod is', 'pods are')} replaced."),
        _how(one),
    ]
    before = dump(codec.to_builtins(one.spec.template))
    return PlannedAct(
        effect=ActionEffect(
            consequences=consequences(lines),
            refused="the template is that of this revision already" if wanted.current else "",
            differences=(("Template", difference(before, dump(wanted.template))),),
        ),
        change=lambda now: _with_spec(now, template=template),
    )


def _delete(one: Any, _asked: str, person: Person) -> PlannedAct:
    return PlannedAct(effect=_effect_on_pods(one, person))


def _effect_on_pods(one: Any, person: Person) -> ActionEffect:
    """What the end of all its pods would bring."""
    rows = pods_of(one.metadata.uid).exclude(phase__in=FINISHED_PHASES)
    number = rows.count()
    if not number:
        return ActionEffect(consequences=consequences([("Pods", "It has no pod that runs or waits.")]))
    keys = list(rows.order_by("name").values_list("namespace", "name")[:REHEARSED])
    named = listed([name for _, name in keys], NAMED, more=number - len(keys))
    ends = consequences([("Pods", f"{counted(number, 'pod ends', 'pods end')}: {named}.")])
    if number > REHEARSED:
        return ActionEffect(consequences=ends)
    pods = [
        structs.replace(pod, metadata=structs.replace(pod.metadata, owner_references=()))
        for pod in (decoded(stored, Pod) for stored in objects.get_many(kind_of(PODS), keys))
    ]
    effect = effect_of_deletion(pods, what_if_gone(*pods), person) if pods else ActionEffect(consequences=())
    return replace(effect, consequences=(*ends, *effect.consequences))


def _with_spec(one: Any, **fields: Any) -> Any:
    return structs.replace(one, spec=structs.replace(one.spec, **fields))


_PLANS: Mapping[str, Callable[[Any, str, Person], PlannedAct]] = {
    "scale": _scale,
    "extend": _extend,
    "restart": _restart,
    "pause": _pause,
    "resume": _resume,
    "suspend": _suspend,
    "stop": _stop,
    "rerun": _rerun,
    "run": _run_now,
    "undo": _undo,
    "delete": _delete,
}


def carry_out(key: str, planned: PlannedAct, *, kind: Kind, one: Any, uid: str, person: Person) -> tuple[str, Any]:
    """Carry out the act for somebody who may, unless another workload has taken the name since (another uid).

    Returns (why it was not done, or ""; the workload afterwards).
    """
    meta = one.metadata
    if uid != meta.uid:
        return f"Another {kind.kind} is now called {meta.name}. This is what would happen to that one.", None
    identity = person.identity
    if key == "extend":  # whoever may only extend time limits is not asked again whether they may patch Jobs
        identity = identity.let_in()
    place: dict[str, Any] = {"namespace": meta.namespace, "identity": identity}
    try:
        if key == "delete":
            options = DeleteOptions(preconditions=Preconditions(uid=uid), propagation_policy="Background")
            verbs.delete(kind, name=meta.name, options=options, **place)
            return "", None
        if planned.made is not None:
            made = codec.decode_document(JOB, planned.made, strictness="Strict").object
            return "", verbs.create(JOB, made, **place)
        assert planned.change is not None  # noqa: S101 - what neither creates nor deletes changes
        return "", verbs.modify(kind, planned.change, name=meta.name, **place).object
    except ApiError as refusal:
        return not_changed(refusal, noun=kind.kind), None


#: Acts that the dashboard offers to take back.
UNDONE = frozenset({"scale", "extend", "restart", "pause", "suspend", "resume", "undo"})
#: Acts that leave the workload as it is, and create a Job.
MAKES_JOB = frozenset({"rerun", "run"})
_DONE: Mapping[str, str] = {
    "scale": "Scaled {} {}.",
    "extend": "Extended the time limit of {} {}.",
    "restart": "Restarting {} {}.",
    "pause": "Paused {} {}.",
    "resume": "Resumed {} {}.",
    "suspend": "Suspended {} {}.",
    "stop": "Stopped {} {}.",
    "undo": "Rolling back {} {}.",
    "delete": "Deleted {} {}.",
}


def done(key: str, kind: Kind, one: Any, after: Any) -> str:
    """What was done, as a sentence. after: the object that is there now."""
    if key in MAKES_JOB:
        return f"Created Job {after.metadata.name}."
    return _DONE[key].format(kind.kind, one.metadata.name)


def usual(key: str, one: Any) -> str:
    """What stands in the input before somebody types: the number of pods that it has, so many minutes."""
    return {"scale": str(getattr(one.spec, "replicas", None) or 0), "extend": str(MINUTES)}.get(key, "")

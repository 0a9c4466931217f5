"""The steps of an advice (`insight.advice`) as pages draw them: what to do, what follows, and where it is done.

`StepLine.do_url` is the button: a dialog or a form that does it. "" for those who may not do it; they read the step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import urlencode

from django.conf import settings

from claims.kinds.pods import Pod
from claims.kinds.quotas import ResourceQuota
from dashboard.capacity.quotas import try_url
from dashboard.templatetags.kit import page_url, pod_url, yaml_url
from dashboard.workloads.changes import as_text, replace_url
from dashboard.workloads.waiting import said_of
from insight.advice import (
    Act,
    AddNode,
    Advice,
    Await,
    CreateClaim,
    CreateClass,
    RaiseQuota,
    RemoveGates,
    Repair,
    Request,
    ServeResource,
    Step,
    follows,
    told,
)
from manciple.mirror.commands import command_of, how
from manciple.people import Person
from manciple.store import objects
from manciple.store.objects import decoded
from manciple.wire.resources import CLASSES, PODS, QUOTAS, kind
from scheduling.rehearsal.repairs import ForgottenClaim

#: Steps that are shown.
SHOWN = 6


class _Button(NamedTuple):
    """dialog: it opens a preview on the page."""

    word: str
    url: str
    dialog: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLine:
    """try_url: a rehearsal of it, "" where there is none. how, command: in a mirror, how it is done in the cluster."""

    word: str
    follows: str
    do_word: str = ""
    do_url: str = ""
    dialog: bool = False
    try_url: str = ""
    how: str = ""
    command: str = ""


def step_lines(advice: Advice, person: Person) -> tuple[StepLine, ...]:
    return tuple(_line(step, advice, person) for step in advice.steps[:SHOWN])


def _line(step: Step, advice: Advice, person: Person) -> StepLine:
    pod = advice.subject.pod if advice.subject else None
    button = _button(step.act, advice, person)
    return StepLine(
        word=told(step, advice.claims, person.sees),
        follows=follows(step),
        do_word=button.word if button and button.url else "",
        do_url=button.url if button else "",
        dialog=bool(button and button.dialog),
        try_url=_try_url(step.act, pod),
        how=how(step.act, pod) if settings.MIRROR else "",
        command=_command(step.act, pod, person) if settings.MIRROR else "",
    )


def _command(act: Act, pod: Pod | None, person: Person) -> str:
    """With the context of the cluster that is mirrored. "" where it would name what they do not see."""
    hidden = (
        isinstance(act, Repair) and isinstance(act.trouble, ForgottenClaim) and not person.sees(act.trouble.namespace)
    )
    hidden |= isinstance(act, Await) and not all(person.sees(namespace) for namespace, _ in act.pods)
    return "" if hidden else command_of(act, pod, context=settings.MIRROR_OF)


def _try_url(act: Act, pod: Pod | None) -> str:
    if pod is not None and isinstance(act, Request):
        return f"{pod_url(*pod.key)}?{as_text(act.changes)}"
    if pod is not None and isinstance(act, AddNode):
        question = [("pod", "/".join(pod.key)), ("shape", act.like), ("nodes", "1")]
        return f"{page_url('what-if')}?{urlencode(question, safe='/:')}"
    return ""


def _button(act: Act, advice: Advice, person: Person) -> _Button | None:
    pod = advice.subject.pod if advice.subject else None
    button: _Button | None = None
    match act:
        case Request(changes=changes) if pod is not None:
            button = _Button("Replace pod", replace_url(pod, changes, person), dialog=True)
        case Repair(trouble=trouble):
            button = _Button("Open", said_of(trouble, person.sees)[2])
        case CreateClass(name=name) if person.may("create", CLASSES):
            button = _Button("Create class", f"{page_url('class-new')}?{urlencode({'name': name})}")
        case CreateClaim(namespace=namespace, name=name, template=template) if person.may_edit(namespace):
            query = {"ns": namespace, "template" if template else "claim": name}
            button = _Button("Create it", f"{page_url('pod-new')}?{urlencode(query)}")
        case ServeResource(device_class=name, resource=resource) if person.may("update", CLASSES):
            url = f"{page_url('class-serve', name)}?{urlencode({'resource': resource})}"
            button = _Button("Set the name", url, dialog=True)
        case RaiseQuota(namespace=namespace, limits=limits) if person.may("get", QUOTAS, namespace):
            stored = objects.get(kind(QUOTAS), namespace, limits[0].quota)
            button = _Button("Open quota", try_url(decoded(stored, ResourceQuota), limits)) if stored else None
        case RemoveGates() if pod is not None and person.may_edit(pod.metadata.namespace):
            button = _Button("Edit YAML", yaml_url(PODS, *pod.key))
        case Await(node=node):
            button = _Button("See its pods", f"{page_url('pods')}?{urlencode({'node': node})}")
    return button


def first_button(lines: Sequence[StepLine]) -> StepLine | None:
    """Of the next step, which is the first."""
    return lines[0] if lines and lines[0].do_url else None

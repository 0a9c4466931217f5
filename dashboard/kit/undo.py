"""Taking back what a person has just done, for as long as nothing else has changed it; `/undo` does it.

An act is a row of writes. `offer` keeps where the log has the states before and after each; pages then show what was
done with a button (`templates/kit/messages.html`), for `OFFERED` at most, until somebody undoes it, dismisses it or
does something else. `take_back` writes the states before, through the API with the person's identity, where each object
still has the content that the act left; else it changes nothing and says what changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from secrets import token_urlsafe
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.http import url_has_allowed_host_and_scheme
from msgspec import structs

from dashboard.kit.forms import plain, posted_from
from dashboard.kit.guards import authorizes
from dashboard.templatetags.kit import counted
from manciple.api import verbs
from manciple.people import person_of
from manciple.store import history, objects
from manciple.wire import codec
from manciple.wire.errors import ApiError, Conflict, NotFound
from manciple.wire.identity import Identity
from manciple.wire.machinery import DeleteOptions, Preconditions
from manciple.wire.registry import Kind, registry

#: How long it is offered. The log keeps the states before for longer.
OFFERED = timedelta(minutes=10)
#: Writes of one act that are looked at before its button is drawn; all of them before it is taken back.
LOOKED_AT = 20
#: Where the session keeps the offer.
SESSION_KEY = "undo"
#: What is not part of an object's content: the server's, or told by others.
_AROUND = ("api_version", "kind", "metadata", "status")


@dataclass(frozen=True, slots=True, kw_only=True)
class UndoStep:
    """One write. before, after: the revisions that made the two states; 0 where the object did not exist."""

    resource: str
    namespace: str
    name: str
    before: int
    after: int

    @classmethod
    def of(cls, kind: Kind, before: Any, after: Any) -> UndoStep:
        """before, after: the object with its resourceVersion; None where it did not exist."""
        meta = (before or after).metadata
        left, made = (0 if one is None else int(one.metadata.resource_version) for one in (before, after))
        return cls(resource=kind.resource, namespace=meta.namespace, name=meta.name, before=left, after=made)


@dataclass(frozen=True, slots=True, kw_only=True)
class UndoOffer:
    """What was done, as a sentence, and how it is taken back."""

    id: str
    said: str
    steps: tuple[UndoStep, ...]


def offer(request: HttpRequest, said: str, steps: Iterable[UndoStep]) -> None:
    """From now on the person's pages offer to take these writes back. said: what was done; pages show it."""
    kept = [step for step in steps if not registry.by_resource(step.resource).confidential]
    request.session[SESSION_KEY] = {
        "id": token_urlsafe(8),
        "said": said,
        "steps": [[step.resource, step.namespace, step.name, step.before, step.after] for step in kept],
        "at": datetime.now(UTC).isoformat(),
    }


def offered(request: HttpRequest) -> UndoOffer | None:
    """What can be taken back now, if anything. Costs nothing where nothing was done lately."""
    known: Mapping[str, Any] | None = request.session.get(SESSION_KEY)
    if known is None or datetime.now(UTC) - datetime.fromisoformat(known["at"]) > OFFERED:
        return None
    steps = tuple(
        UndoStep(resource=resource, namespace=namespace, name=name, before=before, after=after)
        for resource, namespace, name, before, after in known["steps"]
    )
    return None if _changed(steps[:LOOKED_AT]) else UndoOffer(id=known["id"], said=known["said"], steps=steps)


def dismiss(request: HttpRequest) -> None:
    request.session.pop(SESSION_KEY, None)


def take_back(steps: Sequence[UndoStep], identity: Identity) -> list[UndoStep]:
    """Undo the writes, the last first; returns the writes that did it. Raises: Conflict where an object has changed
    since or the log has no state of it any more; ApiError for what the API says, with what was done before it undone.
    """
    if changed := _changed(steps):
        raise changed
    states = _states(steps)
    return [_undo(step, states, identity) for step in reversed(steps)]


def _undo(step: UndoStep, states: Mapping[int, Any], identity: Identity) -> UndoStep:
    kind, namespace, name = registry.by_resource(step.resource), step.namespace, step.name
    before, after = states.get(step.before), states.get(step.after)
    if before is None:
        known = verbs.current(kind, namespace, name)
        _expect(kind, known, after)
        wanted = Preconditions(uid=known.metadata.uid, resource_version=known.metadata.resource_version)
        options = DeleteOptions(preconditions=wanted)
        verbs.delete(kind, namespace=namespace, name=name, identity=identity, options=options)
        return UndoStep.of(kind, known, None)
    if after is None:
        made = verbs.create(kind, _anew(before), namespace=namespace, identity=identity)
        return UndoStep.of(kind, None, made)
    known = verbs.current(kind, namespace, name)
    answer = verbs.modify(
        kind, lambda now: _back(kind, now, before, after), namespace=namespace, name=name, identity=identity
    )
    return UndoStep.of(kind, known, answer.object)


def _back(kind: Kind, now: Any, before: Any, after: Any) -> Any:
    """`now` with the content that it had before."""
    _expect(kind, now, after)
    names = [name for name in now.__struct_fields__ if name not in _AROUND]
    meta = now.metadata
    for field in ("labels", "annotations"):
        if getattr(meta, field) == getattr(after.metadata, field):
            meta = structs.replace(meta, **{field: getattr(before.metadata, field)})
    return structs.replace(now, metadata=meta, **{name: getattr(before, name) for name in names})


def _anew(gone: Any) -> Any:
    """The object as somebody would create it again."""
    meta = gone.metadata
    kept = {"labels": meta.labels, "annotations": meta.annotations, "owner_references": meta.owner_references}
    return structs.replace(gone, metadata=type(meta)(name=meta.name, namespace=meta.namespace, **kept))


def _changed(steps: Sequence[UndoStep]) -> Conflict | None:
    """Why the steps cannot be taken back any more; None where they can."""
    try:
        states = _states(steps)
        for step in steps:
            kind = registry.by_resource(step.resource)
            stored = objects.get(kind, step.namespace, step.name)
            known = None if stored is None else objects.decode(kind, stored.text)
            if step.after or known is not None:
                _expect(kind, known, states.get(step.after), name=step.name)
    except Conflict as changed:
        return changed
    except NotFound as gone:
        return Conflict(gone.message)
    return None


def _states(steps: Iterable[UndoStep]) -> dict[int, Any]:
    """revision -> the object. Raises: Conflict where the log does not go back so far."""
    wanted = {revision: step for step in steps for revision in (step.before, step.after) if revision}
    found = history.states_at(wanted)
    for revision, step in wanted.items():
        if revision not in found:
            raise Conflict.of(step.resource, step.name, "the log no longer has its earlier state")
    return {
        revision: objects.decode(registry.by_resource(wanted[revision].resource), state.text)
        for revision, state in found.items()
    }


def _expect(kind: Kind, known: Any, left: Any, *, name: str = "") -> None:
    """Raises: Conflict where `known` is not what the act left."""
    if known is None or left is None or known.metadata.uid != left.metadata.uid:
        raise Conflict.of(
            kind.resource, name or (known or left).metadata.name, "it has been deleted or created again since"
        )
    if known.metadata.deletion_timestamp or _content(known) != _content(left):
        raise Conflict.of(kind.resource, known.metadata.name, "somebody has changed it since")


def _content(obj: Any) -> dict[str, Any]:
    found: dict[str, Any] = codec.to_builtins(obj)
    return {name: value for name, value in found.items() if name not in ("apiVersion", "kind", "metadata", "status")}


@authorizes
@posted_from("overview")
def undo_act(request: HttpRequest) -> HttpResponse:
    """What it did is itself no offer: the audit trail and the History of the objects have both."""
    offer, asked = offered(request), request.POST.get("offer", "")
    if request.POST.get("dismiss"):
        dismiss(request)
    elif offer is None or offer.id != asked:
        messages.error(request, "Nothing was undone: too late, or something has changed since.")
    else:
        try:
            steps = take_back(offer.steps, person_of(request).identity)
        except ApiError as refusal:
            messages.error(request, f"Nothing more was undone: {plain(refusal.message)}")
        else:
            dismiss(request)
            messages.success(request, f"Undone ({counted(len(steps), 'change')}): “{offer.said}”")
    back = request.POST.get("back", "")
    known = url_has_allowed_host_and_scheme(back, allowed_hosts={request.get_host()})
    return redirect(back if known and back.startswith("/") else "/overview")

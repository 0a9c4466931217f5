"""The History part of an object's page: `?tab=history`, `&before=ENTRY` for what was earlier, `&open=REVISION`."""

from __future__ import annotations

import json
from collections.abc import Collection, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum
from http import HTTPStatus
from typing import Any, Final, Literal

import orjson
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_http_methods
from msgspec import structs

from dashboard.kit import links, undo
from dashboard.kit.differences import (
    DiffLine,
    FieldChange,
    Finding,
    YamlProblem,
    at_paths,
    changed_fields,
    difference,
    dump,
    lines_changed,
    place_of,
    read_yaml,
    written,
)
from dashboard.kit.rendering import PageContext, render_page
from dashboard.kit.rights import authorizes
from manciple.api import verbs
from manciple.api.requests import decode_document
from manciple.audit import events, searching
from manciple.audit.models import Entry
from manciple.audit.searching import CREATED
from manciple.people import Person, demand_sight, denied, person_of
from manciple.store import history, objects
from manciple.store.event_log import latest_revision
from manciple.store.history import PastState
from manciple.store.records import Stored
from manciple.wire import codec
from manciple.wire.errors import ApiError, Conflict
from manciple.wire.quantity import whole
from manciple.wire.registry import Kind, Served, registry
from manciple.wire.resources import BUDGETS, CLAIMS, CLASSES, NAMESPACES, NODES, PODS, QUOTAS, TAINT_RULES, TEMPLATES

TAB = "history"


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryPage:
    """A page whose history stands by itself. crumbs: (address, words) of what is above it; word: "Node".

    url: of the object's page; topics: what touches the object; yaml: its address as YAML, "" for what has none.
    """

    place: str
    crumbs: tuple[tuple[str, str], ...]
    word: str
    name: str
    url: str
    topics: str
    yaml: str = ""


def asked(request: HttpRequest) -> bool:
    """Whether the address asks for an object's history."""
    return request.GET.get("tab") == TAB


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownHistory:
    """What `tools/history/changes.html` shows. before: of which entry they are the earlier ones; 0: the newest.

    opened: the revision whose difference is shown; 0 for none. may_audit: whether the requests may be looked up.
    """

    changes: ObjectHistory
    before: int
    opened: int
    may_audit: bool


def history_of(request: HttpRequest, uids: Collection[str], *, namespace: str = "") -> ShownHistory:
    before, opened = _number(request, "before"), _number(request, "open")
    return ShownHistory(
        changes=read_changes(uids, before=before, opened=opened),
        before=before,
        opened=opened,
        may_audit=person_of(request).may_audit(namespace),
    )


def _number(request: HttpRequest, name: str) -> int:
    """0 for what is none."""
    return whole(request.GET.get(name, "")) or 0


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryContext(PageContext):
    page: HistoryPage
    history: ShownHistory


def show_history(
    request: HttpRequest, page: HistoryPage, uids: Collection[str], *, namespace: str = ""
) -> HttpResponse:
    """The history of an object whose page has no other parts."""
    revision, history = latest_revision(), history_of(request, uids, namespace=namespace)
    context = HistoryContext(place=page.place, revision=revision, page=page, history=history)
    return render_page(request, "tools/history/page.html", context)


#: Changes on a page, and what is named of one in its line.
SHOWN, NAMED = 50, 3
#: Characters of documents that are compared line by line for one page: a kilobyte takes milliseconds.
COMPARED = 40_000

Document = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectChange:
    """One write of one object.

    fields, lines: what changed; () where the log no longer has it (`known` is False), or nothing that people write did.
    """

    entry: int
    revision: int
    at: datetime
    author: Author
    through: Author | None  # who acted in the author's name
    verb: str
    subresource: str
    resource: str
    namespace: str
    name: str
    created: bool
    fields: tuple[FieldChange, ...] = ()
    lines: tuple[DiffLine, ...] = ()
    known: bool = False
    #: there is too much to compare all of it at once: the lines are there to be asked for
    postponed: bool = False
    agent: str = ""  # the program

    @property
    def deleted(self) -> bool:
        return self.verb in ("delete", "deletecollection")

    @property
    def named(self) -> tuple[str, ...]:
        """The fields that its line names."""
        return tuple(field.path for field in self.fields[:NAMED])

    @property
    def more(self) -> int:
        return len(self.fields) - len(self.named)

    @property
    def did(self) -> str:
        """What the author did, in a word that the fields follow."""
        if self.created:
            return "created"
        if self.deleted:
            return "deleted"
        if self.subresource == "eviction":
            return "evicted"
        return "bound to a node" if self.subresource == "binding" else "changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectHistory:
    """The newest first. older: the entry before which the next page begins; 0 at the end."""

    changes: tuple[ObjectChange, ...]
    older: int = 0
    several: bool = False  # of more than one object, so each is named


def read_changes(uids: Collection[str], *, before: int = 0, opened: int = 0, shown: int = SHOWN) -> ObjectHistory:
    """What happened to the objects with these uids. A handful of queries, however much happened.

    opened: the revision whose lines are asked for; those of others are there as far as they are cheap.
    """
    entries = searching.of_objects(uids, before=before, limit=shown + 1)
    states = read_states(entries[:shown])
    left, changes = COMPARED, list[ObjectChange]()
    for entry in entries[:shown]:
        left -= _length(entry, states)
        changes.append(change_of(entry, states, postponed=left < 0 and entry.revision != opened))
    older = entries[shown - 1].id if len(entries) > shown else 0
    return ObjectHistory(changes=tuple(changes), older=older, several=len(uids) > 1)


def read_states(entries: Collection[Entry]) -> Mapping[int, PastState]:
    """By revision, the states that these writes made, and those which they superseded, as far as the log has them."""
    made = history.states_at({entry.revision for entry in entries if entry.revision and not _is_confidential(entry)})
    superseded = {state.previous for state in made.values() if state.previous} - made.keys()
    return {**made, **history.states_at(superseded)}


def _length(entry: Entry, states: Mapping[int, PastState]) -> int:
    """Characters of the documents before and after."""
    state = states.get(entry.revision or 0)
    before = states.get(state.previous) if state and state.previous else None
    return sum(len(one.text) for one in (state, before) if one)


def change_of(entry: Entry, states: Mapping[int, PastState], *, postponed: bool = False) -> ObjectChange:
    """What one write of an object did. postponed: leave the lines out."""
    revision = entry.revision or 0
    state, note = states.get(revision), events.note_of(entry)
    created = entry.code == CREATED
    change = ObjectChange(
        entry=entry.id,
        revision=revision,
        at=entry.at,
        author=Author(entry.username),
        through=Author(entry.impersonator) if entry.impersonator else None,
        verb=entry.verb,
        subresource=entry.subresource,
        resource=entry.resource,
        namespace=entry.namespace,
        name=entry.name,
        created=created,
        agent=note.user_agent,
    )
    before = states.get(state.previous) if state and state.previous else None
    if state is None or not (created or before):
        return change
    old, new = _document(before), _document(state)
    return replace(
        change,
        fields=changed_fields(old, new) if old else (),
        lines=() if postponed else difference(dump(written(old)) if old else "", dump(written(new))),
        known=True,
        postponed=postponed,
    )


def _document(state: PastState | None) -> Document:
    found: Document = orjson.loads(state.text) if state else {}
    return found


def _is_confidential(entry: Entry) -> bool:
    return any(kind.confidential for kind in registry if kind.resource == entry.resource)


AuthorKind = Literal["person", "account", "node", "system", "nobody"]

_NODE, _ACCOUNT, _CONTROLLER = "system:node:", "system:serviceaccount:", "system:serviceaccount:kube-system:"
_NAMED = {
    f"{_CONTROLLER}resourcequota-controller": "Quota controller",
    "system:kube-scheduler": "Scheduler",
    "system:kube-controller-manager": "Controllers",
    "system:manciple": "Manciple itself",
    "system:anonymous": "Nobody signed in",
    "": "Unknown",
}
_NOBODY = ("", "system:anonymous")


@dataclass(frozen=True, slots=True)
class Author:
    """name: the identity's, as the API knows it."""

    name: str

    @property
    def kind(self) -> AuthorKind:
        if self.name in _NOBODY:
            return "nobody"
        if self.name.startswith(_NODE):
            return "node"
        if self.name in _NAMED or self.name.startswith(_CONTROLLER):
            return "system"
        return "account" if self.name.startswith(_ACCOUNT) else "person"

    @property
    def label(self) -> str:
        """What a page calls them."""
        if self.name in _NAMED:
            return _NAMED[self.name]
        if self.name.startswith(_CONTROLLER):
            return self.name.removeprefix(_CONTROLLER).replace("-", " ").capitalize()
        if self.name.startswith(_NODE):
            return f"Agent of {self.name.removeprefix(_NODE)}"
        return self.name.removeprefix(_ACCOUNT).replace(":", "/", 1) if self.kind == "account" else self.name

    @property
    def initials(self) -> str:
        """Two letters of a person's name; "" for others, who have an icon."""
        return self.name[:2].upper() if self.kind == "person" else ""

    @property
    def icon(self) -> str:
        return {"node": "i-node", "account": "i-pod", "system": "i-over", "nobody": "i-alert"}.get(self.kind, "")

    @property
    def url(self) -> str:
        """Its page; "" where there is none."""
        return links.node_url(self.name.removeprefix(_NODE)) if self.kind == "node" else ""


#: resource -> the entry of the navigation that it is below
PLACES = {
    **{PODS: "pods", CLAIMS: "claims", TEMPLATES: "claims", CLASSES: "classes", NODES: "nodes", QUOTAS: "quotas"},
    **{NAMESPACES: "nodes", TAINT_RULES: "devices", BUDGETS: "namespaces"},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """One object as it is stored. served: the version that people are shown."""

    kind: Kind
    served: Served
    namespace: str
    name: str
    stored: Stored

    @property
    def whole(self) -> Document:
        """As the API answers it, without managedFields."""
        document = self.served.document(json.loads(self.stored.text))
        metadata = {key: value for key, value in document["metadata"].items() if key != "managedFields"}
        return {**document, "metadata": metadata}

    @property
    def edited(self) -> Document:
        """What people write of it."""
        return {key: value for key, value in written(self.whole).items() if key != "status"}

    @property
    def version(self) -> str:
        return str(self.stored.revision)


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeChoice:
    """A field that both changed, as YAML. mine: whether mine is chosen."""

    path: str
    base: str
    ours: str
    theirs: str
    mine: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestAnswer:
    """What the page says of an edit. text, base, version: what the form goes on with.

    lines: what saving would change; meanwhile: what others have changed since it was opened. first_base, first_text:
    what was merged with that, to be merged again with other choices. chosen: the person has said whose fields to keep.
    """

    text: str
    base: str
    version: str
    lines: Sequence[DiffLine] = ()
    meanwhile: Sequence[DiffLine] = ()
    choices: Sequence[MergeChoice] = ()
    findings: Sequence[Finding] = ()
    checked: bool = False
    first_base: str = ""
    first_text: str = ""
    chosen: bool = False

    @property
    def changed(self) -> int:
        return lines_changed(self.lines)


@authorizes
@require_http_methods(["GET", "HEAD", "POST"])
def edit_object(request: HttpRequest, resource: str, name: str) -> HttpResponse:
    """See the module's docstring."""
    namespace = request.GET.get("ns", "")
    person = demand_sight(request, namespace, name)
    revision, opened = latest_revision(), _open(person, resource, namespace, name)
    answer = ManifestAnswer(text=dump(opened.edited), base=dump(opened.edited), version=opened.version)
    status = HTTPStatus.OK
    if request.method == "POST":
        if not person.may("update", resource, namespace):
            raise denied(request, f"change {resource.partition('.')[0]}", "update", resource, namespace)
        judged = _judge(request, opened, person)
        if judged is None:
            return redirect(links.yaml_url(resource, namespace, name))
        answer, status = judged, HTTPStatus.CONFLICT if judged.meanwhile else _status_of(judged)
    return render_page(request, "tools/manifests/page.html", _context(opened, answer, person, revision), status=status)


def _status_of(answer: ManifestAnswer) -> HTTPStatus:
    return HTTPStatus.UNPROCESSABLE_ENTITY if answer.findings else HTTPStatus.OK


def _open(person: Person, resource: str, namespace: str, name: str) -> Opened:
    kind = next((one for one in registry if one.resource == resource), None)
    if kind is None or kind.confidential or kind.namespaced != bool(namespace):
        raise Http404(f"There is no {resource} to show.")
    if not person.may("get", resource, namespace):
        raise PermissionDenied(f"You may not see {resource.partition('.')[0]}. Ask an administrator for a role.")
    stored = objects.get(kind, namespace, name)
    if stored is None:
        raise Http404(f"{kind.kind} {name} does not exist.")
    served = next(registry.versions_of(kind), None)
    if served is None:
        raise Http404(f"{kind.kind} objects are kept but not served: a feature gate or a setting turned them off.")
    return Opened(kind=kind, served=served, namespace=namespace, name=name, stored=stored)


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestContext(PageContext):
    """status: what the server keeps, as YAML; page_url: of the object's page, "" where it has none."""

    opened: Opened
    answer: ManifestAnswer
    status: str
    page_url: str
    may_edit: bool


def _context(opened: Opened, answer: ManifestAnswer, person: Person, revision: int) -> ManifestContext:
    status = opened.whole.get("status")
    kept = {key: value for key, value in opened.whole["metadata"].items() if key not in opened.edited["metadata"]}
    return ManifestContext(
        place=PLACES.get(opened.kind.resource, ""),
        revision=revision,
        opened=opened,
        answer=answer,
        status=dump({"metadata": kept, **({"status": status} if status else {})}),
        page_url=links.object_url(opened.kind.resource, opened.namespace, opened.name),
        may_edit=person.may("update", opened.kind.resource, opened.namespace),
    )


# Judging what was typed ----------------------------------------------------------------------------------------------


def _judge(request: HttpRequest, opened: Opened, person: Person) -> ManifestAnswer | None:
    """What is to be said of what was typed; None once it is saved."""
    text, base = (request.POST.get(name, "").replace("\r\n", "\n") for name in ("text", "base"))
    version = request.POST.get("version", "")
    try:
        if request.POST.get("act") == "merge":
            first = (read_yaml(request.POST.get("first_base", "")), _read(request.POST.get("first_text", ""), opened))
            return replace(_merged(opened, *first, request.POST.getlist("take")), chosen=True)
        mine, before = _read(text, opened), read_yaml(base)
        if version == opened.version or before == opened.edited:
            return _write_or_check(request, opened, mine, person)
    except YamlProblem as problem:
        return ManifestAnswer(text=text, base=base, version=version, findings=[problem.finding])
    except Conflict:  # somebody wrote since the object was read above
        opened = _open(person, opened.kind.resource, opened.namespace, opened.name)
    except ApiError as refusal:
        return ManifestAnswer(text=text, base=base, version=version, findings=_findings(text, refusal))
    return _merged(opened, before, mine, ())


def _write_or_check(request: HttpRequest, opened: Opened, mine: Document, person: Person) -> ManifestAnswer | None:
    saving = request.POST.get("act") == "save"
    after = _write(opened, mine, person, dry_run=not saving)
    if saving:
        _tell(request, opened, after)
        return None
    now = dump(opened.edited)
    lines = difference(now, dump(_edited(opened, after)))
    return ManifestAnswer(text=dump(mine), base=now, version=opened.version, lines=lines, checked=True)


def _read(text: str, opened: Opened) -> Document:
    """Raises: YamlProblem, also for another object's text."""
    document = read_yaml(text)
    if not isinstance(document, dict) or not isinstance(document.get("metadata"), dict):
        raise YamlProblem(_at((1, 1), f"A {opened.kind.kind} is a mapping with apiVersion, kind and metadata."))
    metadata = document["metadata"]
    for field, wanted in (("name", opened.name), ("namespace", opened.namespace)):
        if metadata.get(field, "") != wanted:
            message = f"The {field} stays {wanted}: an object is not renamed. Make a new one for another {field}."
            raise YamlProblem(_at(place_of(text, f"metadata.{field}"), message))
    return document


def _write(opened: Opened, mine: Document, person: Person, *, dry_run: bool) -> Any:
    """The object as it would be stored, or is. Raises: ApiError; Conflict where somebody wrote since."""
    metadata = {**mine["metadata"], "resourceVersion": opened.version}
    decoded = decode_document(opened.served, {**mine, "metadata": metadata}, strictness="Strict").object

    def complete(new: Any, old: Any) -> Any:
        kept = structs.replace(new.metadata, managed_fields=old.metadata.managed_fields)
        new = structs.replace(opened.served.completed(new, old), metadata=kept)
        return structs.replace(new, status=old.status) if hasattr(old, "status") else new

    return verbs.update(
        opened.kind,
        decoded,
        namespace=opened.namespace,
        name=opened.name,
        identity=person.identity,
        dry_run=dry_run,
        complete=complete,
    ).object


def _edited(opened: Opened, after: Any) -> Document:
    document = opened.served.document(codec.to_builtins(after))
    return {key: value for key, value in written(document).items() if key != "status"}


def _tell(request: HttpRequest, opened: Opened, after: Any) -> None:
    before = objects.decode(opened.kind, opened.stored.text)
    said = f"Saved {opened.kind.kind} {opened.name}."
    if before.metadata.resource_version == after.metadata.resource_version:
        messages.success(request, f"{opened.kind.kind} {opened.name} already has this content; nothing was changed.")
    else:
        undo.offer(request, said, [undo.UndoStep.of(opened.kind, before, after)])


def _findings(text: str, refusal: ApiError) -> list[Finding]:
    causes = (refusal.details or {}).get("causes")
    if causes:
        return at_paths(text, causes, lambda cause: f"{cause.get('field', '')}: {cause.get('message', '')}")
    path = refusal.message.partition('unknown field "')[2].partition('"')[0]
    said = refusal.message.rpartition(": strict decoding error: ")[2]
    return [_at(place_of(text, path) if path else (0, 0), said)]


def _at(place: tuple[int, int], message: str) -> Finding:
    return Finding(line=place[0], column=place[1], severity="error", message=message)


# Merging -------------------------------------------------------------------------------------------------------------


def _merged(opened: Opened, base: Any, mine: Document, take_mine: Sequence[str]) -> ManifestAnswer:
    """What both came to; the form goes on from what is stored now."""
    theirs = opened.edited
    found = merge(base, mine, theirs, take_mine=frozenset(take_mine))
    return ManifestAnswer(
        text=dump(found.document),
        base=dump(theirs),
        version=opened.version,
        lines=difference(dump(theirs), dump(found.document)),
        meanwhile=difference(dump(base), dump(theirs)),
        choices=[_choice(one, mine=one.path in take_mine) for one in found.conflicts],
        first_base=dump(base),
        first_text=dump(mine),
    )


def _choice(conflict: MergeConflict, *, mine: bool) -> MergeChoice:
    base, ours, theirs = (_shown(value) for value in (conflict.base, conflict.mine, conflict.theirs))
    return MergeChoice(path=conflict.path, base=base, ours=ours, theirs=theirs, mine=mine)


def _shown(value: Any) -> str:
    return "not there" if value is MISSING else dump(value).removesuffix("\n...")


class Absent(Enum):
    """What stands for a field that is not there."""

    MISSING = ""


MISSING: Final = Absent.MISSING
#: What entries of lists are told apart by.
NAMES = ("name", "key")


@dataclass(frozen=True, slots=True)
class MergeConflict:
    """path: `spec.taint.value`, `spec.devices[gpu-0].taints`. base, mine, theirs: MISSING where it is not there."""

    path: str
    base: Any
    mine: Any
    theirs: Any


@dataclass(frozen=True, slots=True)
class MergedDocument:
    """What the two come to, and what both changed differently."""

    document: Any
    conflicts: Sequence[MergeConflict]


def merge(base: Any, mine: Any, theirs: Any, *, take_mine: Container[str] = ()) -> MergedDocument:
    """take_mine: paths of the conflicts that are settled so."""
    merging = _Merging(take_mine)
    return MergedDocument(merging.value((base, mine, theirs), ""), merging.conflicts)


#: base, mine, theirs
Three = tuple[Any, Any, Any]


class _Merging:
    """One merge, and the conflicts that it has met."""

    def __init__(self, take_mine: Container[str]) -> None:
        self.conflicts: list[MergeConflict] = []
        self._take_mine = take_mine

    def value(self, three: Three, path: str) -> Any:
        base, mine, theirs = three
        if theirs in (mine, base):
            return mine
        if mine == base:
            return theirs
        if isinstance(mine, Mapping) and isinstance(theirs, Mapping):
            return self._fields((base if isinstance(base, Mapping) else {}, mine, theirs), f"{path}.".lstrip("."))
        of_base, of_mine, of_theirs = map(_by_name, three)
        if of_base is not None and of_mine is not None and of_theirs is not None:
            return [*self._fields((of_base, of_mine, of_theirs), path, entries=True).values()]
        self.conflicts.append(MergeConflict(path, base, mine, theirs))
        return mine if path in self._take_mine else theirs

    def _fields(self, three: Three, above: str, *, entries: bool = False) -> dict[str, Any]:
        """In the order of theirs, mine behind. above: what stands before the names in their paths."""
        found = dict[str, Any]()
        _, mine, theirs = three
        for name in dict.fromkeys((*theirs, *mine)):
            base_of, mine_of, theirs_of = (one.get(name, MISSING) for one in three)
            value = self.value((base_of, mine_of, theirs_of), f"{above}[{name}]" if entries else f"{above}{name}")
            if value is not MISSING:
                found[name] = value
        return found


def _by_name(value: Any) -> dict[str, Any] | None:
    """A list's entries by what tells them apart; None for what is no such list."""
    if value is MISSING or not isinstance(value, Sequence) or isinstance(value, str):
        return None
    for name in NAMES:
        if all(isinstance(one, Mapping) and isinstance(one.get(name), str) for one in value):
            found = {one[name]: one for one in value}
            return found if len(found) == len(value) else None
    return None

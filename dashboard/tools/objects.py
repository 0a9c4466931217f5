"""What every object of the API has a page for: its history, and itself as YAML.

History is `?tab=history` of the object's page, with `&before=ENTRY` for earlier changes and `&open=REVISION`. Who and
when come from the audit trail, which keeps them for months; what changed comes from the documents of the log, as far
as it still has them (an hour, and the newest for as long as the object lives).

`/yaml/RESOURCE/NAME?ns=NAMESPACE` shows any object and edits it. A POST with `act=check` sends it the whole way of an
update, in a transaction that is rolled back, and shows the difference; `act=save` writes it, unless somebody has
written since it was opened. Then both changes are merged and shown, with the conflicts to choose from (`act=merge`
merges again, with other choices); only saving writes. A kind's status, and what the server keeps, are shown and not
edited.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Container, Mapping, Sequence
from dataclasses import dataclass, replace
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

from dashboard.kit import undo
from dashboard.kit.differences import (
    DiffLine,
    FieldChange,
    Finding,
    YamlProblem,
    at_paths,
    changed_fields,
    difference,
    dump,
    finding,
    lines_changed,
    place_of,
    read_yaml,
    written,
)
from dashboard.kit.guards import authorizes
from dashboard.kit.rendering import PageContext, render_page
from dashboard.templatetags.kit import counted, object_url, yaml_url
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
from manciple.wire.errors import ApiError, BadRequest, Conflict
from manciple.wire.quantity import whole
from manciple.wire.registry import Kind, Served, registry
from manciple.wire.resources import BUDGETS, CLAIMS, CLASSES, NAMESPACES, NODES, PODS, QUOTAS, TAINT_RULES, TEMPLATES

Document = dict[str, Any]


# Who did something ---------------------------------------------------------------------------------------------------

AuthorKind = Literal["person", "account", "node", "system", "manager", "nobody"]

_NODE, _ACCOUNT, _CONTROLLER = "system:node:", "system:serviceaccount:", "system:serviceaccount:kube-system:"
_NAMED = {
    f"{_CONTROLLER}resourcequota-controller": "Quota controller",
    "system:kube-scheduler": "Scheduler",
    "system:kube-controller-manager": "Controllers",
    "system:manciple": "Manciple itself",
    "system:anonymous": "Nobody signed in",
    "": "Unknown",
}


@dataclass(frozen=True, slots=True)
class Author:
    """A person, or a part of the system. name: the identity's, as the API has it.

    manager: of a copy from another cluster, the program that wrote the fields; whose request that was is not known.
    """

    name: str
    manager: str = ""

    @classmethod
    def of(cls, entry: Entry) -> Author:
        return cls(entry.username, manager="" if entry.username else events.note_of(entry).manager or "")

    @property
    def kind(self) -> AuthorKind:
        if self.manager:
            return "manager"
        if self.name in ("", "system:anonymous"):
            return "nobody"
        if self.name.startswith(_NODE):
            return "node"
        if self.name in _NAMED or self.name.startswith(_CONTROLLER):
            return "system"
        return "account" if self.name.startswith(_ACCOUNT) else "person"

    @property
    def label(self) -> str:
        if self.manager:
            return f"by {self.manager}"
        if self.name in _NAMED:
            return _NAMED[self.name]
        if self.name.startswith(_CONTROLLER):
            return self.name.removeprefix(_CONTROLLER).replace("-", " ").capitalize()
        if self.name.startswith(_NODE):
            return f"Agent of {self.name.removeprefix(_NODE)}"
        return self.name.removeprefix(_ACCOUNT).replace(":", "/", 1) if self.kind == "account" else self.name

    @property
    def initials(self) -> str:
        """Two letters of a person's name; "" for others, which have an icon."""
        return self.name[:2].upper() if self.kind == "person" else ""

    @property
    def icon(self) -> str:
        icons = {"node": "i-node", "account": "i-pod", "system": "i-over", "manager": "i-over", "nobody": "i-alert"}
        return icons.get(self.kind, "")


# History -------------------------------------------------------------------------------------------------------------

TAB = "history"
#: Changes on a page, and fields that the line of one names.
SHOWN, NAMED = 50, 3
#: Characters of documents that are compared line by line for one page: a kilobyte takes milliseconds.
COMPARED = 40_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectChange:
    """One write of one object.

    fields, lines: what changed; () if the log no longer has it (`known` is False), or if nothing that people write did.
    postponed: the documents are too long to compare all of them for one page; the lines come on request.
    """

    entry: Entry
    fields: tuple[FieldChange, ...] = ()
    lines: tuple[DiffLine, ...] = ()
    known: bool = False
    postponed: bool = False

    @property
    def revision(self) -> int:
        return self.entry.revision or 0

    @property
    def author(self) -> Author:
        return Author.of(self.entry)

    @property
    def through(self) -> Author | None:
        """Who acted in the author's name."""
        return Author(self.entry.impersonator) if self.entry.impersonator else None

    @property
    def agent(self) -> str:
        """The program."""
        return events.note_of(self.entry).user_agent

    @property
    def copied(self) -> bool:
        """It was there when the cluster was first copied, or first could be."""
        return self.entry.verb == "list"

    @property
    def found(self) -> bool:
        """A listing of another cluster showed it: when it happened is not known."""
        return events.note_of(self.entry).found

    @property
    def created(self) -> bool:
        return self.entry.code == CREATED and not self.copied

    @property
    def deleted(self) -> bool:
        return self.entry.verb in ("delete", "deletecollection")

    @property
    def named(self) -> tuple[str, ...]:
        """The fields that its line names."""
        return tuple(field.path for field in self.fields[:NAMED])

    @property
    def more(self) -> int:
        return max(0, len(self.fields) - NAMED)

    @property
    def did(self) -> str:
        """A verb that the fields follow."""
        if self.copied:
            return "wrote it last before it was first read"
        if self.created:
            return "created"
        if self.deleted:
            return "deleted"
        return {"eviction": "evicted", "binding": "bound to a node"}.get(self.entry.subresource, "changed")

    @property
    def note(self) -> str:
        """In the place of fields."""
        if self.created or self.copied or self.deleted or self.fields:
            return ""
        return "no changes that people make" if self.known else "something; the log no longer has what"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownHistory:
    """What `tools/history/changes.html` shows: changes, the newest first.

    before: the entry before which they begin, 0 for the newest; older: where the next page begins, 0 at the end;
    opened: the revision whose difference is shown; may_audit: whether the requests can be looked up; several: of more
    than one object, so that each is named.
    """

    changes: tuple[ObjectChange, ...]
    before: int = 0
    older: int = 0
    opened: int = 0
    several: bool = False
    may_audit: bool = False


def read_changes(
    uids: Collection[str], *, before: int = 0, opened: int = 0, shown: int = SHOWN, may_audit: bool = False
) -> ShownHistory:
    """What happened to the objects with these uids. A handful of queries, however much happened."""
    entries = searching.of_objects(uids, before=before, limit=shown + 1)
    states = read_states(entries[:shown])
    left, changes = COMPARED, list[ObjectChange]()
    for entry in entries[:shown]:
        compared = (states.get(entry.revision or 0), _state_before(entry, states))
        left -= sum(len(state.text) for state in compared if state)
        changes.append(change_of(entry, states, postponed=left < 0 and entry.revision != opened))
    return ShownHistory(
        changes=tuple(changes),
        before=before,
        older=entries[shown - 1].id if len(entries) > shown else 0,
        opened=opened,
        several=len(uids) > 1,
        may_audit=may_audit,
    )


def read_states(entries: Collection[Entry]) -> Mapping[int, PastState]:
    """By revision, the states that these writes made and superseded, as far as the log has them; of no confidential
    kinds.
    """
    confidential = {kind.resource for kind in registry if kind.confidential}
    revisions = {entry.revision for entry in entries if entry.revision and entry.resource not in confidential}
    made = history.states_at(revisions)
    superseded = {state.previous for state in made.values() if state.previous} - made.keys()
    return {**made, **history.states_at(superseded)}


def _state_before(entry: Entry, states: Mapping[int, PastState]) -> PastState | None:
    state = states.get(entry.revision or 0)
    return states.get(state.previous) if state and state.previous else None


def change_of(entry: Entry, states: Mapping[int, PastState], *, postponed: bool = False) -> ObjectChange:
    """What one write of an object did. postponed: leave the lines out."""
    state, before = states.get(entry.revision or 0), _state_before(entry, states)
    if state is None or not (before or entry.code == CREATED):
        return ObjectChange(entry=entry)
    old: Document = orjson.loads(before.text) if before else {}
    new: Document = orjson.loads(state.text)
    fields = changed_fields(old, new) if old else ()
    lines = () if postponed else difference(dump(written(old)) if old else "", dump(written(new)))
    return ObjectChange(entry=entry, fields=fields, lines=lines, known=True, postponed=postponed)


def asked(request: HttpRequest) -> bool:
    """Whether the address asks for an object's history."""
    return request.GET.get("tab") == TAB


def history_of(request: HttpRequest, uids: Collection[str], *, namespace: str = "") -> ShownHistory:
    before, opened = (whole(request.GET.get(name, "")) or 0 for name in ("before", "open"))
    return read_changes(uids, before=before, opened=opened, may_audit=person_of(request).may_audit(namespace))


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryPage:
    """A page that shows history alone. crumbs: (address, words) of the pages above it; word: "Node".

    url: of the object's page; topics: that touch the object; yaml: its address as YAML, "" without one.
    """

    place: str
    crumbs: tuple[tuple[str, str], ...]
    word: str
    name: str
    url: str
    topics: str
    yaml: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryContext(PageContext):
    page: HistoryPage
    history: ShownHistory


def show_history(
    request: HttpRequest, page: HistoryPage, uids: Collection[str], *, namespace: str = ""
) -> HttpResponse:
    """The history of an object whose page has no other parts."""
    revision, shown = latest_revision(), history_of(request, uids, namespace=namespace)
    context = HistoryContext(place=page.place, revision=revision, page=page, history=shown)
    return render_page(request, "tools/history/page.html", context)


# Merging -------------------------------------------------------------------------------------------------------------


class Absent(Enum):
    """Stands for a field that is not there."""

    MISSING = ""


MISSING: Final = Absent.MISSING
#: What distinguishes the entries of lists.
NAMES = ("name", "key")


@dataclass(frozen=True, slots=True)
class MergeConflict:
    """path: `spec.taint.value`, `spec.devices[gpu-0].taints`. base, mine, theirs: MISSING where it is not there."""

    path: str
    base: Any
    mine: Any
    theirs: Any


#: base, mine, theirs
Three = tuple[Any, Any, Any]


class Merge:
    """The documents of two people who changed the same `base`, merged.

    A field that one of them changed is as they left it. Lists whose entries have names are merged entry by entry. What
    both changed differently is a conflict: it stays as in `theirs`, unless `take_mine` has its path.
    """

    def __init__(self, base: Any, mine: Any, theirs: Any, *, take_mine: Container[str] = ()) -> None:
        self.conflicts: list[MergeConflict] = []
        self._take_mine = take_mine
        self.document = self._value((base, mine, theirs), "")

    def _value(self, three: Three, path: str) -> Any:
        base, mine, theirs = three
        if theirs in (mine, base):
            return mine
        if mine == base:
            return theirs
        if isinstance(mine, Mapping) and isinstance(theirs, Mapping):
            return self._fields((base if isinstance(base, Mapping) else {}, mine, theirs), f"{path}.".lstrip("."))
        by_name = [_by_name(one) for one in three]
        if all(entries is not None for entries in by_name):
            return [*self._fields((by_name[0], by_name[1], by_name[2]), path, entries=True).values()]
        self.conflicts.append(MergeConflict(path, base, mine, theirs))
        return mine if path in self._take_mine else theirs

    def _fields(self, three: Three, above: str, *, entries: bool = False) -> dict[str, Any]:
        """In the order of theirs, mine behind. above: the beginning of their paths."""
        merged = dict[str, Any]()
        _, mine, theirs = three
        for name in dict.fromkeys((*theirs, *mine)):
            base_of, mine_of, theirs_of = (one.get(name, MISSING) for one in three)
            value = self._value((base_of, mine_of, theirs_of), f"{above}[{name}]" if entries else f"{above}{name}")
            if value is not MISSING:
                merged[name] = value
        return merged


def _by_name(value: Any) -> dict[str, Any] | None:
    """A list's entries by their names; None for anything else."""
    if value is MISSING or not isinstance(value, Sequence) or isinstance(value, str):
        return None
    for name in NAMES:
        if all(isinstance(one, Mapping) and isinstance(one.get(name), str) for one in value):
            entries = {one[name]: one for one in value}
            return entries if len(entries) == len(value) else None
    return None


# An object as YAML ---------------------------------------------------------------------------------------------------

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
class ManifestAnswer:
    """What the page says to an edit. text, base, version: what the form goes on with.

    lines: what saving would change; meanwhile: what others have changed since it was opened. first_base, first_text:
    what was merged with that, to be merged again with other choices. choices: the conflicts, as YAML; taken: the paths
    of those where mine is kept; chosen: the person has said which.
    """

    text: str
    base: str
    version: str
    lines: Sequence[DiffLine] = ()
    meanwhile: Sequence[DiffLine] = ()
    choices: Sequence[MergeConflict] = ()
    taken: Sequence[str] = ()
    findings: Sequence[Finding] = ()
    checked: bool = False
    first_base: str = ""
    first_text: str = ""
    chosen: bool = False

    @property
    def title(self) -> str:
        """Of the bar with the buttons."""
        if self.lines:
            return counted(lines_changed(self.lines), "line changes", "lines change")
        return "Nothing would change" if self.checked else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestContext(PageContext):
    """status: what the server keeps, as YAML; page_url: of the object's page, "" without one."""

    opened: Opened
    answer: ManifestAnswer
    status: str
    page_url: str
    may_edit: bool


@authorizes
@require_http_methods(["GET", "HEAD", "POST"])
def edit_object(request: HttpRequest, resource: str, name: str) -> HttpResponse:
    """See the module's docstring."""
    namespace = request.GET.get("ns", "")
    person = demand_sight(request, namespace, name)
    revision, opened = latest_revision(), _open(person, resource, namespace, name)
    now = dump(opened.edited)
    answer = ManifestAnswer(text=now, base=now, version=opened.version)
    status = HTTPStatus.OK
    may_edit = person.may("update", resource, namespace)
    if request.method == "POST":
        if not may_edit:
            raise denied(request, f"change {resource.partition('.')[0]}", "update", resource, namespace)
        judged = _judge(request, opened, person)
        if judged is None:
            return redirect(yaml_url(resource, namespace, name))
        answer = judged
        if answer.meanwhile or answer.findings:
            status = HTTPStatus.CONFLICT if answer.meanwhile else HTTPStatus.UNPROCESSABLE_ENTITY
    document, edited = opened.whole, opened.edited["metadata"]
    kept = {key: value for key, value in document["metadata"].items() if key not in edited}
    of_server = {"metadata": kept} | ({"status": document["status"]} if document.get("status") else {})
    context = ManifestContext(
        place=PLACES.get(resource, ""),
        revision=revision,
        opened=opened,
        answer=answer,
        status=dump(of_server),
        page_url=object_url(resource, namespace, name),
        may_edit=may_edit,
    )
    return render_page(request, "tools/manifests/page.html", context, status=status)


def _open(person: Person, resource: str, namespace: str, name: str) -> Opened:
    """Raises: Http404, PermissionDenied."""
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
        raise Http404(f"{kind.kind} objects are not served: a feature gate or setting turned them off.")
    return Opened(kind=kind, served=served, namespace=namespace, name=name, stored=stored)


def _judge(request: HttpRequest, opened: Opened, person: Person) -> ManifestAnswer | None:
    """The answer to what was typed; None once it is saved."""
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
    """Raises: ApiError; Conflict if somebody wrote since."""
    saving = request.POST.get("act") == "save"
    after = _write(opened, mine, person, dry_run=not saving)
    if saving:
        before, title = objects.decode(opened.kind, opened.stored.text), f"{opened.kind.kind} {opened.name}"
        if before.metadata.resource_version == after.metadata.resource_version:
            messages.success(request, f"{title} already has this content; nothing was changed.")
        else:
            undo.offer(request, f"Saved {title}.", [undo.UndoStep.of(opened.kind, before, after)])
        return None
    now = dump(opened.edited)
    edited = written(opened.served.document(codec.to_builtins(after)))
    lines = difference(now, dump({key: value for key, value in edited.items() if key != "status"}))
    return ManifestAnswer(text=dump(mine), base=now, version=opened.version, lines=lines, checked=True)


def _read(text: str, opened: Opened) -> Document:
    """Raises: YamlProblem, also for another object's text."""
    document = read_yaml(text)
    if not isinstance(document, dict) or not isinstance(document.get("metadata"), dict):
        raise YamlProblem(finding(1, 1, f"A {opened.kind.kind} is a mapping with apiVersion, kind and metadata."))
    for field, wanted in (("name", opened.name), ("namespace", opened.namespace)):
        if document["metadata"].get(field, "") != wanted:
            message = f"The {field} stays {wanted}. Make a new object for another {field}."
            raise YamlProblem(finding(*place_of(text, f"metadata.{field}"), message))
    return document


def _write(opened: Opened, mine: Document, person: Person, *, dry_run: bool) -> Any:
    """The object as it would be stored, or is. Raises: ApiError; Conflict if somebody wrote since."""
    served, metadata = opened.served, {**mine["metadata"], "resourceVersion": opened.version}
    decoded = _decoded(opened, {**mine, "metadata": metadata})

    def complete(new: Any, old: Any) -> Any:
        kept = structs.replace(new.metadata, managed_fields=old.metadata.managed_fields)
        new = structs.replace(served.completed(new, old), metadata=kept)
        return structs.replace(new, status=old.status) if hasattr(old, "status") else new

    return verbs.update(
        opened.kind,
        decoded,
        namespace=opened.namespace,
        name=opened.name,
        identity=person.identity,
        dry_run=dry_run,
        complete=complete,
        documents=(served.to_storage(opened.edited), served.to_storage(mine)),
    ).object


def _decoded(opened: Opened, document: Document) -> Any:
    """The object that a text describes. What is stored of another cluster may have fields that our types do not know; a
    text brings none. Raises: BadRequest.
    """
    try:
        return decode_document(opened.served, document, strictness="Strict").object
    except BadRequest:
        lenient = decode_document(opened.served, document, strictness="Warn")
        known = decode_document(opened.served, opened.whole, strictness="Warn").warnings
        if not lenient.warnings or not set(lenient.warnings) <= set(known):
            raise
        return lenient.object


def _findings(text: str, refusal: ApiError) -> list[Finding]:
    causes = (refusal.details or {}).get("causes")
    if causes:
        return at_paths(text, causes)
    path = refusal.message.partition('unknown field "')[2].partition('"')[0]
    said = refusal.message.rpartition(": strict decoding error: ")[2]
    return [finding(*(place_of(text, path) if path else (0, 0)), said)]


def _merged(opened: Opened, base: Any, mine: Document, take_mine: Sequence[str]) -> ManifestAnswer:
    """Both changes; the form goes on from what is stored now."""

    def shown(value: Any) -> str:
        return "not there" if value is MISSING else dump(value).removesuffix("\n...")

    theirs = opened.edited
    merged = Merge(base, mine, theirs, take_mine=frozenset(take_mine))
    return ManifestAnswer(
        text=dump(merged.document),
        base=dump(theirs),
        version=opened.version,
        lines=difference(dump(theirs), dump(merged.document)),
        meanwhile=difference(dump(base), dump(theirs)),
        choices=[
            MergeConflict(one.path, shown(one.base), shown(one.mine), shown(one.theirs)) for one in merged.conflicts
        ],
        taken=take_mine,
        first_base=dump(base),
        first_text=dump(mine),
    )

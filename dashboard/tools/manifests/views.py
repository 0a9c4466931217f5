"""Any object of the API as YAML, for who may see it: `/yaml/RESOURCE/NAME`, `?ns=NAMESPACE`.

A POST checks (`act=check`): the object goes the whole way of an update, in a transaction that is rolled back, and the
page shows the difference. `act=save` writes it, on condition that nobody has written since it was opened. If somebody
has, what both made of it is merged (`merging`) and shown, with the fields that both changed to choose from (`act=merge`
merges again, so chosen); only saving that writes. A kind's status, and what the server keeps, are shown and not edited.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_http_methods
from msgspec import structs

from dashboard.inventory.classes.diagnostics import Finding, YamlProblem, at_paths, place_of, read_yaml
from dashboard.kit import links, undo
from dashboard.kit.differences import DiffLine, difference, dump, lines_changed, written
from dashboard.kit.rendering import PageContext, render_page
from dashboard.kit.rights import authorizes
from dashboard.tools.manifests.merging import MISSING, MergeConflict, merge
from manciple.api import verbs
from manciple.api.requests import decode_document
from manciple.people import Person, demand_sight, denied
from manciple.store import objects
from manciple.store.event_log import latest_revision
from manciple.store.records import Stored
from manciple.wire import codec
from manciple.wire.errors import ApiError, Conflict
from manciple.wire.registry import Kind, Served, registry
from manciple.wire.resources import BUDGETS, CLAIMS, CLASSES, NAMESPACES, NODES, PODS, QUOTAS, TAINT_RULES, TEMPLATES

#: resource -> the entry of the navigation that it is below
PLACES = {
    **{PODS: "pods", CLAIMS: "claims", TEMPLATES: "claims", CLASSES: "classes", NODES: "nodes", QUOTAS: "quotas"},
    **{NAMESPACES: "nodes", TAINT_RULES: "devices", BUDGETS: "namespaces"},
}
Document = dict[str, Any]


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

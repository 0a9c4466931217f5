"""YAML of several documents as objects of the API, and what is wrong with them where it stands in the text.

A text goes the way of `kubectl apply`: decoded strictly in the version that it names, prepared, validated, admitted; in
a transaction that is rolled back. Findings are those that static/manciple/kit/editor.js draws, counted from line 1.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from msgspec import structs

from claims.models import Claim
from dashboard.kit.differences import Finding, YamlProblem, place_of, read_yaml
from inventory.models import DeviceClass, Node
from manciple.api import verbs
from manciple.api.requests import decode_document
from manciple.people import Person
from manciple.store import objects
from manciple.store.history import namespaces_with
from manciple.wire.base import ApiObject
from manciple.wire.errors import ApiError
from manciple.wire.registry import Kind, Served, registry
from manciple.wire.resources import CLAIMS, NAMESPACES, PODS, TEMPLATES, kind
from manciple.wire.schema import ServedKind, components

#: Characters of a text, and documents in it, that are read.
LONGEST, MOST = 256 * 1024, 50
#: What can be written here, in the order in which it is created: pods last.
RESOURCES = (TEMPLATES, CLAIMS, PODS)

_DIVIDER = re.compile(r"^---(\s.*)?$")
_FIELD = re.compile(r'(?:unknown|duplicate) field "([^"]+)"|into field (\S+) of|^(\S+): parsing time|`\$\.(\S+)`')
_PREFIX = re.compile(r'^.* in version "[^"]*" cannot be handled as a \w+: (?:strict decoding error: )?')
_GO = re.compile(r"json: cannot unmarshal (\w+) into field \S+ of type (\w+)")


@dataclass(frozen=True, slots=True)
class DocumentProblem:
    """One thing that is wrong. field: the API's path in the object, "" for all of it."""

    kind: str
    field: str
    message: str
    line: int
    column: int

    @property
    def finding(self) -> Finding:
        return Finding(line=self.line, column=self.column, severity="error", message=self.message)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodDocument:
    """One object with the text it was read from. before: the lines above that text."""

    kind: Kind
    object: ApiObject
    text: str
    before: int

    def problem(self, path: str, message: str) -> DocumentProblem:
        line, column = place_of(self.text, path)
        return DocumentProblem(self.kind.kind, path, message, line + self.before, column)


@dataclass(slots=True)
class Reading:
    """What a text says. `documents` in the order of the text, those that could be read."""

    documents: list[PodDocument] = field(default_factory=list)
    problems: list[DocumentProblem] = field(default_factory=list)

    @property
    def objects(self) -> list[ApiObject]:
        return [one.object for one in self.documents]

    @property
    def findings(self) -> list[Finding]:
        return [one.finding for one in sorted(self.problems, key=lambda one: (one.line, one.column))]


def read(text: str, *, namespace: str = "") -> Reading:
    """namespace: of objects that name none."""
    found = Reading()
    if len(text) > LONGEST:
        found.problems.append(
            DocumentProblem("", "", f"The text is too long: at most {LONGEST // 1024} KiB are read.", 1, 1)
        )
        return found
    parts = [(before, part) for before, part in _parts(text) if not _is_blank(part)]
    if len(parts) > MOST:
        found.problems.append(DocumentProblem("", "", f"At most {MOST} documents are read at a time.", 1, 1))
        return found
    for before, part in parts:
        _read_one(part, before, namespace, found)
    return found


def _parts(text: str) -> Iterator[tuple[int, str]]:
    """(lines above, text) of each document."""
    start, lines = 0, text.split("\n")
    for number, line in enumerate(lines):
        if _DIVIDER.match(line):
            yield start, "\n".join(lines[start:number])
            start = number + 1
    yield start, "\n".join(lines[start:])


def _is_blank(part: str) -> bool:
    return all(not line.strip() or line.lstrip().startswith("#") for line in part.split("\n"))


def _read_one(part: str, before: int, namespace: str, found: Reading) -> None:
    try:
        value = read_yaml(part)
    except YamlProblem as problem:
        at = problem.finding
        found.problems.append(DocumentProblem("", "", at["message"], at["line"] + before, at["column"]))
        return
    served = _served(value)
    if isinstance(served, str):
        line, column = place_of(part, "kind" if isinstance(value, dict) and "kind" in value else "")
        found.problems.append(DocumentProblem("", "kind", served, line + before, column))
        return
    try:
        decoded: Any = decode_document(served, value, strictness="Strict").object
    except ApiError as refusal:
        unread = PodDocument(kind=served.kind, object=ApiObject(), text=part, before=before)
        found.problems.extend(_decoding(unread, refusal.message))
        return
    if namespace and not decoded.metadata.namespace:
        decoded = structs.replace(decoded, metadata=structs.replace(decoded.metadata, namespace=namespace))
    found.documents.append(PodDocument(kind=served.kind, object=decoded, text=part, before=before))


def _served(value: Any) -> Served | str:
    """What a document is; else what to say of it."""
    if not isinstance(value, dict):
        return "An object is a mapping with apiVersion, kind, metadata and spec."
    api_version, name = value.get("apiVersion", ""), value.get("kind", "")
    kinds = [kind(resource) for resource in RESOURCES]
    for one in kinds:
        for served in registry.versions_of(one):
            if (served.api_version, one.kind) == (api_version, name):
                return served
    known = next((one for one in kinds if one.kind == name), None)
    if known is not None:
        return f"A {name} has apiVersion {known.api_version}."
    wanted = ", ".join(one.kind for one in kinds[:-1])
    return f"{f'A {name} cannot be created here. ' if name else ''}Write the kind: {wanted} or {kinds[-1].kind}."


def _decoding(document: PodDocument, message: str) -> Iterator[DocumentProblem]:
    """What the decoder says, one by one where it says several things."""
    rest = _PREFIX.sub("", message)
    for part in re.split(r", (?=unknown field|duplicate field|json: |\S+: parsing time)", rest):
        named = _FIELD.search(part)
        path = next(filter(None, named.groups()), "") if named else ""
        yield document.problem(path, _plain(part, path))


def _plain(text: str, path: str) -> str:
    """The decoder's words as a person would say them."""
    last = path.rpartition(".")[2]
    if text.startswith("unknown field"):
        return f"{last} is not a field of this; Ctrl-Space lists the fields that are allowed here."
    if text.startswith("duplicate field"):
        return f"{last} is set twice here."
    if found := _GO.search(text):
        return f"{last or 'This'} must be of type {found[2]}, not {found[1]}."
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith('.') else '.'}"


# What the API says ---------------------------------------------------------------------------------------------------


def validate(found: Reading) -> None:
    """Adds what the rules of each kind have against it; names that are missing are made up first."""
    for document in found.documents:
        wanted: Any = document.kind.prepare_create(document.object)
        for error in document.kind.validate_create(wanted):
            found.problems.append(document.problem(error.field, f"{error.field}: {error.body}"))


def rehearse(found: Reading, person: Person) -> None:
    """Adds what the API would say to creating it all; nothing is stored."""
    seen: set[tuple[str, str, str]] = set()
    for document in found.documents:
        meta = document.object.metadata
        key = (document.kind.resource, meta.namespace, meta.name)
        if problem := _forbidden(document, person):
            found.problems.append(problem)
        elif meta.name and key in seen:
            found.problems.append(document.problem("metadata.name", f"{meta.name} is already defined above."))
        else:
            seen.add(key)
            found.problems.extend(_try(document, person))


def _forbidden(document: PodDocument, person: Person) -> DocumentProblem | None:
    namespace = document.object.metadata.namespace
    if not namespace:
        return document.problem("metadata", "Name a namespace here, or choose one above.")
    if not person.may_edit(namespace):
        return document.problem("metadata.namespace", f"You may not create anything in namespace {namespace}.")
    return None


def _try(document: PodDocument, person: Person) -> list[DocumentProblem]:
    namespace = document.object.metadata.namespace
    try:
        verbs.create(document.kind, document.object, namespace=namespace, identity=person.identity, dry_run=True)
    except ApiError as refusal:
        return list(refused(document, refusal))
    return []


def create_all(documents: Sequence[PodDocument], person: Person) -> tuple[list[ApiObject], list[DocumentProblem]]:
    """Create templates, then claims, then pods, up to the first that is refused: (what was made, why it stopped)."""
    made: list[ApiObject] = []
    for document in _in_order(documents):
        try:
            made.append(
                verbs.create(
                    document.kind,
                    document.object,
                    namespace=document.object.metadata.namespace,
                    identity=person.identity,
                )
            )
        except ApiError as refusal:
            return made, list(refused(document, refusal))
    return made, []


def _in_order(documents: Iterable[PodDocument]) -> list[PodDocument]:
    return sorted(documents, key=lambda one: RESOURCES.index(one.kind.resource))


def refused(document: PodDocument, refusal: ApiError) -> Iterator[DocumentProblem]:
    """What the API says against a document, cause by cause."""
    causes = (refusal.details or {}).get("causes") or []
    for cause in causes:
        path = cause.get("field", "")
        yield document.problem(path, f"{path}: {cause.get('message', '')}")
    if causes:
        return
    meta = document.object.metadata
    if refusal.reason == "AlreadyExists":
        text = f"A {document.kind.kind} {meta.name} exists already in namespace {meta.namespace}. Choose another name."
        yield document.problem("metadata.name", text)
    elif refusal.reason == "NotFound":
        yield document.problem("metadata.namespace", f"Namespace {meta.namespace} does not exist.")
    else:
        yield document.problem("", f"{refusal.message[:1].upper()}{refusal.message[1:]}.")


# What may stand where: keys from the types, values that exist --------------------------------------------------------


#: How deep the keys are told, and how much of a description.
DEEPEST, LONGEST_TEXT = 9, 160
#: Names of one kind that are suggested.
NAMES = 500

Option = dict[str, str]

#: Fields that take one of a few words, whatever the path before them.
_WORDS: Mapping[str, tuple[str, ...]] = {
    "allocationMode": ("ExactCount", "All"),
    "restartPolicy": ("Always", "OnFailure", "Never"),
    "imagePullPolicy": ("Always", "IfNotPresent", "Never"),
    "tolerations.operator": ("Exists", "Equal"),
    "tolerations.effect": ("NoSchedule", "PreferNoSchedule", "NoExecute"),
    "matchExpressions.operator": ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"),
    "matchAttribute": ("resource.kubernetes.io/pcieRoot",),
}


def table(person: Person) -> dict[str, Any]:
    """The keys, and the values that this person may know of."""
    return {"keys": {"": _kinds_keys(), **_keys()}, "values": _values(person)}


def _kinds_keys() -> list[Option]:
    return [{"label": name} for name in ("apiVersion", "kind", "metadata", "spec")]


@cache
def _keys() -> dict[str, list[Option]]:
    """`Kind/path` -> what may stand there."""
    found: dict[str, list[Option]] = {}
    for one in map(kind, RESOURCES):
        served = ServedKind(one.group, one.version, one.kind, one.type)
        schemas = components([served])
        for path, properties in _walk(schemas, schemas[served.name], "", 0):
            if path:
                found[f"{one.kind}/{path}"] = [_option(name, schema) for name, schema in properties.items()]
    return found


def _walk(
    schemas: Mapping[str, Any], schema: Mapping[str, Any], path: str, depth: int
) -> Iterator[tuple[str, dict[str, Any]]]:
    """(path, properties) of the mappings in a schema; what the server writes is left out."""
    properties = {name: one for name, one in schema.get("properties", {}).items() if path or name != "status"}
    if path == "metadata":
        wanted = ("name", "generateName", "namespace", "labels", "annotations")
        properties = {name: properties[name] for name in wanted}
    if properties:
        yield path, properties
    for name, one in properties.items():
        inner = _resolved(schemas, one)
        if depth < DEEPEST and inner.get("properties"):
            yield from _walk(schemas, inner, f"{path}.{name}" if path else name, depth + 1)


def _resolved(schemas: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """A property's schema, or that of its entries."""
    if schema.get("type") == "array":
        schema = schema["items"]
    reference = schema.get("$ref") or next((one.get("$ref") for one in schema.get("allOf", ())), None)
    return schemas[reference.rpartition("/")[2]] if reference else schema


def _option(name: str, schema: Mapping[str, Any]) -> Option:
    text = str(schema.get("description", ""))
    detail = str(schema.get("type", "object" if "allOf" in schema or "$ref" in schema else ""))
    found = {"label": name, "detail": {"array": "list"}.get(detail, detail)}
    return found | ({"info": text[:LONGEST_TEXT]} if text else {})


# Values --------------------------------------------------------------------------------------------------------------


def _values(person: Person) -> dict[str, list[str]]:
    claims = list(Claim.objects.restrict(person).order_by("name").values_list("name", flat=True)[:NAMES])
    classes = list(DeviceClass.objects.order_by("name").values_list("name", flat=True)[:NAMES])
    nodes = list(Node.objects.order_by("name").values_list("name", flat=True)[:NAMES])
    found = {
        "kind": [kind(one).kind for one in RESOURCES],
        "apiVersion": sorted({kind(one).api_version for one in RESOURCES}),
        "metadata.namespace": editable_namespaces(person),
        "spec.nodeName": nodes,
        "spec.resourceClaims.resourceClaimName": claims,
        "spec.resourceClaims.resourceClaimTemplateName": sorted({name for _, name in templates(person)}),
    }
    for path, name, words in _words():
        found[path] = classes if name == "deviceClassName" else list(words)
    return found


@cache
def _words() -> tuple[tuple[str, str, tuple[str, ...]], ...]:
    """(path, field, words) of the fields that take one of a few values, or a class."""
    found = []
    for path, options in _keys().items():
        for option in options:
            name = option["label"]
            full = f"{path}.{name}"
            words = next((words for end, words in _WORDS.items() if f".{full}".endswith(f".{end}")), ())
            if words or name == "deviceClassName":
                found.append((full, name, words))
    return tuple(found)


def editable_namespaces(person: Person) -> list[str]:
    """Where the person may make something."""
    names: Iterable[str] = (one.name for one in objects.list(kind(NAMESPACES)).items)
    return [name for name in names if person.may_edit(name)]


def templates(person: Person) -> list[tuple[str, str]]:
    """(namespace, name) of the templates that the person sees."""
    seen = [name for name in namespaces_with(TEMPLATES) if person.sees(name)]
    return [(name, one.name) for name in seen for one in objects.list(kind(TEMPLATES), namespace=name).items][:NAMES]

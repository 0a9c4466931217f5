"""Pods as people write them: a form, YAML of several documents with what is wrong with it, and examples.

A text goes the way of `kubectl apply`: decoded strictly in the version that it names, prepared, validated, admitted, in
a transaction that is rolled back. Findings are those that static/manciple/kit/editor.js draws, counted from line 1.

The form has the YAML beside it (`composer`). It takes devices from an existing template, or creates one beside the pod,
so that the claim comes and goes with the pod.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import groupby
from textwrap import indent
from typing import Any, cast

from django import forms
from msgspec import structs

from claims.admission import VOLUME_PREFIX
from claims.kinds.pod_strategy import EVICTION_TOLERATION_SECONDS, NODE_TROUBLES
from claims.kinds.pods import Pod
from claims.kinds.resource_claims import ResourceClaimTemplate, ResourceClaimTemplateSpec
from claims.models import Claim
from dashboard.kit.differences import (
    Finding,
    YamlProblem,
    divided,
    finding,
    has_content,
    place_of,
    read_yaml,
    written,
)
from dashboard.kit.forms import PageForm, code_area, code_input, plain
from dashboard.workloads.pods import composer
from dashboard.workloads.pods.composer import Composed
from insight.class_traits import PLACES, ClassTraits
from inventory.models import DeviceClass, Node
from manciple.api import verbs
from manciple.api.requests import decode_document
from manciple.people import Person
from manciple.store import objects
from manciple.store.history import namespaces_with
from manciple.store.objects import decoded
from manciple.wire import codec
from manciple.wire.base import ApiObject
from manciple.wire.errors import ApiError
from manciple.wire.quantity import ZERO, Quantity, whole
from manciple.wire.registry import Kind, Served, registry
from manciple.wire.resources import CLAIMS, NAMESPACES, PODS, TEMPLATES, kind
from manciple.wire.schema import ServedKind, components
from manciple.wire.validation import DEVICE_CLASS_RESOURCE_PREFIX, DNS_SUBDOMAIN_MAX
from scheduling.allocator.problem import MAX_RESULTS
from workloads.kinds.jobs import JOB, MOST_INT32, Job
from workloads.kinds.templates import pod_of

#: Characters of a text, and documents in it, that are read.
LONGEST, MOST = 256 * 1024, 50
#: What can be written here, in the order in which it is created: pods and Jobs last.
RESOURCES = (TEMPLATES, CLAIMS, PODS, JOB.resource)


_FIELD = re.compile(r'(?:unknown|duplicate) field "([^"]+)"|into field (\S+) of|^(\S+): parsing time|`\$\.(\S+)`')
_PREFIX = re.compile(r'^.* in version "[^"]*" cannot be handled as a \w+: (?:strict decoding error: )?')
_GO = re.compile(r"json: cannot unmarshal (\w+) into field \S+ of type (\w+)")


@dataclass(frozen=True, slots=True)
class DocumentProblem:
    """One thing that is wrong. field: the API's path in the object, "" for all of it."""

    kind: str
    field: str
    message: str
    line: int = 1
    column: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PodDocument:
    """One object with the text it was read from. before: the lines above that text."""

    kind: Kind
    object: ApiObject
    text: str
    before: int

    def problem(self, path: str, message: str) -> DocumentProblem:
        line, column = place_of(self.text, path)
        return DocumentProblem(self.kind.kind, path, plain(message), line + self.before, column)


@dataclass(slots=True)
class Reading:
    """The content of a text: the documents that could be read, in its order, and the problems."""

    documents: list[PodDocument] = field(default_factory=list)
    problems: list[DocumentProblem] = field(default_factory=list)
    reused: list[PodDocument] = field(default_factory=list)  # templates that exist, so that they are not created

    @property
    def objects(self) -> list[ApiObject]:
        return [one.object for one in self.documents]

    @property
    def rehearsable(self) -> list[ApiObject]:
        """As they would be stored; of a Job its first pod."""
        prepared = [one.kind.prepare_create(one.object) for one in self.documents]
        return [_first_pod(one) if isinstance(one, Job) else one for one in prepared]

    @property
    def findings(self) -> list[Finding]:
        return [
            finding(one.line, one.column, one.message)
            for one in sorted(self.problems, key=lambda one: (one.line, one.column))
        ]


def _first_pod(job: Job) -> ApiObject:
    pod = pod_of(job.spec.template, job)
    metadata = structs.replace(pod.metadata, name=f"{job.metadata.name}-0", generate_name="")
    prepared: ApiObject = kind(PODS).prepare_create(structs.replace(pod, metadata=metadata))
    return prepared


def read(text: str, *, namespace: str = "") -> Reading:
    """namespace: of objects that name none."""
    reading = Reading()
    if len(text) > LONGEST:
        message = f"The text is too long: at most {LONGEST // 1024} KiB are read."
        reading.problems.append(DocumentProblem("", "", message))
        return reading
    parts = [(before, part) for before, part in divided(text) if has_content(part)]
    if len(parts) > MOST:
        reading.problems.append(DocumentProblem("", "", f"At most {MOST} documents are read at a time."))
        return reading
    for before, part in parts:
        _read_document(part, before, namespace, reading)
    return reading


def _read_document(text: str, before: int, namespace: str, reading: Reading) -> None:
    try:
        value = read_yaml(text)
    except YamlProblem as problem:
        at = problem.finding
        reading.problems.append(DocumentProblem("", "", at["message"], at["line"] + before, at["column"]))
        return
    served = _served(value)
    if isinstance(served, str):
        line, column = place_of(text, "kind" if isinstance(value, dict) and "kind" in value else "")
        reading.problems.append(DocumentProblem("", "kind", served, line + before, column))
        return
    try:
        decoded: Any = decode_document(served, value, strictness="Strict").object
    except ApiError as refusal:
        unread = PodDocument(kind=served.kind, object=ApiObject(), text=text, before=before)
        rest = _PREFIX.sub("", refusal.message)
        for part in re.split(r", (?=unknown field|duplicate field|json: |\S+: parsing time)", rest):
            named = _FIELD.search(part)
            path = next(filter(None, named.groups()), "") if named else ""
            reading.problems.append(unread.problem(path, _plain(part, path)))
        return
    if namespace and not decoded.metadata.namespace:
        decoded = structs.replace(decoded, metadata=structs.replace(decoded.metadata, namespace=namespace))
    reading.documents.append(PodDocument(kind=served.kind, object=decoded, text=text, before=before))


def _served(value: Any) -> Served | str:
    """The kind and version of a document; else what is wrong with it."""
    if not isinstance(value, dict):
        return "An object is a mapping with apiVersion, kind, metadata and spec."
    api_version, name = value.get("apiVersion", ""), value.get("kind", "")
    kinds = [kind(resource) for resource in RESOURCES]
    for one in kinds:
        for served in registry.versions_of(one):
            if (served.api_version, one.kind) == (api_version, name):
                return served
    for one in kinds:
        if one.kind == name:
            return f"A {name} has apiVersion {one.api_version}."
    wanted = ", ".join(one.kind for one in kinds[:-1])
    return f"{f'A {name} cannot be created here. ' if name else ''}Write the kind: {wanted} or {kinds[-1].kind}."


def _plain(text: str, path: str) -> str:
    last = path.rpartition(".")[2]
    if text.startswith("unknown field"):
        return f"{last} is not a field here; Ctrl-Space lists them."
    if text.startswith("duplicate field"):
        return f"{last} is set twice here."
    if types := _GO.search(text):
        return f"{last or 'This'} must be of type {types[2]}, not {types[1]}."
    first = text[:1] if path and text.startswith(path) else text[:1].upper()
    return f"{first}{text[1:]}{'' if text.endswith('.') else '.'}"


def validate(reading: Reading) -> None:
    """Adds the errors of each kind's rules; missing names are generated first."""
    for document in reading.documents:
        prepared: Any = document.kind.identified(document.kind.prepare_create(document.object))
        for error in document.kind.validate_create(prepared):
            reading.problems.append(document.problem(error.field, f"{error.field}: {error.body}"))


def check(text: str, namespace: str, person: Person) -> Reading:
    """The text with all that the API would refuse in creating it; nothing is stored."""
    reading = read(text, namespace=namespace)
    if not reading.documents and not reading.problems:
        reading.problems.append(DocumentProblem("", "", "Write a Pod, or start with an example."))
    seen: set[tuple[str, str, str]] = set()
    for document in reading.documents:
        meta = document.object.metadata
        key = (document.kind.resource, meta.namespace, meta.name)
        if not meta.namespace:
            reading.problems.append(document.problem("metadata", "Name a namespace here, or choose one above."))
        elif what := _not_allowed(document, person):
            message = f"You may not create {what} in namespace {meta.namespace}."
            reading.problems.append(document.problem("metadata.namespace", message))
        elif meta.name and key in seen:
            reading.problems.append(document.problem("metadata.name", f"{meta.name} is already defined above."))
        else:
            seen.add(key)
            try:
                _create(document, person, dry_run=True)
            except ApiError as refusal:
                if refusal.reason == "AlreadyExists" and _is_stored(document):
                    reading.reused.append(document)
                else:
                    reading.problems.extend(_refused(document, refusal))
    for document in reading.reused:
        if len(reading.documents) > 1:
            reading.documents.remove(document)
        else:
            name = document.object.metadata.name
            reading.problems.append(document.problem("metadata.name", f"{name} exists already, with the same content."))
    return reading


def _not_allowed(document: PodDocument, person: Person) -> str:
    """What the person may not create in its namespace; "" where they may create the document."""
    namespace = document.object.metadata.namespace
    if not person.may_edit(namespace):
        return "anything"
    return "" if person.may("create", document.kind.resource, namespace) else f"a {document.kind.kind}"


def _is_stored(document: PodDocument) -> bool:
    """Whether it is a template that exists with the same content: `kubectl apply` would leave it as it is."""
    meta = document.object.metadata
    stored = objects.get(document.kind, meta.namespace, meta.name)
    if document.kind.resource != TEMPLATES or stored is None:
        return False
    wanted = cast("ResourceClaimTemplate", document.kind.prepare_create(document.object))
    return decoded(stored, ResourceClaimTemplate).spec == wanted.spec


def create_all(documents: Iterable[PodDocument], person: Person) -> tuple[list[ApiObject], list[DocumentProblem]]:
    """Create templates, then claims, then pods, up to the first refusal: (what was created, why it stopped)."""
    created: list[ApiObject] = []
    for document in sorted(documents, key=lambda one: RESOURCES.index(one.kind.resource)):
        try:
            created.append(_create(document, person))
        except ApiError as refusal:
            return created, list(_refused(document, refusal))
    return created, []


def _create(document: PodDocument, person: Person, *, dry_run: bool = False) -> ApiObject:
    namespace = document.object.metadata.namespace
    created: ApiObject = verbs.create(
        document.kind, document.object, namespace=namespace, identity=person.identity, dry_run=dry_run
    )
    return created


def _refused(document: PodDocument, refusal: ApiError) -> Iterator[DocumentProblem]:
    """What the API says against a document, cause by cause; and, which it would say next, that its name is taken."""
    causes, meta = (refusal.details or {}).get("causes") or [], document.object.metadata
    for cause in causes:
        path = cause.get("field", "")
        yield document.problem(path, f"{path}: {cause.get('message', '')}")
    is_taken = refusal.reason == "AlreadyExists"
    if causes:
        is_taken = document.kind.resource != TEMPLATES and bool(objects.get(document.kind, meta.namespace, meta.name))
    if is_taken:
        text = f"A {document.kind.kind} {meta.name} exists already in namespace {meta.namespace}. Choose another name."
        yield document.problem("metadata.name", text)
    elif causes:
        return
    elif refusal.reason == "NotFound":
        yield document.problem("metadata.namespace", f"Namespace {meta.namespace} does not exist.")
    else:
        yield document.problem("", f"{refusal.message[:1].upper()}{refusal.message[1:]}.")


def editable_namespaces(person: Person) -> list[str]:
    """Where the person may create something."""
    names: Iterable[str] = (one.name for one in objects.list(kind(NAMESPACES)).items)
    return [name for name in names if person.may_edit(name)]


def templates(person: Person) -> list[tuple[str, str]]:
    """(namespace, name) of the templates that the person sees."""
    seen = [name for name in namespaces_with(TEMPLATES) if person.sees(name)]
    return [(name, one.name) for name in seen for one in objects.list(kind(TEMPLATES), namespace=name).items][:NAMES]


#: field of the form -> its name in what a browser sends
_SENT_AS = {"device_class": "class"}
#: class -> what its devices publish; None where that is not known
Traits = Callable[[str], ClassTraits | None]
_NO_SOURCE = "Choose where the devices come from."


class PodForm(PageForm):
    ids = "f-%s"
    use_required_attribute = False  # the page names what is missing beside each field; "Continue as YAML" needs nothing

    kind = forms.ChoiceField(
        required=False, choices=[(composer.POD, "Pod"), (composer.JOB, "Job")], widget=forms.Select({"class": "input"})
    )
    parallelism = forms.CharField(
        required=False, label="Pods at a time", widget=code_input("1"), help_text="of a Job; 1 by default"
    )
    completions = forms.CharField(
        required=False, label="Completions", widget=code_input("1"), help_text="of a Job: pods that must succeed"
    )
    completion_mode = forms.CharField(
        required=False, label="Which pods", widget=forms.Select({"class": "input"}), help_text="of a Job"
    )
    backoff_limit = forms.CharField(
        required=False, label="Failures allowed", widget=code_input("6"), help_text="of a Job; 6 by default"
    )
    time_limit = forms.CharField(
        required=False, label="Time limit", widget=code_input("12h"), help_text="optional, such as 90m; waiting counts"
    )
    name = forms.CharField(widget=code_input("trainer"), error_messages={"required": "Give it a name."})
    namespace = forms.CharField(
        widget=forms.Select({"class": "input"}), error_messages={"required": "Choose a namespace."}
    )
    image = forms.CharField(
        widget=code_input("registry.example.org/team/trainer:1.0"),
        error_messages={"required": "Name the image that the container runs."},
    )
    command = forms.CharField(
        required=False,
        widget=code_input("python train.py --epochs 3"),
        help_text="optional; the default is the image's",
    )
    cpu = forms.CharField(label="CPU", required=False, widget=code_input("2"), help_text="optional")
    memory = forms.CharField(required=False, widget=code_input("8Gi"), help_text="optional")
    tolerations = forms.CharField(required=False, widget=code_area("key=value:NoSchedule", rows=2))
    devices = forms.ChoiceField(
        choices=[(one, one) for one in composer.SOURCES],
        initial=composer.CLASS,
        error_messages={"required": _NO_SOURCE, "invalid_choice": _NO_SOURCE},
    )
    device_class = forms.CharField(required=False, label="Class", widget=forms.Select({"class": "input"}))
    model = forms.CharField(required=False, widget=forms.Select({"class": "input"}))
    count = forms.CharField(
        required=False,
        label="Number",
        initial="1",
        widget=forms.NumberInput({"class": "input", "min": "1", "max": str(MAX_RESULTS)}),
    )
    together = forms.CharField(required=False, widget=forms.Select({"class": "input"}))
    least = forms.CharField(required=False, widget=code_input("40Gi"))
    share = forms.CharField(required=False, widget=code_input("10Gi"))
    share_of = forms.CharField(required=False, widget=forms.Select({"class": "input"}))
    device_tolerations = forms.CharField(required=False, widget=code_area("key=value:NoSchedule", rows=2))
    resource = forms.CharField(required=False, widget=forms.Select({"class": "input"}))
    amount = forms.CharField(
        required=False, label="Number", initial="1", widget=forms.NumberInput({"class": "input", "min": "1"})
    )
    template = forms.CharField(required=False, widget=forms.Select({"class": "input"}))

    #: The YAML beside it, and whether its template exists already with the same content.
    composed: Composed | None = None
    reuses_template: bool = False
    #: class -> what its devices publish
    traits: Traits = staticmethod(lambda _: None)

    @classmethod
    def of(cls, composed: Composed, *, bound: bool = True) -> PodForm:
        form = cls({_SENT_AS.get(name, name): value for name, value in composed.values.items()} if bound else None)
        if not bound:
            form.initial = dict(composed.values)
        form.composed = composed
        return form

    @property
    def follows(self) -> bool:
        """Whether it shows what the YAML says."""
        return self.composed is None or not self.composed.problem

    def add_prefix(self, field_name: str) -> str:
        return super().add_prefix(_SENT_AS.get(field_name, field_name))

    #: fields that a Pod does not have
    of_job = composer.OF_JOB

    @property
    def of_pod(self) -> list[forms.BoundField]:
        """The fields that do not choose its devices."""
        names = ("kind", "name", "namespace", "image", "command", "cpu", "memory", "time_limit")
        return [self[name] for name in (*names, "completions", "parallelism", "completion_mode", "backoff_limit")]

    def offer(self, offers: FormOffers) -> None:
        """What may be chosen, with what is chosen already."""
        by_namespace = groupby(offers.templates, key=lambda one: one[0])
        chosen: Mapping[str, Sequence[tuple[str, Any]]] = {
            "kind": [(composer.POD, "Pod"), *([(composer.JOB, "Job")] if offers.jobs else [])],
            "namespace": [(one, one) for one in offers.namespaces],
            "template": [
                ("", "Choose a template"),
                *((namespace, [(name, name) for _, name in group]) for namespace, group in by_namespace),
            ],
            "model": [("", "Any model"), *offers.models],
            "together": [("", "Anywhere on the node"), *offers.places],
            "share_of": [("", "Of what"), *((one, one) for one in offers.shares)],
            "resource": [("", "Choose a resource"), *offers.resources],
            "completion_mode": [(composer.ALIKE, "Any that succeed count"), (composer.INDEXED, "One for each index")],
        }
        for name, choices in chosen.items():
            known = {value for value, label in choices if isinstance(label, str)}
            known |= {value for _, group in choices if not isinstance(group, str) for value, _ in group}
            now = self.text(name)
            more = [] if not now or now in known else [(now, now)]
            cast("forms.Select", self.fields[name].widget).choices = [*choices, *more]

    def clean_time_limit(self) -> str:
        text = self.text("time_limit")
        if text and not composer.seconds_of(text):
            raise forms.ValidationError("Write a time such as 90m, 2h or 1d12h.")
        return text

    def clean_parallelism(self) -> str:
        return self._number_of_job("parallelism")

    def clean_completions(self) -> str:
        return self._number_of_job("completions")

    def clean_backoff_limit(self) -> str:
        return self._number_of_job("backoff_limit")

    def _number_of_job(self, name: str) -> str:
        text = self.text(name)
        number = whole(text) if text and self.text("kind") == composer.JOB else 0
        if number is None or number > MOST_INT32:
            raise forms.ValidationError(f"Write a whole number up to {MOST_INT32:,}.")
        return text

    def clean(self) -> None:
        """Where the devices come from decides what else is required."""
        for name in ("cpu", "memory", "least", "share"):
            if (text := self.text(name)) and not _is_amount(text):
                self.add_error(name, "Write an amount such as 2, 500m or 8Gi.")
        for name in ("tolerations", "device_tolerations"):
            wrong = [line for line in self.text(name).replace(",", "\n").split() if not composer.toleration_of(line)]
            if wrong:
                text = f"Write {wrong[0]} as key=value:NoSchedule, key:NoExecute, or key for every effect."
                self.add_error(name, text)
        devices = self.text("devices")
        if devices == composer.CLASS:
            self._clean_class(self.text("device_class"))
        if devices == composer.RESOURCE:
            if not self.text("resource"):
                self.add_error("resource", "Choose a resource.")
            if not 1 <= (whole(self.text("amount")) or 0) <= MOST_INT32:
                self.add_error("amount", f"Write a whole number from 1 to {MOST_INT32:,}.")
        if devices == composer.TEMPLATE and not self.text("template"):
            self.add_error("template", "Choose a template.")

    def _clean_class(self, device_class: str) -> None:
        if not device_class:
            self.add_error("device_class", "Choose a class or a model.")
        if not 1 <= (whole(self.text("count")) or 0) <= MAX_RESULTS:
            self.add_error("count", f"Write a whole number from 1 to {MAX_RESULTS}.")
        traits = self.traits(device_class)
        if self.text("least") and traits and not traits.memory:
            self.add_error("least", f"No device of class {device_class} publishes its memory.")
        if self.text("share") and not self.text("share_of") and traits and not traits.shares:
            self.add_error("share", f"No device of class {device_class} can be shared.")


def _is_amount(text: str) -> bool:
    try:
        return Quantity.parse(text) > ZERO
    except ValueError:
        return False


def sent(data: Mapping[str, Any]) -> dict[str, str]:
    """field -> value of those that a browser sent."""
    names = ((name, _SENT_AS.get(name, name)) for name in composer.FIELDS)
    return {name: str(data[sent_as]) for name, sent_as in names if sent_as in data}


def settle_template(template: Mapping[str, Any], existing: Mapping[str, ResourceClaimTemplateSpec]) -> tuple[str, bool]:
    """Reuse the template of an earlier pod of this name if it is the same; otherwise choose a free name.

    existing: those of the namespace, by name. Returns (name, whether it exists).
    """
    try:  # as it would be stored
        decoded = codec.decode_document(kind(TEMPLATES), template, strictness="Strict").object
        spec = cast("ResourceClaimTemplate", kind(TEMPLATES).prepare_create(decoded)).spec
    except ApiError:
        spec = None
    own = name = template["metadata"].get("name") or ""
    number = 1
    while name in existing and existing[name] != spec:
        number += 1
        name = f"{own}-{number}"
    return name, name in existing


@dataclass(frozen=True, slots=True, kw_only=True)
class FormOffers:
    """What the form may choose from. templates: (namespace, name), by namespace; models, places, resources: (value,
    label). jobs: whether Jobs may be created.
    """

    jobs: bool
    namespaces: Sequence[str]
    templates: Sequence[tuple[str, str]]
    models: Sequence[tuple[str, str]]
    places: Sequence[tuple[str, str]]
    shares: Sequence[str]
    resources: Sequence[tuple[str, str]]


def read_offers(person: Person, traits: Traits, classes: Mapping[str, str]) -> FormOffers:
    """classes: name -> the extended resource that it serves under a name of its own, or ""."""
    models, places, shares = dict[str, set[str]](), set[str](), set[str]()
    for name in classes:
        if found := traits(name):
            for attribute, model in found.models:
                models.setdefault(f"{attribute}={model}", set()).add(name)
            places |= set(found.places)
            shares |= set(found.shares)
    ambiguous = Counter(PLACES[one.rpartition("/")[2]] for one in places)

    def place(name: str) -> str:
        domain, _, short = name.rpartition("/")
        word = PLACES[short]
        return f"On the same {word}{f' ({domain})' if ambiguous[word] > 1 else ''}"

    return FormOffers(
        jobs=person.may_somewhere("create", JOB.resource),
        namespaces=editable_namespaces(person),
        templates=[one for one in templates(person) if person.may_edit(one[0])],
        models=[
            (value, f"{value.partition('=')[2]} ({', '.join(sorted(names))})")
            for value, names in sorted(models.items(), key=lambda one: one[0].partition("=")[2])
        ],
        places=[(one, place(one)) for one in sorted(places, key=lambda one: (PLACES[one.rpartition("/")[2]], one))],
        shares=sorted(shares),
        resources=sorted(
            (own, f"{own} ({name})") if own else (f"{DEVICE_CLASS_RESOURCE_PREFIX}{name}", f"Class {name}, by its name")
            for name, own in classes.items()
        ),
    )


def class_of_model(model: str, traits: Traits, classes: Iterable[str]) -> str:
    """The class with the most devices of the model, "" for none."""
    attribute, _, value = model.partition("=")
    counts = [(found.models[attribute, value], name) for name in classes if (found := traits(name))]
    most = max((count for count, _ in counts), default=0)
    return min((name for count, name in counts if count == most), default="") if most else ""


def as_yaml(form: PodForm) -> str:
    """The documents that the form describes, in the order in which they are created."""
    if form.composed is None:
        return composer.compose({name: form.text(name) for name in composer.FIELDS}, "", "", traits=form.traits).text
    return form.composed.text


#: end of the API's path -> field of the form
_FIELDS = (
    ("metadata.name", "name"),
    ("metadata.namespace", "namespace"),
    (".activeDeadlineSeconds", "time_limit"),
    (".parallelism", "parallelism"),
    (".completions", "completions"),
    (".completionMode", "completion_mode"),
    (".backoffLimit", "backoff_limit"),
    (".image", "image"),
    (".command", "command"),
    (".count", "count"),
    (".deviceClassName", "device_class"),
    (".resourceClaimTemplateName", "template"),
    (".requests[cpu]", "cpu"),
    (".requests[memory]", "memory"),
    (".matchAttribute", "together"),
)


def complain(form: PodForm, problems: Iterable[DocumentProblem]) -> None:
    """Put each error of the API at its field; at the form itself if it has no single one. Where the form has found
    errors of its own, only what the API says of other fields: the rest may follow from them.
    """
    own = set(form.errors)
    for problem in sorted(problems, key=lambda one: one.kind not in composer.KINDS):
        at = f".{problem.field}"
        name = next((name for end, name in _FIELDS if at.endswith(end)), None)
        if ".resources.limits[" in at:
            name = "amount"
        if "olerations" in at:
            name = "tolerations" if problem.kind in composer.KINDS else "device_tolerations"
        follows = ".resourceClaims[" in f".{problem.field}" or (name == "name" and name in form.errors)
        if form.text("devices") == "class" and follows:
            continue  # the names of template and claim follow that of the pod, which has the same error
        if own and (name is None or name in own):
            continue
        text = problem.message.removeprefix(f"{problem.field}: ") if name else problem.message
        said = form.errors.get(name) if name else form.non_field_errors()
        if text not in (said or ()):
            form.add_error(name, text)


#: The defaults that the API writes.
_OF_SPEC: Mapping[str, Any] = {
    "dnsPolicy": "ClusterFirst",
    "schedulerName": "default-scheduler",
    "terminationGracePeriodSeconds": 30,
    "enableServiceLinks": True,
    "securityContext": {},
    "serviceAccountName": "default",
    "serviceAccount": "default",
    "preemptionPolicy": "PreemptLowerPriority",
    "priorityClassName": "",
    "restartPolicy": "Always",
}
_OF_CONTAINER: Mapping[str, Any] = {
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
    "resources": {},
}
#: Metadata of one object that a copy of it does not have.
_OF_META = ("ownerReferences", "generateName", "finalizers", "deletionTimestamp", "deletionGracePeriodSeconds")
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_NUMBERED = re.compile(r"^(.*?)-(\d+)$")
_NOTHING = object()


def manifest(obj: ApiObject) -> dict[str, Any]:
    """The document without what the API filled in; of a pod, also without what admission added."""
    document = written(codec.to_builtins(obj))
    document.pop("status", None)
    meta = {name: value for name, value in document["metadata"].items() if name not in _OF_META}
    notes = {name: value for name, value in meta.pop("annotations", {}).items() if name != _LAST_APPLIED}
    document["metadata"] = meta | ({"annotations": notes} if notes else {})
    if isinstance(obj, Pod):
        document["spec"] = _manifest_spec(document["spec"])
    return document


def _manifest_spec(spec: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in spec.items() if _OF_SPEC.get(name, _NOTHING) != value}
    for name in ("nodeName", "priority", "preemptionPolicy"):  # its class has the last two
        kept.pop(name, None)
    if kept.get("serviceAccountName"):
        kept.pop("serviceAccount", None)
    tokens = {one["name"] for one in spec.get("volumes", ()) if one["name"].startswith(VOLUME_PREFIX)}
    for name in ("containers", "initContainers"):
        if name in kept:
            kept[name] = [_manifest_container(one, tokens) for one in kept[name]]
    _keep(kept, "volumes", [one for one in spec.get("volumes", ()) if one["name"] not in tokens])
    of_admission = (("operator", "Exists"), ("tolerationSeconds", EVICTION_TOLERATION_SECONDS))
    _keep(
        kept,
        "tolerations",
        [
            one
            for one in spec.get("tolerations", ())
            if one.get("key") not in NODE_TROUBLES or any(one.get(key) != value for key, value in of_admission)
        ],
    )
    return kept


def _manifest_container(container: Mapping[str, Any], tokens: Collection[str]) -> dict[str, Any]:
    kept = {name: value for name, value in container.items() if _OF_CONTAINER.get(name, _NOTHING) != value}
    image = str(kept.get("image", ""))
    tag = image.rpartition("/")[2].partition("@")[0].partition(":")[2]
    if kept.get("imagePullPolicy") == ("Always" if tag in ("", "latest") and "@" not in image else "IfNotPresent"):
        del kept["imagePullPolicy"]
    _keep(kept, "volumeMounts", [one for one in container.get("volumeMounts", ()) if one["name"] not in tokens])
    return kept


def _keep(document: dict[str, Any], name: str, values: list[Any]) -> None:
    document.pop(name, None)
    if values:
        document[name] = values


def stem_of(name: str) -> str:
    """The name without the number that `free_name` appends."""
    numbered = _NUMBERED.match(name)
    return numbered[1] if numbered else name


def free_name(name: str, taken: Collection[str], *, most: int = DNS_SUBDOMAIN_MAX) -> str:
    """The name, or else with the first number that makes it free. most: characters; the rest of a long name goes."""
    numbered = _NUMBERED.match(name)
    stem, number = (numbered[1], int(numbered[2])) if numbered else (name, 1)
    while name in taken:
        number += 1
        end = f"-{number}"
        name = f"{stem[: most - len(end)].rstrip('-.')}{end}"
    return name


_POD = """\
apiVersion: v1
kind: Pod
metadata:
  name: {name}
  namespace: {namespace}
spec:
  restartPolicy: Never
  containers:
  - name: main
    image: example.com/main
    resources:
      claims:
      - name: gpu
  resourceClaims:
  - name: gpu
    {claim}
"""
_SPEC = """\
devices:
  requests:
  - name: gpu
    exactly:
      deviceClassName: {device_class}
"""
_TWO_SELECTED = """\
      count: 2
      selectors:
      - cel:
          expression: device.driver != ""
"""


@dataclass(frozen=True, slots=True)
class Example:
    """name: in the address; word: what it shows."""

    name: str
    word: str
    parts: tuple[str, ...]

    def text(self, *, namespace: str, device_class: str) -> str:
        """The example for an existing namespace and class."""
        text = "".join(self.parts)
        return text.replace("{namespace}", namespace or "default").replace("{device_class}", device_class)


def _example_of(kind: str, name: str, spec: str) -> str:
    """A document of the device API, and the divider after it."""
    head = f"apiVersion: resource.k8s.io/v1\nkind: {kind}\nmetadata:\n  name: {name}\n  namespace: {{namespace}}\n"
    return f"{head}spec:\n{indent(spec, '  ')}---\n"


def _example_pod(name: str, claim: str) -> str:
    return _POD.replace("{name}", name).replace("{claim}", claim)


def _example_template(name: str, spec: str) -> tuple[str, str]:
    """A template, and a pod with a claim from it."""
    template = _example_of("ResourceClaimTemplate", name, f"spec:\n{indent(spec, '  ')}")
    return template, _example_pod("trainer", f"resourceClaimTemplateName: {name}")


def document_of(kind: str, name: str, *, namespace: str, device_class: str) -> str:
    """A claim or a template of this name, for one device of the class."""
    spec = f"spec:\n{indent(_SPEC, '  ')}" if kind == "ResourceClaimTemplate" else _SPEC
    example = Example(name, "", (_example_of(kind, name, spec).removesuffix("---\n"),))
    return example.text(namespace=namespace, device_class=device_class)


EXAMPLES = (
    Example("one-device", "A pod with one device", _example_template("one-device", _SPEC)),
    Example(
        "two-selected", "Two devices that a selector accepts", _example_template("two-selected", _SPEC + _TWO_SELECTED)
    ),
    Example(
        "shared",
        "Two pods that share a claim",
        (
            _example_of("ResourceClaim", "ours", _SPEC),
            _example_pod("reader", "resourceClaimName: ours"),
            "---\n",
            _example_pod("writer", "resourceClaimName: ours"),
        ),
    ),
)


#: Depth of the keys; characters of a description; names of one kind.
DEEPEST, LONGEST_TEXT, NAMES = 9, 160, 500

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


def completions(person: Person) -> dict[str, Any]:
    """The keys, and the values that this person may see."""
    classes = list(DeviceClass.objects.order_by("name").values_list("name", flat=True)[:NAMES])
    values: dict[str, list[str]] = {
        "kind": [kind(one).kind for one in RESOURCES],
        "apiVersion": sorted({kind(one).api_version for one in RESOURCES}),
        "metadata.namespace": editable_namespaces(person),
        "spec.nodeName": list(Node.objects.order_by("name").values_list("name", flat=True)[:NAMES]),
        "spec.resourceClaims.resourceClaimName": list(
            Claim.objects.restrict(person).order_by("name").values_list("name", flat=True)[:NAMES]
        ),
        "spec.resourceClaims.resourceClaimTemplateName": sorted({name for _, name in templates(person)}),
    }
    for path, words in _words().items():
        values[path] = list(words) or classes
    top = [{"label": name} for name in ("apiVersion", "kind", "metadata", "spec")]
    return {"keys": {"": top, **_keys()}, "values": values}


@cache
def _keys() -> dict[str, list[Option]]:
    """`Kind/path` -> the keys that are allowed there."""
    keys: dict[str, list[Option]] = {}
    for one in map(kind, RESOURCES):
        served = ServedKind(one.group, one.version, one.kind, one.type)
        schemas = components([served])
        for path, properties in _walk(schemas, schemas[served.name], "", 0):
            if path:
                keys[f"{one.kind}/{path}"] = [_option(name, schema) for name, schema in properties.items()]
    return keys


def _walk(
    schemas: Mapping[str, Any], schema: Mapping[str, Any], path: str, depth: int
) -> Iterator[tuple[str, dict[str, Any]]]:
    """(path, properties) of the mappings in a schema, without what the server writes."""
    properties = {name: one for name, one in schema.get("properties", {}).items() if path or name != "status"}
    if path == "metadata":
        properties = {name: properties[name] for name in ("name", "generateName", "namespace", "labels", "annotations")}
    if properties:
        yield path, properties
    for name, one in properties.items():
        inner = one["items"] if one.get("type") == "array" else one
        reference = inner.get("$ref") or next((part.get("$ref") for part in inner.get("allOf", ())), None)
        inner = schemas[reference.rpartition("/")[2]] if reference else inner
        if depth < DEEPEST and inner.get("properties"):
            yield from _walk(schemas, inner, f"{path}.{name}" if path else name, depth + 1)


def _option(name: str, schema: Mapping[str, Any]) -> Option:
    text = str(schema.get("description", ""))
    detail = str(schema.get("type", "object" if "allOf" in schema or "$ref" in schema else ""))
    option = {"label": name, "detail": {"array": "list"}.get(detail, detail)}
    return option | ({"info": text[:LONGEST_TEXT]} if text else {})


@cache
def _words() -> dict[str, tuple[str, ...]]:
    """path -> words, of the fields that take one of a few; none for those that take a class."""
    words: dict[str, tuple[str, ...]] = {}
    for path in (f"{path}.{option['label']}" for path, options in _keys().items() for option in options):
        allowed = next((allowed for end, allowed in _WORDS.items() if f".{path}".endswith(f".{end}")), ())
        if allowed or path.endswith(".deviceClassName"):
            words[path] = allowed
    return words

"""A new pod: `/pods/new`, from YAML or from a form that makes the same YAML.

`?from=form` shows the form, `?ns=` chooses the namespace. The text is filled by `?example=NAME`, by
`?like=NAMESPACE/NAME`, a pod to duplicate, and by `?rehearsed=1` with what the address of a what-if says.

Checking goes all the way of creating, in a transaction that is rolled back; creating does that first, so that of
several documents all are made or none, unless somebody else is faster.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from textwrap import indent

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from claims.causes.messages import clause
from claims.causes.next_steps import next_step
from claims.kinds.pods import Pod
from claims.kinds.resource_claims import ResourceClaimTemplate
from claims.models import Pod as PodRow
from dashboard.kit.differences import Finding, dump
from dashboard.kit.links import claim_url, pod_url, template_url
from dashboard.kit.rendering import TemplateContext, ValueContext, render_page
from dashboard.kit.rights import namespaced
from dashboard.workloads.pods import documents as pod_documents
from dashboard.workloads.pods.documents import Reading
from dashboard.workloads.pods.form import PodForm, as_yaml, complain
from dashboard.workloads.pods.manifest import free_name, manifest
from dashboard.workloads.pods.views import may_create
from dashboard.workloads.whatif.views import asked_of
from dashboard.workloads.whatif.writing import text_of
from insight.class_summary import ClassStock, read_stock
from inventory.models import DeviceClass
from manciple.api.auditing import only_checks
from manciple.people import Person, person_of
from manciple.store import objects
from manciple.store.event_log import latest_revision
from manciple.store.objects import decoded
from manciple.wire.base import ApiObject
from manciple.wire.errors import ApiError
from manciple.wire.resources import PODS, TEMPLATES, kind
from scheduling.rehearsal.quota_refusals import refused
from scheduling.rehearsal.simulation import Placed, try_one
from scheduling.rehearsal.workload import NotRehearsable, of_documents


@namespaced()
@require_http_methods(["GET", "HEAD", "POST"])
def new_pod(request: HttpRequest) -> HttpResponse:
    """See the module's docstring."""
    person = _maker(request)
    if request.method != "POST":
        return _show(request, person, text=_first_text(request, person))
    form = _posted(request)
    from_form = request.POST.get("from") == "form"
    text = as_yaml(form) if from_form else request.POST.get("yaml", "").replace("\r\n", "\n")
    action = request.POST.get("action", "create")
    if from_form and action == "yaml":
        return _show(request, person, text=text, namespace=form.text("namespace"))
    if from_form and not form.is_valid():
        return _show(request, person, form=form, status=422)
    reading = _checked(text, request.POST.get("namespace", ""), person)
    if not reading.problems and action == "create":
        made, reading.problems = pod_documents.create_all(reading.documents, person)
        if not reading.problems:
            return _made(request, made)
        if made:
            messages.warning(request, f"Only {_named(made)} {'was' if len(made) == 1 else 'were'} created.")
    status = 422 if reading.problems else 200
    if from_form:
        complain(form, reading.problems)
        return _show(request, person, form=form, status=status)
    return _show(
        request, person, text=text, reading=reading, status=status, namespace=request.POST.get("namespace", "")
    )


@namespaced()
@require_safe
def show_completions(request: HttpRequest) -> JsonResponse:
    """What may stand where in the editor."""
    return JsonResponse(pod_documents.table(person_of(request)))


@namespaced()
@require_POST
def show_diagnostics(request: HttpRequest) -> JsonResponse:
    """What is wrong with `text`: all that creating it would say, or (`?for=what-if`) that its kinds' rules say."""
    only_checks()
    text = request.POST.get("text", "").replace("\r\n", "\n")
    person = person_of(request)
    if request.GET.get("for") == "what-if":
        reading = pod_documents.read(text, namespace="default")
        pod_documents.validate(reading)
    else:
        reading = _checked(text, request.POST.get("namespace", ""), person)
    return JsonResponse(reading.findings, safe=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeContext(TemplateContext):
    """What the form makes, as YAML. started: where the pod would start; reused: whether an existing template serves."""

    made: str
    started: StartVerdict | None
    reused: bool


@namespaced()
@require_POST
def show_made(request: HttpRequest) -> HttpResponse:
    """The YAML that the form makes as it stands, and where its pod would start."""
    person = _maker(request)
    form = _posted(request)
    made = as_yaml(form)
    started = _started_by_form(form, made, person)
    return render_page(
        request, "workloads/pods/made.html", MadeContext(made=made, started=started, reused=form.reuses_template)
    )


def _posted(request: HttpRequest) -> PodForm:
    form = PodForm(request.POST)
    namespace = form.text("namespace")
    if form.text("devices") == "class" and namespace in pod_documents.editable_namespaces(person_of(request)):
        _, templates = objects.listed(TEMPLATES, ResourceClaimTemplate, namespace=namespace)
        form.settle_template({one.metadata.name: one.spec for one in templates})
    return form


# Where it would start ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class StartVerdict:
    """What the scheduler would do with the pod now. good: it would start at once."""

    good: bool
    title: str
    next_step: str = ""


def _started_by_form(form: PodForm, made: str, person: Person) -> StartVerdict | None:
    chosen = {"class": "device_class", "template": "template"}.get(form.text("devices"))
    if chosen and not form.text(chosen):
        return None
    return _started(pod_documents.read(made, namespace=form.text("namespace")), person)


def _started(reading: Reading, person: Person) -> StartVerdict | None:
    """None where there is no single pod, or what it names cannot be read: the check says that."""
    if reading.problems or any(not person.sees(one.metadata.namespace) for one in reading.objects):
        return None
    if not any(isinstance(one, Pod) for one in reading.objects):
        return None
    try:
        workload = of_documents([one.kind.prepare_create(one.object) for one in reading.documents])
        found = refused(workload) or try_one(workload)
    except (NotRehearsable, ApiError):
        return None
    if isinstance(found, Placed):
        devices = ", ".join(f"`{one.device}`" for one in found.devices)
        return StartVerdict(good=True, title=f"Starts now on `{found.node}`{f', with {devices}' if devices else ''}.")
    if found is None:
        return None
    return StartVerdict(good=False, title=f"It would wait because {clause(found)}.", next_step=next_step(found))


# Answers -------------------------------------------------------------------------------------------------------------


def _maker(request: HttpRequest) -> Person:
    person = person_of(request)
    if not may_create(person):
        raise PermissionDenied("Only administrators and members of a namespace's group may create pods.")
    return person


def _checked(text: str, namespace: str, person: Person) -> Reading:
    reading = pod_documents.read(text, namespace=namespace)
    if not reading.documents and not reading.problems:
        reading.problems.append(pod_documents.DocumentProblem("", "", "Write a Pod, or start with an example.", 1, 1))
    pod_documents.rehearse(reading, person)
    return reading


def _duplicate(like: str, person: Person) -> str:
    """A pod like this one, under a name that is free; what it names stays as it is. "" where they do not see it."""
    namespace, _, name = like.partition("/")
    stored = objects.get(kind(PODS), namespace, name) if person.sees(namespace) else None
    if stored is None:
        return ""
    document = manifest(decoded(stored, Pod))
    taken = PodRow.objects.filter(namespace=namespace).values_list("name", flat=True)
    document["metadata"]["name"] = free_name(name, set(taken))
    return f"{dump(document)}\n"


def _first_text(request: HttpRequest, person: Person) -> str:
    if like := request.GET.get("like", ""):
        return _duplicate(like, person)
    if request.GET.get("rehearsed", ""):
        return text_of(asked_of(request, person))
    example = find(request.GET.get("example", ""))
    if example is None:
        return ""
    class_name = DeviceClass.objects.order_by("name").values_list("name", flat=True).first() or "CLASS"
    return example.text(namespace=_namespace(request, person), device_class=class_name)


def _namespace(request: HttpRequest, person: Person) -> str:
    """The namespace that is asked for, where they may make something; else the first such."""
    known = pod_documents.editable_namespaces(person)
    wanted = request.POST.get("namespace", "") or request.GET.get("ns", "")
    return wanted if wanted in known else next(iter(known), "")


@dataclass(frozen=True, slots=True, kw_only=True)
class NewPodPage:
    """Pods by a form, or (`text`) as YAML. namespaces: where the person may make any; reading: of what was sent."""

    from_form: bool
    form: PodForm
    namespaces: Sequence[str]
    namespace: str
    text: str
    reading: Reading | None
    started: StartVerdict | None

    @property
    def stock(self) -> Sequence[ClassStock]:
        return read_stock(datetime.now(UTC))

    @property
    def findings(self) -> list[Finding]:
        return self.reading.findings if self.reading else []

    @property
    def checked(self) -> int:
        """How many objects passed a dry run; 0 where anything is wrong, or nothing was tried."""
        return len(self.reading.documents) if self.reading and not self.reading.problems else 0

    @property
    def title(self) -> str:
        """What is made: a what-if and an editor lead here with claims that no pod comes with too."""
        written = self.reading or pod_documents.read(self.text, namespace=self.namespace)
        kinds = {one.kind for one in written.objects}
        if "Pod" in kinds or not kinds:
            return "New pod"
        return "New claim" if "ResourceClaim" in kinds else "New claim template"

    @property
    def examples(self) -> Sequence[Example]:
        return EXAMPLES

    @property
    def made(self) -> str:
        """What the form makes, as YAML."""
        return as_yaml(self.form)


def _show(
    request: HttpRequest,
    person: Person,
    *,
    text: str = "",
    form: PodForm | None = None,
    reading: Reading | None = None,
    namespace: str = "",
    status: int = 200,
) -> HttpResponse:
    revision = latest_revision()
    from_form = form is not None or (request.method != "POST" and request.GET.get("from") == "form")
    namespaces = pod_documents.editable_namespaces(person)
    chosen = namespace if namespace in namespaces else _namespace(request, person)
    shown = form or PodForm()
    if not shown.is_bound:
        shown.initial["namespace"] = chosen
    shown.offer(
        namespaces=namespaces,
        classes=DeviceClass.objects.order_by("name").values_list("name", flat=True),
        templates=[one for one in pod_documents.templates(person) if person.may_edit(one[0])],
    )
    started = None
    if from_form and shown.is_bound:
        started = _started_by_form(shown, as_yaml(shown), person)
    elif reading is not None:
        started = _started(reading, person)
    page = NewPodPage(
        from_form=from_form,
        form=shown,
        namespaces=namespaces,
        namespace=chosen,
        text=text,
        reading=reading,
        started=started,
    )
    context = ValueContext(place="pods", revision=revision, page=page)
    return render_page(request, "workloads/pods/new.html", context, status=status)


def _made(request: HttpRequest, made: list[ApiObject]) -> HttpResponse:
    """To the page of the pod that was made; of several, to the list; of none, to the claim or template."""
    messages.success(request, f"Created {_named(made)}.")
    pods = [one.metadata for one in made if isinstance(one, Pod)]
    if len(pods) == 1:
        return redirect(pod_url(pods[0].namespace, pods[0].name))
    if pods:
        return redirect(f"/pods?ns={pods[0].namespace}")
    last = made[-1]
    address = claim_url if last.kind == "ResourceClaim" else template_url
    return redirect(address(last.metadata.namespace, last.metadata.name))


def _named(made: list[ApiObject]) -> str:
    return ", ".join(f"{one.kind} {one.metadata.name}" for one in made)


# Pods to begin with --------------------------------------------------------------------------------------------------


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """name: in the address; word: what it shows."""

    name: str
    word: str
    parts: tuple[str, ...]

    def text(self, *, namespace: str, device_class: str) -> str:
        """The example for a namespace and a class that exist."""
        joined = "".join(self.parts)
        return joined.replace("{namespace}", namespace or "default").replace("{device_class}", device_class)


def _object(kind: str, name: str, spec: str) -> str:
    """A document of the device API, and what separates it from the next."""
    head = f"apiVersion: resource.k8s.io/v1\nkind: {kind}\nmetadata:\n  name: {name}\n  namespace: {{namespace}}\n"
    return f"{head}spec:\n{indent(spec, '  ')}---\n"


def _pod(name: str, claim: str) -> str:
    return _POD.replace("{name}", name).replace("{claim}", claim)


def _from_template(name: str, word: str, spec: str) -> Example:
    """A template, and a pod for which a claim is made from it."""
    template = _object("ResourceClaimTemplate", name, f"spec:\n{indent(spec, '  ')}")
    return Example(name=name, word=word, parts=(template, _pod("trainer", f"resourceClaimTemplateName: {name}")))


EXAMPLES = (
    _from_template("one-device", "A pod with one device", _SPEC),
    _from_template("two-selected", "Two devices that a selector accepts", _SPEC + _TWO_SELECTED),
    Example(
        name="shared",
        word="Two pods that share a claim",
        parts=(
            _object("ResourceClaim", "ours", _SPEC),
            _pod("reader", "resourceClaimName: ours"),
            "---\n",
            _pod("writer", "resourceClaimName: ours"),
        ),
    ),
)


def find(name: str) -> Example | None:
    return next((one for one in EXAMPLES if one.name == name), None)

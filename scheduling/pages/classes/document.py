"""What the class editors ask while a person types, and a class that is saved as YAML.

- `/classes/completions`: what may follow in an expression, from the published devices.
- `/classes/diagnostics/cel|parameters|class`: what is wrong with a text, and where. Nothing is stored.
- `/classes/c/NAME/yaml`: save the whole object.
"""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST, require_safe

from manciple.api import verbs
from manciple.pages.links import class_url
from manciple.pages.people import demand_edit
from manciple.pages.posting import posted_from
from manciple.wire.errors import ApiError
from scheduling.pages.classes import diagnostics
from scheduling.pages.classes.completions import cel_table
from scheduling.pages.classes.diagnostics import Finding
from scheduling.pages.classes.manifest import Unreadable, parse, refusals
from scheduling.pages.classes.views import explained, show_yaml, stored_class
from scheduling.pages.classes.workbench import class_kind, features, published_devices


@login_required
@require_safe
def show_completions(_request: HttpRequest) -> JsonResponse:
    """Devices are nobody's secret: the same for everybody."""
    return JsonResponse({"after": cel_table(published_devices())})


@login_required
@require_POST
def show_diagnostics(request: HttpRequest, what: str) -> JsonResponse:
    """`text`: what is judged."""
    text = request.POST.get("text", "").replace("\r\n", "\n")
    if what == "cel":
        return JsonResponse(diagnostics.of_expression(text, features()), safe=False)
    if what == "parameters":
        return JsonResponse(diagnostics.of_parameters(text), safe=False)
    if what == "class":
        return JsonResponse(of_class(text, request.POST.get("editing", "")), safe=False)
    raise Http404(what)


def of_class(text: str, name: str) -> list[Finding]:
    """What keeps a text from being saved as the class of this name."""
    try:
        wanted = parse(text, class_kind(), name=name)
    except Unreadable as problem:
        return problem.findings
    found = class_kind().validate_create(wanted)
    causes = [{"field": one.field, "message": one.body} for one in found]
    return diagnostics.at_paths(text, causes, lambda cause: f"{cause['field']}: {cause['message']}")


@login_required
@posted_from("class-edit")
def save_yaml(request: HttpRequest, name: str) -> HttpResponse:
    """Replace the class by what the text describes."""
    person = demand_edit(request, "change device classes")
    existing = stored_class(name)
    text = request.POST.get("yaml", "").replace("\r\n", "\n")
    try:
        verbs.update(class_kind(), parse(text, class_kind(), name=name), name=name, identity=person.identity)
    except Unreadable as problem:
        return show_yaml(request, existing, text=text, findings=problem.findings)
    except ApiError as refusal:
        causes = (refusal.details or {}).get("causes")
        said = {"line": 0, "column": 0, "severity": "error", "message": explained(refusal)}
        return show_yaml(request, existing, text=text, findings=refusals(text, refusal) if causes else [said])
    messages.success(request, f"Saved class {name}.")
    return redirect(f"{class_url(name)}?tab=yaml")

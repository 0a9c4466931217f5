"""The DeviceClass pages: the list, and a form that shows at once which devices match.

- `/classes`: every class, its selectors, how many devices match and how many of those are free.
- `/classes/new`, `/classes/c/NAME`: the form. Saving goes the way of `kubectl apply`:
  prepare, validate, admit, store.
- `/classes/verdicts`: the verdicts for what stands in the form now; nothing is stored.
"""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from inventory.kinds.classes import DeviceClass
from manciple.api import writes
from manciple.api.identity import Identity
from manciple.pages.people import demand_edit, person_of
from manciple.store import objects
from manciple.store.tail import latest_revision
from manciple.wire import codec
from manciple.wire.errors import ApiError
from manciple.wire.registry import Kind, registry
from scheduling.pages.class_form import (
    ClassForm,
    ConfigText,
    FormErrors,
    from_class,
    from_post,
    kept_selectors,
    place_causes,
    to_class,
)
from scheduling.pages.verdicts import Verdicts, judge, read_candidates


def class_kind() -> Kind:
    return registry.by_resource("deviceclasses.resource.k8s.io")


@login_required
@require_safe
def list_classes(request: HttpRequest) -> HttpResponse:
    """The list."""
    revision = latest_revision()
    candidates = read_candidates()
    rows = []
    for stored in objects.list(class_kind()).items:
        device_class = codec.decode_text(DeviceClass, stored.text)
        expressions = [selector.cel.expression for selector in device_class.spec.selectors if selector.cel]
        rows.append({"name": stored.name, "selectors": expressions, "verdicts": judge(expressions, candidates)})
    context = {"place": "classes", "rows": rows, "revision": revision, "may_edit": person_of(request).may_edit()}
    return render(request, "scheduling/classes.html", context)


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def new_class(request: HttpRequest) -> HttpResponse:
    """The form for a class that does not exist yet."""
    if request.method == "POST":
        return _answer_post(request, existing=None)
    demand_edit(request, "change device classes")
    return _show_form(request, ClassForm(), existing=None)


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def edit_class(request: HttpRequest, name: str) -> HttpResponse:
    """The form for an existing class."""
    stored = objects.get(class_kind(), "", name)
    if stored is None:
        raise Http404(f"DeviceClass {name} does not exist.")
    existing = codec.decode_text(DeviceClass, stored.text)
    if request.method == "POST":
        return _answer_post(request, existing=existing)
    return _show_form(request, from_class(existing), existing=existing)


@login_required
@require_POST
def show_verdicts(request: HttpRequest) -> HttpResponse:
    """The verdicts for the form as it stands; also each selector's own error, for its place under the field."""
    form = from_post(request.POST)
    return render(request, "scheduling/verdicts.html", _verdict_context(form, FormErrors()) | {"oob": True})


def _answer_post(request: HttpRequest, *, existing: DeviceClass | None) -> HttpResponse:
    """Save, or (where a button that adds a field was pressed) show the form with one more of it."""
    demand_edit(request, "change device classes")
    form = from_post(request.POST)
    if grown := _grown(form, request.POST.get("add", "")):
        return _show_form(request, grown, existing=existing)
    errors = FormErrors()
    wanted = to_class(form, existing=existing, errors=errors)
    if not errors:
        _save(wanted, form, existing=existing, identity=person_of(request).identity, errors=errors)
    if errors:
        return _show_form(request, form, existing=existing, errors=errors)
    messages.success(request, f"{'Saved' if existing else 'Created'} class {wanted.metadata.name}.")
    return redirect("classes")


def _grown(form: ClassForm, what: str) -> ClassForm | None:
    """The form with one more selector or configuration; None where nothing was to be added."""
    if what not in {"selector", "config"}:
        return None
    return ClassForm(
        name=form.name,
        selectors=(*form.selectors, "") if what == "selector" else form.selectors,
        configs=(*form.configs, ConfigText()) if what == "config" else form.configs,
        resource_version=form.resource_version,
    )


def _save(
    wanted: DeviceClass, form: ClassForm, *, existing: DeviceClass | None, identity: Identity, errors: FormErrors
) -> None:
    """Write the class; what the API says against it goes into `errors`."""
    try:
        if existing is None:
            writes.create(class_kind(), wanted, identity=identity)
        else:
            writes.update(class_kind(), wanted, name=existing.metadata.name, identity=identity)
    except ApiError as refusal:
        causes = (refusal.details or {}).get("causes")
        place_causes(form, causes or [{"field": "", "message": _explained(refusal)}], errors)


def _explained(refusal: ApiError) -> str:
    """A refusal that concerns no single field, with what to do next."""
    if refusal.reason == "Conflict":
        return "Somebody else changed this class while you edited it. Open it again to see their change."
    if refusal.reason == "AlreadyExists":
        return f"{refusal.message}. Choose another name, or edit that class."
    return refusal.message


def _verdict_context(form: ClassForm, errors: FormErrors) -> dict[str, Any]:
    kept = kept_selectors(form)
    verdicts = judge([text.strip() for _, text in kept], read_candidates())
    return {"verdicts": verdicts, "fields": _selector_fields(form, verdicts, errors)}


def _selector_fields(form: ClassForm, verdicts: Verdicts, errors: FormErrors) -> list[dict[str, Any]]:
    """The selectors as the template draws them: text, count, error."""
    judged = dict(zip((index for index, _ in kept_selectors(form)), verdicts.selectors, strict=True))
    fields = []
    for index, text in enumerate(form.selectors):
        verdict = judged.get(index)
        fields.append(
            {
                "index": index,
                "number": index + 1,
                "text": text,
                "judged": verdict,
                # The API's own words win; they appear only after an attempt to save.
                "messages": errors.by_field.get(f"selector-{index}", []) if not (verdict and verdict.error) else [],
            }
        )
    return fields


def _show_form(
    request: HttpRequest, form: ClassForm, *, existing: DeviceClass | None, errors: FormErrors | None = None
) -> HttpResponse:
    errors = errors or FormErrors()
    configs = [
        {
            "index": index,
            "driver": config.driver,
            "parameters": config.parameters,
            "driver_errors": errors.by_field.get(f"config-{index}-driver", []),
            "parameter_errors": errors.by_field.get(f"config-{index}-parameters", []),
        }
        for index, config in enumerate(form.configs)
    ]
    context = {
        "place": "classes",
        "form": form,
        "existing": existing,
        "configs": configs,
        "name_errors": errors.by_field.get("name", []),
        "form_errors": errors.by_field.get("", []),
        "may_edit": person_of(request).may_edit(),
    } | _verdict_context(form, errors)
    return render(request, "scheduling/class_form.html", context, status=422 if errors else 200)

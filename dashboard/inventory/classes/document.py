"""What the class editors ask while a person types, and a class that is saved as YAML.

- `/classes/completions`: what may follow in an expression, from the published devices.
- `/classes/diagnostics/cel|parameters|class`: what is wrong with a text, and where. Nothing is stored.
- `/classes/c/NAME/yaml`: save the whole object.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST, require_safe

from dashboard.inventory.classes import diagnostics
from dashboard.inventory.classes.attributes import ClassProperty, domains, drivers
from dashboard.inventory.classes.diagnostics import Finding
from dashboard.inventory.classes.manifest import Unreadable, parse, refusals
from dashboard.inventory.classes.views import explained, show_yaml, stored_class
from dashboard.inventory.classes.workbench import class_kind, published_devices
from dashboard.kit.forms import posted_from
from dashboard.kit.links import class_url
from dashboard.kit.rights import listing
from insight.selector_matches import JudgedDevices
from manciple.api import verbs
from manciple.people import demand
from manciple.wire.errors import ApiError
from manciple.wire.resources import CLASSES, SLICES
from scheduling.cel import CelFeatures
from scheduling.cel.clauses import shown
from scheduling.cel.environment import stored_environment


@listing(CLASSES, SLICES)
@require_safe
def show_completions(_request: HttpRequest) -> JsonResponse:
    """Devices are nobody's secret: the same for everybody."""
    return JsonResponse({"after": cel_table(published_devices())})


@listing(CLASSES, SLICES)
@require_POST
def show_diagnostics(request: HttpRequest, what: str) -> JsonResponse:
    """`text`: what is judged."""
    text = request.POST.get("text", "").replace("\r\n", "\n")
    if what == "cel":
        return JsonResponse(diagnostics.of_expression(text, CelFeatures.from_gates()), safe=False)
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


@listing(CLASSES, SLICES)
@posted_from("class-edit")
def save_yaml(request: HttpRequest, name: str) -> HttpResponse:
    """Replace the class by what the text describes."""
    person = demand(request, "change device classes", "update", CLASSES)
    existing = stored_class(name)
    text = request.POST.get("yaml", "").replace("\r\n", "\n")
    try:
        verbs.update(class_kind(), parse(text, class_kind(), name=name), name=name, identity=person.identity)
    except Unreadable as problem:
        return show_yaml(request, existing, text=text, findings=problem.findings)
    except ApiError as refusal:
        causes = (refusal.details or {}).get("causes")
        said = Finding(line=0, column=0, severity="error", message=explained(refusal))
        return show_yaml(request, existing, text=text, findings=refusals(text, refusal) if causes else [said])
    messages.success(request, f"Saved class {name}.")
    return redirect(f"{class_url(name)}?tab=yaml")


# What the editor completes -------------------------------------------------------------------------------------------


#: Values of one attribute that are suggested.
COMPLETED = 50

Option = dict[str, str]

#: type -> (method, what it is for); the caret stands inside of the parentheses afterwards
_METHODS: dict[str, tuple[tuple[str, str], ...]] = {
    "string": (
        ("startsWith(", "bool"), ("endsWith(", "bool"), ("contains(", "bool"), ("matches(", "regular expression"),
        ("lowerAscii()", "string"), ("size()", "int"),
    ),
    "semver": (
        ("isGreaterThan(semver(", "bool"), ("isLessThan(semver(", "bool"), ("compareTo(semver(", "-1, 0 or 1"),
        ("major()", "int"), ("minor()", "int"), ("patch()", "int"),
    ),
    "quantity": (
        ("compareTo(quantity(", "-1, 0 or 1"), ("isGreaterThan(quantity(", "bool"), ("isLessThan(quantity(", "bool"),
        ("asInteger()", "int"), ("asApproximateFloat()", "double"),
    ),
    "list": (("exists(value, value == ", "bool"), ("all(value, value == ", "bool"), ("size()", "int")),
}  # fmt: skip

_WORDS: tuple[Option, ...] = (
    {"label": "device", "detail": "what is judged", "apply": "device."},
    {"label": "quantity", "detail": "amount", "apply": "quantity("},
    {"label": "semver", "detail": "version", "apply": "semver("},
    {"label": "isSemver", "detail": "bool", "apply": "isSemver("},
    {"label": "isQuantity", "detail": "bool", "apply": "isQuantity("},
    {"label": "has", "detail": "is it there", "apply": "has("},
    {"label": "cel.bind", "detail": "name a value", "apply": "cel.bind(x, "},
    {"label": "true", "detail": "bool"},
    {"label": "false", "detail": "bool"},
)
_FIELDS: tuple[Option, ...] = (
    {"label": "driver", "detail": "string"},
    {"label": "attributes", "detail": "by domain", "apply": 'attributes["'},
    {"label": "capacity", "detail": "by domain", "apply": 'capacity["'},
    {"label": "allowMultipleAllocations", "detail": "bool"},
)


def cel_table(devices: JudgedDevices) -> dict[str, list[Option]]:
    """The table for editors of selectors."""
    return devices.derived("completions", lambda: _table(devices))


def _table(devices: JudgedDevices) -> dict[str, list[Option]]:
    table: dict[str, list[Option]] = {"": [*_WORDS, *_functions()], "device.": list(_FIELDS)}
    table |= _values("device.driver", [f'"{name}"' for name in drivers(devices)])
    for domain in domains(devices):
        for field in sorted({one.field for one in domain.properties}):
            entries = table.setdefault(f'device.{field}["', [])
            entries.append({"label": domain.name, "apply": f'{domain.name}"].', "detail": _count(domain.properties)})
        for one in domain.properties:
            entries = table.setdefault(f'device.{one.field}["{one.domain}"].', [])
            entries.append({"label": one.name, "detail": one.summary if one.type == "quantity" else one.type})
            table |= _of_property(one)
    return table


def _count(properties: Iterable[ClassProperty]) -> str:
    return str(len(list(properties)))


def _of_property(one: ClassProperty) -> dict[str, list[Option]]:
    methods = _METHODS.get(one.type, ())
    table: dict[str, list[Option]] = {}
    if methods:
        table[f"{one.text}."] = [
            {"label": name.partition("(")[0], "apply": name, "detail": detail} for name, detail in methods
        ]
    values = [shown(value) for value in one.values[:COMPLETED]]
    if one.type not in ("semver", "quantity"):
        return table | _values(one.text, values)
    for method in ("isGreaterThan", "isLessThan", "compareTo"):
        start = f"{one.text}.{method}({one.type}("
        table[start] = [{"label": f'"{value}"', "apply": f'"{value}")'} for value in values]
        table[f'{start}"'] = [{"label": value, "apply": f'{value}")'} for value in values]
    return table


def _values(text: str, values: list[str]) -> dict[str, list[Option]]:
    """What stands behind == and !=, in quotes where it has some; the opening quote may have been typed."""
    table: dict[str, list[Option]] = {}
    for operator in ("==", "!="):
        table[f"{text}{operator}"] = [{"label": value} for value in values]
        quoted = [value[1:-1] for value in values if value.startswith('"')]
        if quoted:
            table[f'{text}{operator}"'] = [{"label": value, "apply": f'{value}"'} for value in quoted]
    return table


@cache
def _functions() -> list[Option]:
    """The functions that stand by themselves, as the compiler declares them."""
    known = {"in", *(str(option["label"]) for option in _WORDS)}
    return [
        {"label": name, "detail": "function", "apply": f"{name}("}
        for name, overloads in sorted(stored_environment().functions.items())
        if name.isidentifier() and name[0] != "_" and name not in known and not all(one.is_member for one in overloads)
    ]

"""What may follow a text in a CEL expression, from the devices that are really published. Pure.

The table is the one that static/manciple/editor.js reads: a text without blanks around its operators -> options.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from scheduling.cel.clauses import shown
from scheduling.cel.functions import stored_environment
from scheduling.judging import JudgedDevices
from scheduling.pages.classes.attributes import Property, domains, drivers

#: Values of one attribute that are offered.
OFFERED = 50

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
            offered = table.setdefault(f'device.{field}["', [])
            offered.append({"label": domain.name, "apply": f'{domain.name}"].', "detail": _count(domain.properties)})
        for one in domain.properties:
            offered = table.setdefault(f'device.{one.field}["{one.domain}"].', [])
            offered.append({"label": one.name, "detail": one.summary if one.type == "quantity" else one.type})
            table |= _of_property(one)
    return table


def _count(properties: Iterable[Property]) -> str:
    return str(len(list(properties)))


def _of_property(one: Property) -> dict[str, list[Option]]:
    methods = _METHODS.get(one.type, ())
    table: dict[str, list[Option]] = {}
    if methods:
        table[f"{one.text}."] = [
            {"label": name.partition("(")[0], "apply": name, "detail": detail} for name, detail in methods
        ]
    values = [shown(value) for value in one.values[:OFFERED]]
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
    known = {str(option["label"]) for option in _WORDS}
    return [
        {"label": name, "detail": "function", "apply": f"{name}("}
        for name, overloads in sorted(stored_environment().functions.items())
        if name.isidentifier() and name not in known and not all(one.is_member for one in overloads)
    ]

"""The DeviceClass form and a class as YAML: from what a person writes to a DeviceClass, and its errors back to their
places.

The form has one `name`, any number of `selector`s, any number of (`driver`, `parameters`) pairs, where parameters are
YAML, and one `extended` resource name. Selectors and pairs are rows, each a form of its own, whose inputs share their
names; a script adds more. Blank rows are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django import forms
from django.urls import reverse_lazy
from django.utils.datastructures import MultiValueDict
from django.utils.html import format_html
from django.utils.safestring import SafeString
from msgspec import structs

from dashboard.inventory.classes.queries import Judged
from dashboard.kit.differences import (
    KEPT_BY_SERVER,
    Finding,
    Fix,
    YamlProblem,
    at_paths,
    dump,
    finding,
    place_of,
    read_yaml,
    sentence,
)
from dashboard.kit.forms import PageForm, PlacedField, code_area, code_input
from dashboard.templatetags.kit import known_figure, mark
from inventory.kinds.device_rules import PARAMETERS_MAX
from inventory.kinds.devices import (
    CELDeviceSelector,
    DeviceClass,
    DeviceClassConfiguration,
    DeviceSelector,
    OpaqueDeviceConfiguration,
)
from manciple.wire import codec
from manciple.wire.errors import ApiError
from manciple.wire.resources import CLASSES, kind
from scheduling.cel import COST_LIMIT, CelFeatures, CompileError, compile_new_selector
from scheduling.cel.clauses import operands

#: What a browser sends: every field's values by its name.
Sent = MultiValueDict[str, str]
#: The fields that may stand in an address.
DRAFTED = frozenset({"name", "selector", "driver", "parameters", "extended"})
#: Characters of a query that every browser, proxy and chat takes.
LONGEST = 6_000


class SteadyField(PlacedField):
    """A field whose errors come and go while the person types: the element for them is always there."""

    @property
    def error_id(self) -> str:
        return f"error-{self.auto_id}"

    @property
    def aria_describedby(self) -> str | None:
        return self.error_id

    @property
    def error_block(self) -> SafeString:
        said = format_html('<p class="field-error" role="alert">{}</p>', " ".join(map(str, self.errors)))
        return format_html('<div id="{}">{}</div>', self.error_id, said if self.errors else "")


class RowForm(PageForm):
    """One of several rows. place: counted from 0; in the row that a script copies, what it replaces."""

    bound_field_class = SteadyField

    def __init__(self, place: int | str, **data: str) -> None:
        self.place, self.ids = place, f"%s-{place}"
        super().__init__(data)
        self.full_clean()

    @property
    def number(self) -> int | str:
        return self.place + 1 if isinstance(self.place, int) else ""

    @property
    def blank(self) -> bool:
        return not any(self.text(name) for name in self.fields)


class SelectorRow(RowForm):
    """judged: what the devices say to it."""

    selector = forms.CharField(
        required=False,
        strip=False,
        widget=code_area(
            'device.driver == "gpu.example.com"',
            rows="1",
            **{
                "data-editor": "cel",
                "data-completions": reverse_lazy("class-completions"),
                "data-diagnostics": reverse_lazy("class-diagnostics", args=["cel"]),
            },
        ),
    )
    judged: Judged | None = None

    @property
    def expression(self) -> str:
        return self.text("selector")

    @property
    def result(self) -> str:
        """Beside its label."""
        if self.judged is None:
            return "blank, ignored"
        if self.judged.error:
            return format_html('<span class="field-error">{}</span>', "does not compile")
        return f"keeps {known_figure(self.judged.kept, 'devices')} of {known_figure(self.judged.reached, 'devices')}"

    @property
    def refusals(self) -> list[str]:
        """The API's own words, unless the compiler has said the same."""
        return [] if self.judged and self.judged.error else [str(error) for error in self["selector"].errors]


class ConfigRow(RowForm):
    """One driver's configuration."""

    driver = forms.CharField(required=False, widget=code_input("gpu.example.com", list="drivers"))
    parameters = forms.CharField(
        required=False,
        strip=False,
        widget=code_area(
            "apiVersion: gpu.example.com/v1",
            rows="4",
            **{"data-editor": "yaml", "data-diagnostics": reverse_lazy("class-diagnostics", args=["parameters"])},
        ),
    )

    def clean_parameters(self) -> dict[str, Any]:
        if self.blank:
            return {}
        try:
            value = read_yaml(self.cleaned_data["parameters"])
        except YamlProblem as problem:
            place = f"Line {problem.finding['line']}, column {problem.finding['column']}"
            raise forms.ValidationError(f"{place}: {problem.finding['message']}") from None
        if not isinstance(value, dict):
            raise forms.ValidationError("Parameters must be a mapping, for example `apiVersion: gpu.example.com/v1`.")
        return value

    @property
    def result(self) -> SafeString | str:
        """Beside the label of the parameters."""
        if self["parameters"].errors:
            return format_html('<span class="state field-error">{} Not accepted</span>', mark("err"))
        return "" if self.blank else format_html('<span class="state good-word">{} Parses</span>', mark("ok"))


class ClassForm(PageForm):
    """resource_version: of the class that the person saw when the form opened."""

    bound_field_class = SteadyField

    name = forms.CharField(required=False, widget=code_input("gpu-large", required=True, autofocus=True))
    extended = forms.CharField(
        required=False,
        widget=code_input("example.com/gpu", **{"aria-describedby": "error-extended hint-extended"}),
    )
    resource_version = forms.CharField(required=False, widget=forms.HiddenInput)

    def __init__(self, sent: Sent | None = None) -> None:
        """Strips the values, but for editors, where only the line ends are made alike."""
        editors = ("selector", "parameters")
        self.sent = Sent(
            {
                name: [text.replace("\r\n", "\n") if name in editors else text.strip() for text in texts]
                for name, texts in (sent or Sent()).lists()
            }
        )
        self.selectors = [SelectorRow(place, selector=text) for place, text in enumerate(self._texts)]
        pairs = enumerate(zip(self.sent.getlist("driver"), self.sent.getlist("parameters"), strict=False))
        self.configs = [ConfigRow(place, driver=driver, parameters=text) for place, (driver, text) in pairs]
        super().__init__(self.sent)

    @property
    def _texts(self) -> list[str]:
        return self.sent.getlist("selector") or [""]

    @property
    def wrong(self) -> bool:
        return any(form.errors for form in (self, *self.selectors, *self.configs))

    @property
    def kept_selectors(self) -> list[SelectorRow]:
        return [row for row in self.selectors if not row.blank]

    @property
    def kept_configs(self) -> list[ConfigRow]:
        return [row for row in self.configs if not row.blank]

    def with_selector(self, place: int, text: str) -> ClassForm:
        """The form with another text in the selector of this place, which may be the next one."""
        return self._with(selector=[*self._texts[:place], text, *self._texts[place + 1 :]])

    def with_blank_config(self) -> ClassForm:
        return self._with(**{name: [*self.sent.getlist(name), ""] for name in ("driver", "parameters")})

    def with_query(self, query: Sent) -> ClassForm:
        """The form with what the address says; a stored class keeps its name."""
        drafted = DRAFTED - {"name"} if self.text("name") else DRAFTED
        form = self._with(**{name: query.getlist(name) for name in query.keys() & drafted})
        form.configs = form.kept_configs
        return form

    def _with(self, **changed: list[str]) -> ClassForm:
        sent = self.sent.copy()
        for name, texts in changed.items():
            sent.setlist(name, texts)
        return ClassForm(sent)


def from_class(device_class: DeviceClass) -> ClassForm:
    """The form that shows an existing class."""
    spec = device_class.spec
    opaque = [config.opaque for config in spec.config if config.opaque]
    fields = {
        "name": [device_class.metadata.name],
        "selector": [selector.cel.expression for selector in spec.selectors if selector.cel],
        "driver": [entry.driver for entry in opaque],
        "parameters": [dump(entry.parameters) for entry in opaque],
        "extended": [spec.extended_resource_name or ""],
        "resource_version": [device_class.metadata.resource_version],
    }
    return ClassForm(Sent(fields))


def to_class(form: ClassForm, *, existing: DeviceClass | None) -> DeviceClass:
    """The class that the form describes; what the form does not show is kept from `existing`."""
    base = existing or DeviceClass(api_version="resource.k8s.io/v1", kind="DeviceClass")
    selectors = [CELDeviceSelector(expression=row.expression) for row in form.kept_selectors]
    configs = [
        # The form has no parameters if they are wrong.
        OpaqueDeviceConfiguration(driver=row.text("driver"), parameters=row.cleaned_data.get("parameters", {}))
        for row in form.kept_configs
    ]
    spec = structs.replace(
        base.spec,
        selectors=tuple(DeviceSelector(cel=selector) for selector in selectors),
        config=tuple(DeviceClassConfiguration(opaque=config) for config in configs),
        extended_resource_name=form.text("extended") or None,
    )
    name, version = form.text("name") or base.metadata.name, form.text("resource_version")
    metadata = structs.replace(base.metadata, name=name, resource_version=version)
    return structs.replace(base, metadata=metadata, spec=spec)


def guarded(expression: str, guard: str) -> str:
    """The expression, evaluated only if the guard holds."""
    text = expression.strip()
    binds_looser = len(operands(text)) == 1 and any(operator in text for operator in ("||", "?"))
    return f"{guard} &&\n({text})" if binds_looser else f"{guard} &&\n{text}"


def complain(form: ClassForm, causes: Iterable[dict[str, str]]) -> None:
    """Add the causes of a Status (`field`, `message`) to the fields that they are about."""
    for cause in causes:
        row, name = _field_at(form, cause.get("field", ""))
        row.add_error(name, cause.get("message", ""))


def _field_at(form: ClassForm, path: str) -> tuple[PageForm, str | None]:
    """The form or row, and the field, of an API path such as `spec.selectors[1].cel.expression`."""
    if path.startswith("metadata."):
        return form, "name"
    if path == "spec.extendedResourceName":
        return form, "extended"
    head, _, rest = path.partition("[")
    number, _, tail = rest.partition("]")
    if number.isdigit() and head == "spec.selectors" and int(number) < len(form.kept_selectors):
        return form.kept_selectors[int(number)], "selector"
    if number.isdigit() and head == "spec.config" and int(number) < len(form.kept_configs):
        return form.kept_configs[int(number)], "driver" if tail.endswith("driver") else "parameters"
    return form, None


@dataclass(frozen=True, slots=True)
class Draft:
    """What is typed and not saved. query: as an address, "" if nothing is, or if it is too long for one."""

    query: str = ""
    too_long: bool = False

    @property
    def unsaved(self) -> bool:
        return bool(self.query) or self.too_long


def draft_of(form: ClassForm, stored: ClassForm) -> Draft:
    """How `form` differs from what is stored (for a new class: from the blank form)."""
    pairs: list[tuple[str, str]] = []
    if form.text("name") != stored.text("name"):
        pairs.append(("name", form.text("name")))
    selectors, selectors_before = ([row.expression for row in one.kept_selectors] for one in (form, stored))
    if selectors != selectors_before:
        pairs += [("selector", text) for text in selectors or [""]]
    configs, configs_before = (
        [(row.text("driver"), str(row["parameters"].value()).rstrip()) for row in one.kept_configs]
        for one in (form, stored)
    )
    if configs != configs_before:
        for driver, parameters in configs or [("", "")]:
            pairs += [("driver", driver), ("parameters", parameters)]
    if form.text("extended") != stored.text("extended"):
        pairs.append(("extended", form.text("extended")))
    query = urlencode(pairs)
    return Draft(too_long=True) if len(query) > LONGEST else Draft(query)


# A class as YAML -----------------------------------------------------------------------------------------------------


def manifest(device_class: DeviceClass, *, server: bool = False) -> str:
    """server: with what the server keeps, as `kubectl get -o yaml` shows it."""
    document = codec.to_builtins(device_class)
    dropped = ("managedFields",) if server else KEPT_BY_SERVER
    metadata = document.get("metadata", {})
    document["metadata"] = {name: value for name, value in metadata.items() if name not in dropped}
    return dump(document)


class Unreadable(ValueError):
    """A text is no DeviceClass. `findings` say where."""

    def __init__(self, findings: list[Finding]) -> None:
        super().__init__(findings[0]["message"])
        self.findings = findings


def parse(text: str, *, name: str = "") -> DeviceClass:
    """The class that a text describes. name: that it must have. Raises: Unreadable."""
    try:
        document = read_yaml(text)
    except YamlProblem as problem:
        raise Unreadable([problem.finding]) from None
    if not isinstance(document, dict):
        raise Unreadable([finding(1, 1, "A DeviceClass is a mapping with apiVersion, kind, metadata and spec.")])
    try:
        device_class = codec.decode_document(kind(CLASSES), document, strictness="Strict").object
    except ApiError as refusal:
        raise Unreadable(refusals(text, refusal)) from None
    if not isinstance(device_class, DeviceClass):
        raise Unreadable([finding(*place_of(text, "kind"), "The kind must be DeviceClass.")])
    if name and device_class.metadata.name != name:
        message = f"The name stays {name}. Make a new class instead."
        raise Unreadable([finding(*place_of(text, "metadata.name"), message)])
    return structs.replace(device_class, metadata=structs.replace(device_class.metadata, managed_fields=()))


def refusals(text: str, refusal: ApiError) -> list[Finding]:
    """What the API says against a text, at its fields."""
    causes = (refusal.details or {}).get("causes")
    if causes:
        return at_paths(text, causes)
    path = refusal.message.partition('unknown field "')[2].partition('"')[0]
    said = refusal.message.rpartition("cannot be handled as a DeviceClass: ")[2]
    return [finding(*place_of(text, path), said.removeprefix("strict decoding error: "))]


# Diagnostics: what editors show under a text -------------------------------------------------------------------------

_PROBLEM = re.compile(r"ERROR: <input>:(\d+):(\d+): ([^\n]*)")
_OVERLOAD = re.compile(r"found no matching overload for '([^']+)' applied to '(.*)'$")
_UNDECLARED = re.compile(r"undeclared reference to '([^']+)'")
_FIELD = re.compile(r"undefined field '([^']+)'")
_OPERATORS = re.compile(r"_(==|!=|<=|>=|<|>|\+|-|\*|/|%)_")
_SYNTAX = "Syntax error: "
#: What other languages write -> CEL's operator.
_OPERATOR_OF = {"=": "==", "&": "&&", "|": "||", "and": "&&", "AND": "&&", "or": "||", "OR": "||"}
_FOREIGN = re.compile(r"Syntax error: (?:token recognition error at: |extraneous input )'(=|&|\||and|AND|or|OR)'")
_CURLY = re.compile(r"Syntax error: token recognition error at: '[\u2018-\u201f]")
#: What a device has.
_FIELDS = ("driver", "attributes", "capacity", "allowMultipleAllocations")
_VERSION = re.compile(r"v?(\d+)(?:\.(\d+))?(?:\.(\d+))?")
#: Methods that compare with a value of the same type -> the functions that make their argument.
_COMPARING = {"isGreaterThan": ("semver", "quantity"), "isLessThan": ("semver", "quantity"), "compareTo": ("quantity",)}


def of_class(text: str, name: str) -> list[Finding]:
    """Why the text cannot be saved as the class of this name."""
    try:
        device_class = parse(text, name=name)
    except Unreadable as problem:
        return problem.findings
    causes = [{"field": error.field, "message": error.body} for error in kind(CLASSES).validate_create(device_class)]
    return at_paths(text, causes)


def of_parameters(text: str) -> list[Finding]:
    """Why the text cannot be a driver's parameters."""
    if not text.strip():
        return []
    try:
        value = read_yaml(text)
    except YamlProblem as problem:
        return [problem.finding]
    if not isinstance(value, dict):
        return [finding(1, 1, "Parameters are a mapping.", hint="For example apiVersion: gpu.example.com/v1")]
    size = len(codec.encode(value))
    if size > PARAMETERS_MAX:
        return [finding(1, 1, f"Parameters have {size:,} bytes as JSON; the limit is {PARAMETERS_MAX:,}.")]
    return []


def of_expression(expression: str, features: CelFeatures) -> list[Finding]:
    """Why the expression cannot be a selector. Rests on the compiler's own words and places."""
    if not expression.strip():
        return []
    try:
        selector = compile_new_selector(expression, features)
    except CompileError as error:
        return [*_problems(expression, error)]
    if selector.exceeds_cost_limit:
        cost = f"{selector.estimated_max_cost:,} of {COST_LIMIT:,}"
        message = f"It may cost too much: {cost}."
        return [finding(1, 1, message, hint="Use fewer attributes or shorter lists.")]
    return []


def _problems(expression: str, error: CompileError) -> Iterator[Finding]:
    """The compiler's findings as sentences; its own text where there is nothing plainer to say."""
    places = [(int(line), int(column), text) for line, column, text in _PROBLEM.findall(error.message)]
    if not places:
        yield finding(1, 1, sentence(error.message.removeprefix("compilation failed: ")))
    for line, column, text in places:
        if match := _OVERLOAD.search(text):
            yield _overload(expression, line, column, match[1], match[2])
        elif match := _UNDECLARED.search(text):
            yield _undeclared(line, column, match[1])
        elif match := _FOREIGN.match(text):
            message = f"{match[1]} is no operator here."
            yield _replaced(line, column, match[1], _OPERATOR_OF[match[1]], message=message)
        elif _CURLY.match(text):
            yield finding(line, column, "Strings are in straight quotes.", hint='Write "…".')
        elif match := _FIELD.search(text):
            hint = f"It has {', '.join(_FIELDS[:-1])} and {_FIELDS[-1]}."
            yield finding(line, column, f"device has no field {match[1]}.", hint=hint)
        elif "<EOF>" in text and text.startswith(_SYNTAX):
            yield finding(line, column, "The expression ends before it is complete.")
        elif text.startswith((f"{_SYNTAX}token recognition error at: '\"", f"{_SYNTAX}token recognition error at: ''")):
            yield finding(line, column, "A string is not closed.", hint="Close it with the quote that opens it.")
        elif text.startswith(_SYNTAX):
            yield finding(line, column, f"Unexpected: {text.removeprefix(_SYNTAX)}.")
        else:
            yield finding(line, column, sentence(text))


def _undeclared(line: int, column: int, name: str) -> Finding:
    if name in _FIELDS:
        return _replaced(line, column, name, f"device.{name}", message=f"{name} is unknown here.")
    return finding(line, column, f"{name} is unknown here.", hint=f'The only variable is device; texts are "{name}".')


def _replaced(line: int, column: int, written: str, meant: str, *, message: str) -> Finding:
    """A finding whose fix puts `meant` in the place of `written`."""
    end = column + len(written)
    return Finding(
        line=line,
        column=column,
        end_line=line,
        end_column=end,
        severity="error",
        message=message,
        hint=f"Write {meant}.",
        fix=Fix(line=line, column=column, end_line=line, end_column=end, label="Apply fix", insert=meant),
    )


def _overload(expression: str, line: int, column: int, function: str, applied: str) -> Finding:
    """function, applied: as the compiler names them, with types for the arguments."""
    if function in _COMPARING and applied.endswith("(string)"):
        return _unwrapped(expression, line, column, function, applied)
    operator = _OPERATORS.fullmatch(function)
    types = [_type(part) for part in applied.strip("()").split(", ")]
    if operator and types[0] == "quantity":
        hint = f'Write .compareTo(quantity("…")) {operator[1]} 0.' if operator[1] != "+" else "Write .add(quantity(…))."
        return finding(line, column, f"Quantities cannot be compared with {operator[1]}.", hint=hint)
    if operator:
        return finding(line, column, f"{operator[1]} does not go with {' and '.join(types)}.")
    target, dot, given = applied.partition(".")
    said = f"{function} is not known for {_type(target)} with" if dot else f"{function} does not take"
    return finding(line, column, f"{said} ({', '.join(map(_type, given.strip('()').split(', ')))}).")


def _unwrapped(expression: str, line: int, column: int, function: str, applied: str) -> Finding:
    """A string in the place of a version or a quantity. Attributes are versions, and capacities quantities."""
    lines = expression.split("\n")
    literal = re.compile(r"\(\s*(\"[^\"]*\"|'[^']*')\s*\)").match(lines[line - 1], column - 1)
    expected = next((name for name in _COMPARING[function] if name.capitalize() in applied), "")
    before = "\n".join([*lines[: line - 1], lines[line - 1][: column - 1]])
    if not expected and "semver" in _COMPARING[function]:
        at = {maker: before.rfind(field) for maker, field in (("semver", "attributes"), ("quantity", "capacity"))}
        expected = max(at, key=lambda maker: at[maker]) if max(at.values()) >= 0 else ""
    if not literal:
        return finding(line, column, f"{function} needs a {expected or 'semver or a quantity'}, not a string.")
    maker = expected or ("semver" if "semver" in _COMPARING[function] else "quantity")
    quote, text = literal[1][0], literal[1][1:-1]
    if maker == "semver" and (short := _VERSION.fullmatch(text)):  # a version has three numbers
        text = ".".join(part or "0" for part in short.groups())
    message = f"{function} needs a {maker}, not a string."
    return _replaced(line, literal.start(1) + 1, literal[1], f"{maker}({quote}{text}{quote})", message=message)


def _type(name: str) -> str:
    plain = {"kubernetes.Quantity": "quantity", "kubernetes.Semver": "semver", "dyn": "an attribute"}
    return plain.get(name, name)

"""The DeviceClass form: from what a browser sends to a DeviceClass, and errors back to their fields.

The form has one `name`, any number of `selector`s, any number of (`driver`, `parameters`) pairs, where parameters are
YAML, and one `extended` resource name. Selectors and pairs are rows, each a form of its own, whose inputs bear the same
names; the browser makes more of them. Blank rows are left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django import forms
from django.urls import reverse_lazy
from django.utils.datastructures import MultiValueDict
from msgspec import structs

from dashboard.inventory.classes.diagnostics import YamlProblem, read_yaml
from dashboard.inventory.classes.verdicts import Judged
from dashboard.kit.differences import dump
from dashboard.kit.forms import PageForm, PlacedField, code_area, code_input
from inventory.kinds.devices import (
    CELDeviceSelector,
    DeviceClass,
    DeviceClassConfiguration,
    DeviceSelector,
    OpaqueDeviceConfiguration,
)
from manciple.wire.base import ObjectMeta
from scheduling.cel.clauses import operands

#: What a browser sends: every field's values by its name.
Sent = MultiValueDict[str, str]
#: The fields that may stand in an address.
DRAFTED = frozenset({"name", "selector", "driver", "parameters", "extended"})


class SteadyField(PlacedField):
    """A field whose errors come and go while the person types: it always names their place."""

    @property
    def error_id(self) -> str:
        return f"error-{self.auto_id}"

    @property
    def aria_describedby(self) -> str | None:
        return self.error_id


class RowForm(PageForm):
    """One of several rows. place: counted from 0; what the browser replaces in the row that it copies."""

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
    #: what the devices say to it, once they were asked
    judged: Judged | None = None

    @property
    def expression(self) -> str:
        return self.text("selector")

    @property
    def refusals(self) -> list[str]:
        """The API's own words, where the compiler has not said the same."""
        return [] if self.judged and self.judged.error else [str(one) for one in self["selector"].errors]


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


class ClassForm(PageForm):
    """resource_version: that of the class which the person saw when the form opened."""

    bound_field_class = SteadyField

    name = forms.CharField(required=False, widget=code_input("gpu-large", required=True, autofocus=True))
    extended = forms.CharField(
        required=False,
        widget=code_input("example.com/gpu", **{"aria-describedby": "error-extended hint-extended"}),
    )
    resource_version = forms.CharField(required=False, widget=forms.HiddenInput)

    def __init__(self, sent: Sent | None = None) -> None:
        self.sent = _tidy(sent or Sent())
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
        texts = self._texts
        return self._with(selector=[*texts[:place], text, *texts[place + 1 :]])

    def with_blank_config(self) -> ClassForm:
        return self._with(**{name: [*self.sent.getlist(name), ""] for name in ("driver", "parameters")})

    def with_query(self, query: Sent) -> ClassForm:
        """The form with what the address says; a class that is stored keeps its name."""
        sent = self.sent.copy()
        drafted = DRAFTED - {"name"} if self.text("name") else DRAFTED
        for name in query.keys() & drafted:
            sent.setlist(name, query.getlist(name))
        form = ClassForm(sent)
        form.configs = form.kept_configs
        return form

    def _with(self, **changed: list[str]) -> ClassForm:
        sent = self.sent.copy()
        for name, texts in changed.items():
            sent.setlist(name, texts)
        return ClassForm(sent)


def _tidy(sent: Sent) -> Sent:
    """Without blanks around what is no text of several lines, and with the same line ends everywhere."""
    lines = ("selector", "parameters")
    return Sent(
        {
            name: [text.replace("\r\n", "\n") if name in lines else text.strip() for text in texts]
            for name, texts in sent.lists()
        }
    )


def from_class(device_class: DeviceClass) -> ClassForm:
    """The form that shows an existing class."""
    spec = device_class.spec
    opaque = [config.opaque for config in spec.config if config.opaque]
    return ClassForm(
        Sent(
            {
                "name": [device_class.metadata.name],
                "selector": [selector.cel.expression for selector in spec.selectors if selector.cel],
                "driver": [entry.driver for entry in opaque],
                "parameters": [dump(entry.parameters) for entry in opaque],
                "extended": [spec.extended_resource_name or ""],
                "resource_version": [device_class.metadata.resource_version],
            }
        )
    )


def to_class(form: ClassForm, *, existing: DeviceClass | None) -> DeviceClass:
    """The class that the form describes; what the form does not show is kept from `existing`."""
    base = existing or DeviceClass(api_version="resource.k8s.io/v1", kind="DeviceClass")
    spec = structs.replace(
        base.spec,
        selectors=tuple(
            DeviceSelector(cel=CELDeviceSelector(expression=row.expression)) for row in form.kept_selectors
        ),
        config=tuple(map(_configuration, form.kept_configs)),
        extended_resource_name=form.text("extended") or None,
    )
    return structs.replace(base, metadata=_metadata(form, base.metadata), spec=spec)


def _metadata(form: ClassForm, base: ObjectMeta) -> ObjectMeta:
    return structs.replace(base, name=form.text("name") or base.name, resource_version=form.text("resource_version"))


def _configuration(row: ConfigRow) -> DeviceClassConfiguration:
    parameters = row.cleaned_data.get("parameters", {})  # none where they are wrong
    return DeviceClassConfiguration(opaque=OpaqueDeviceConfiguration(driver=row.text("driver"), parameters=parameters))


def guarded(expression: str, guard: str) -> str:
    """The expression, asked only where the guard holds."""
    text = expression.strip()
    looser = len(operands(text)) == 1 and any(operator in text for operator in ("||", "?"))
    return f"{guard} &&\n({text})" if looser else f"{guard} &&\n{text}"


def complain(form: ClassForm, causes: Iterable[dict[str, str]]) -> None:
    """Put the causes of a Status (`field`, `message`) at the fields that they are about."""
    for cause in causes:
        row, name = _place_of(form, cause.get("field", ""))
        row.add_error(name, cause.get("message", ""))


def _place_of(form: ClassForm, path: str) -> tuple[PageForm, str | None]:
    """Where an API path such as `spec.selectors[1].cel.expression` stands: the form or its row, and the field."""
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


# What is typed and not saved, as an address: a link shows what I see -------------------------------------------------


#: Characters of a query that every browser, proxy and chat takes.
LONGEST = 6_000


@dataclass(frozen=True, slots=True)
class Draft:
    """query: the address of what is not saved, "" where nothing is, or where it is too long for one."""

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
    if _selectors(form) != _selectors(stored):
        pairs += [("selector", text) for text in _selectors(form) or [""]]
    if _configs(form) != _configs(stored):
        for driver, parameters in _configs(form) or [("", "")]:
            pairs += [("driver", driver), ("parameters", parameters)]
    if form.text("extended") != stored.text("extended"):
        pairs.append(("extended", form.text("extended")))
    query = urlencode(pairs)
    return Draft(too_long=True) if len(query) > LONGEST else Draft(query)


def _selectors(form: ClassForm) -> list[str]:
    return [row.expression for row in form.kept_selectors]


def _configs(form: ClassForm) -> list[tuple[str, str]]:
    return [(row.text("driver"), str(row["parameters"].value()).rstrip()) for row in form.kept_configs]

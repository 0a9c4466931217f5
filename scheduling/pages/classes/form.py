"""The DeviceClass form: from what a browser sends to a DeviceClass, and errors back to their fields. Pure.

The form has one `name`, any number of `selector`s, any number of (`driver`, `parameters`) pairs, where parameters are
YAML, and one `extended` resource name. Blank selectors and wholly blank pairs are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlencode

from msgspec import structs

from inventory.kinds.devices import (
    CELDeviceSelector,
    DeviceClass,
    DeviceClassConfiguration,
    DeviceSelector,
    OpaqueDeviceConfiguration,
)
from manciple.wire.base import ObjectMeta
from scheduling.cel.clauses import operands
from scheduling.pages.classes.diagnostics import YamlProblem, read_yaml
from scheduling.pages.history.differences import dump


@dataclass(frozen=True, slots=True)
class ConfigText:
    """One driver's configuration as it is typed. `parameters` is YAML."""

    driver: str = ""
    parameters: str = ""

    @property
    def blank(self) -> bool:
        return not self.driver.strip() and not self.parameters.strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassForm:
    """What stands in the form. `resource_version` is that of the class which the person saw when the form opened."""

    name: str = ""
    selectors: tuple[str, ...] = ("",)
    configs: tuple[ConfigText, ...] = ()
    extended: str = ""
    resource_version: str = ""


@dataclass(frozen=True, slots=True)
class FormErrors:
    """Messages by field: "name", "extended", "selector-0", "config-0-driver", "config-0-parameters"; or ""."""

    by_field: dict[str, list[str]] = field(default_factory=dict)

    def add(self, name: str, message: str) -> None:
        self.by_field.setdefault(name, []).append(message)

    def __bool__(self) -> bool:
        return bool(self.by_field)


def from_class(device_class: DeviceClass) -> ClassForm:
    """The form that shows an existing class."""
    spec = device_class.spec
    opaque = [config.opaque for config in spec.config if config.opaque]
    return ClassForm(
        name=device_class.metadata.name,
        selectors=tuple(selector.cel.expression for selector in spec.selectors if selector.cel) or ("",),
        configs=tuple(ConfigText(entry.driver, dump(entry.parameters)) for entry in opaque),
        extended=spec.extended_resource_name or "",
        resource_version=device_class.metadata.resource_version,
    )


def from_post(data: Any) -> ClassForm:
    """The form as a browser sent it (`data`: Django's QueryDict)."""
    pairs = zip(data.getlist("driver"), data.getlist("parameters"), strict=False)
    return ClassForm(
        name=data.get("name", "").strip(),
        selectors=tuple(text.replace("\r\n", "\n") for text in data.getlist("selector")) or ("",),
        configs=tuple(ConfigText(driver.strip(), text.replace("\r\n", "\n")) for driver, text in pairs),
        extended=data.get("extended", "").strip(),
        resource_version=data.get("resource_version", ""),
    )


def to_class(form: ClassForm, *, existing: DeviceClass | None, errors: FormErrors) -> DeviceClass:
    """The class that the form describes; what the form does not show is kept from `existing`.

    Parameters that are not YAML are added to `errors`; everything else is for the API's validation to judge.
    """
    base = existing or DeviceClass(api_version="resource.k8s.io/v1", kind="DeviceClass")
    spec = structs.replace(
        base.spec,
        selectors=tuple(
            DeviceSelector(cel=CELDeviceSelector(expression=text.strip())) for _, text in kept_selectors(form)
        ),
        config=tuple(_configs(form, errors)),
        extended_resource_name=form.extended or None,
    )
    return structs.replace(base, metadata=_metadata(form, base.metadata), spec=spec)


def _metadata(form: ClassForm, base: ObjectMeta) -> ObjectMeta:
    return structs.replace(base, name=form.name or base.name, resource_version=form.resource_version)


def kept_selectors(form: ClassForm) -> list[tuple[int, str]]:
    """(place in the form, text) of the selectors that are not blank."""
    return [(index, text) for index, text in enumerate(form.selectors) if text.strip()]


def _configs(form: ClassForm, errors: FormErrors) -> list[DeviceClassConfiguration]:
    found = []
    for index, config in _kept_configs(form):
        parameters = _parse(config.parameters, field_name=f"config-{index}-parameters", errors=errors)
        opaque = OpaqueDeviceConfiguration(driver=config.driver, parameters=parameters)
        found.append(DeviceClassConfiguration(opaque=opaque))
    return found


def _kept_configs(form: ClassForm) -> list[tuple[int, ConfigText]]:
    return [(index, config) for index, config in enumerate(form.configs) if not config.blank]


def _parse(text: str, *, field_name: str, errors: FormErrors) -> Any:
    try:
        value = read_yaml(text)
    except YamlProblem as problem:
        place = f"Line {problem.finding['line']}, column {problem.finding['column']}"
        errors.add(field_name, f"{place}: {problem.finding['message']}")
        return {}
    if not isinstance(value, dict):
        errors.add(field_name, "Parameters must be a mapping, for example `apiVersion: gpu.example.com/v1`.")
        return {}
    return value


def guarded(expression: str, guard: str) -> str:
    """The expression, asked only where the guard holds."""
    text = expression.strip()
    looser = len(operands(text)) == 1 and any(operator in text for operator in ("||", "?"))
    return f"{guard} &&\n({text})" if looser else f"{guard} &&\n{text}"


def place_causes(form: ClassForm, causes: Sequence[dict[str, str]], errors: FormErrors) -> None:
    """Put the causes of a Status (`field`, `message`) under the fields of the form that they are about."""
    selectors = [index for index, _ in kept_selectors(form)]
    configs = [index for index, _ in _kept_configs(form)]
    for cause in causes:
        errors.add(_field_of(cause.get("field", ""), selectors, configs), cause.get("message", ""))


def _field_of(path: str, selectors: Sequence[int], configs: Sequence[int]) -> str:
    """The form's field for an API path such as `spec.selectors[1].cel.expression`."""
    if path.startswith("metadata."):
        return "name"
    if path == "spec.extendedResourceName":
        return "extended"
    head, _, rest = path.partition("[")
    number, _, tail = rest.partition("]")
    if number.isdigit() and head == "spec.selectors" and int(number) < len(selectors):
        return f"selector-{selectors[int(number)]}"
    if number.isdigit() and head == "spec.config" and int(number) < len(configs):
        part = "driver" if tail.endswith("driver") else "parameters"
        return f"config-{configs[int(number)]}-{part}"
    return ""


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
    if form.name != stored.name:
        pairs.append(("name", form.name))
    if _selectors(form) != _selectors(stored):
        pairs += [("selector", text) for text in _selectors(form) or ("",)]
    if _drafted_configs(form) != _drafted_configs(stored):
        for config in _drafted_configs(form) or (ConfigText(),):
            pairs += [("driver", config.driver), ("parameters", config.parameters)]
    if form.extended != stored.extended:
        pairs.append(("extended", form.extended))
    query = urlencode(pairs)
    return Draft(too_long=True) if len(query) > LONGEST else Draft(query)


def from_query(query: Any, stored: ClassForm) -> ClassForm:
    """The form with what the address says (`query`: Django's QueryDict)."""
    form = stored
    if "name" in query and not stored.name:
        form = replace(form, name=query["name"].strip())
    if "selector" in query:
        form = replace(form, selectors=tuple(map(_lines, query.getlist("selector"))))
    if "driver" in query or "parameters" in query:
        typed = zip(query.getlist("driver"), query.getlist("parameters"), strict=False)
        configs = (ConfigText(driver.strip(), _lines(text)) for driver, text in typed)
        form = replace(form, configs=tuple(config for config in configs if not config.blank))
    if "extended" in query:
        form = replace(form, extended=query["extended"].strip())
    return form


def _lines(text: str) -> str:
    return text.replace("\r\n", "\n")


def _selectors(form: ClassForm) -> tuple[str, ...]:
    return tuple(text.strip() for text in form.selectors if text.strip())


def _drafted_configs(form: ClassForm) -> tuple[ConfigText, ...]:
    return tuple(ConfigText(config.driver, config.parameters.rstrip()) for config in form.configs if not config.blank)

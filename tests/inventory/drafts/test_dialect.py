"""Selectors of the KEP-4381 draft: what they mean, and that their translation means the same on every device.

The draft's semantics stand here once more, as an evaluator of its own over expressions that are made at random; it
knows neither our parser nor CEL's functions.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inventory.drafts.structured.dialect import translated
from inventory.kinds.devices import Device, DeviceAttribute, DeviceCapacity
from manciple.cel.errors import CompileError, EvaluationError
from scheduling.cel import compile_selector
from scheduling.cel.device import DeviceView
from tests.examples import some

DRIVER = "cards.dra.example.com"

# The draft's semantics ------------------------------------------------------------------------------------------------


class Mistaken(Exception):  # named as what the expression is
    """The expression has no value for this resource."""


@dataclass(frozen=True)
class Value:
    """type: as the draft calls it. content: a Fraction for a quantity, three numbers for a version."""

    type: Literal["quantity", "version", "string", "int", "bool", "list"]
    content: Any


Attributes = Mapping[str, Value]
SUFFIXES: Mapping[str, Fraction] = {
    "": Fraction(1), "k": Fraction(10**3), "Ki": Fraction(2**10), "Gi": Fraction(2**30), "m": Fraction(1, 1000)
}  # fmt: skip


def amount_of(text: str) -> Fraction:
    digits = text.rstrip("kKMGim")
    try:
        return Fraction(digits) * SUFFIXES[text[len(digits) :]]
    except (ValueError, KeyError, ZeroDivisionError):
        raise Mistaken(text) from None


def version_of(text: str) -> tuple[int, int, int]:
    parts = text.strip().removeprefix("v").split(".")
    if not 1 <= len(parts) <= 3 or not all(part.isascii() and part.isdigit() for part in parts):
        raise Mistaken(text)
    major, minor, patch = (*map(int, parts), 0, 0)[:3]
    return major, minor, patch


SIGNS = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


def compare(sign: str, left: Value, right: Value) -> bool:
    """left, right: of types that may differ; texts were read as the other's type already."""
    if left.type == right.type:
        if left.type == "list" and sign not in ("==", "!="):
            raise Mistaken("lists have no order")
        return bool(SIGNS[sign](left.content, right.content))
    if {"quantity", "version"} & {left.type, right.type} or sign not in ("==", "!="):
        raise Mistaken("values of different types")
    return sign == "!="


def read_as(given: Value, type_: str) -> Value:
    """A text or number beside an attribute of that type."""
    if type_ == "quantity" and given.type in ("string", "int"):
        return Value("quantity", amount_of(str(given.content)))
    if type_ == "version" and given.type == "string":
        return Value("version", version_of(given.content))
    return given


# Expressions ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Attribute:
    name: str
    style: int

    @property
    def text(self) -> str:
        return f'attributes["{self.name}"]' if self.style else f"attributes.{self.name}"

    def value(self, attributes: Attributes) -> Value:
        if self.name not in attributes:
            raise Mistaken(self.name)
        return attributes[self.name]


@dataclass(frozen=True)
class Constant:
    content: str | int | bool

    @property
    def text(self) -> str:
        if isinstance(self.content, bool):
            return str(self.content).lower()
        return f'"{self.content}"' if isinstance(self.content, str) else str(self.content)

    def value(self, _attributes: Attributes) -> Value:
        name: Any = {str: "string", int: "int", bool: "bool"}[type(self.content)]
        return Value(name, self.content)


@dataclass(frozen=True)
class Comparison:
    sign: str
    left: Attribute | Constant
    right: Attribute | Constant

    @property
    def text(self) -> str:
        return f"{self.left.text} {self.sign} {self.right.text}"

    def holds(self, attributes: Attributes) -> bool:
        left, right = self.left.value(attributes), self.right.value(attributes)
        if isinstance(self.left, Attribute) is not isinstance(self.right, Attribute):
            left, right = (
                read_as(left, right.type) if isinstance(self.left, Constant) else left,
                read_as(right, left.type) if isinstance(self.right, Constant) else right,
            )
        return compare(self.sign, left, right)


@dataclass(frozen=True)
class OneOf:
    attribute: Attribute
    choices: tuple[Constant, ...]

    @property
    def text(self) -> str:
        return f"{self.attribute.text} in [{', '.join(one.text for one in self.choices)}]"

    def holds(self, attributes: Attributes) -> bool:
        return Or(tuple(Comparison("==", self.attribute, one) for one in self.choices)).holds(attributes)


@dataclass(frozen=True)
class Present:
    name: str
    style: int
    type: str

    @property
    def text(self) -> str:
        if self.type:
            return f'"{self.name}" in attributes.{self.type}'
        return f'"{self.name}" in attributes' if self.style else f"has(attributes.{self.name})"

    def holds(self, attributes: Attributes) -> bool:
        found = attributes.get(self.name)
        return found is not None and self.type in ("", found.type)


@dataclass(frozen=True)
class Typed:
    """A map of one type: only what has the type is there."""

    type: Literal["quantity", "string", "int", "version"]
    name: str
    operand: str

    MEASURES = {"quantity": '.compareTo(quantity("{0}")) >= 0', "version": '.compareTo(semver("{0}.0.0")) >= 0'}

    @property
    def text(self) -> str:
        rest = {"string": ' >= "{0}"', "int": " >= {0}", **self.MEASURES}[self.type]
        return f'attributes.{self.type}["{self.name}"]' + rest.format(self.operand)

    def holds(self, attributes: Attributes) -> bool:
        found = attributes.get(self.name)
        if found is None or found.type != self.type:
            raise Mistaken(self.name)
        read: Any = {"quantity": amount_of, "version": version_of, "int": int, "string": str}[self.type]
        return bool(found.content >= read(self.operand))


@dataclass(frozen=True)
class Has:
    """One of the values of a list."""

    name: str
    number: int

    @property
    def text(self) -> str:
        return f'attributes["{self.name}"].exists(one, one == {self.number})'

    def holds(self, attributes: Attributes) -> bool:
        found = attributes.get(self.name)
        if found is None or found.type != "list":
            raise Mistaken(self.name)
        return self.number in found.content


@dataclass(frozen=True)
class Or:
    parts: tuple[Any, ...]

    @property
    def text(self) -> str:
        return "(" + " || ".join(part.text for part in self.parts) + ")"

    def holds(self, attributes: Attributes) -> bool:
        return any_of(self.parts, attributes, wanted=True)


@dataclass(frozen=True)
class And:
    parts: tuple[Any, ...]

    @property
    def text(self) -> str:
        return "(" + " && ".join(part.text for part in self.parts) + ")"

    def holds(self, attributes: Attributes) -> bool:
        return not any_of(self.parts, attributes, wanted=False)


def any_of(parts: tuple[Any, ...], attributes: Attributes, *, wanted: bool) -> bool:
    """One part that decides outweighs those that have no value."""
    mistaken = False
    for part in parts:
        try:
            if part.holds(attributes) is wanted:
                return True
        except Mistaken:
            mistaken = True
    if mistaken:
        raise Mistaken
    return False


@dataclass(frozen=True)
class Not:
    part: Any

    @property
    def text(self) -> str:
        return f"!({self.part.text})"

    def holds(self, attributes: Attributes) -> bool:
        return not self.part.holds(attributes)


@dataclass(frozen=True)
class Choice:
    condition: Any
    chosen: Any
    other: Any

    @property
    def text(self) -> str:
        return f"({self.condition.text} ? {self.chosen.text} : {self.other.text})"

    def holds(self, attributes: Attributes) -> bool:
        return bool((self.chosen if self.condition.holds(attributes) else self.other).holds(attributes))


# The two of them ------------------------------------------------------------------------------------------------------

NAMES = st.sampled_from(["memory", "runtimeVersion", "productName", "cores", "links", "absent"])
ATTRIBUTES = st.builds(Attribute, NAMES, st.integers(0, 1))
TEXTS = st.sampled_from(
    ["32Gi", "16Gi", "1024", "1k", "500m", "v12.0.0", "12.0.0", "11.1", "v1", "1.02.3", " v2.0.0", "ACME", "", "x1.2"]
)
CONSTANTS = st.builds(Constant, st.one_of(TEXTS, st.integers(-3, 2048), st.booleans()))
OPERANDS = st.one_of(ATTRIBUTES, CONSTANTS)
LEAVES = st.one_of(
    st.builds(Comparison, st.sampled_from(sorted(SIGNS)), ATTRIBUTES, OPERANDS),
    st.builds(Comparison, st.sampled_from(sorted(SIGNS)), CONSTANTS, ATTRIBUTES),
    st.builds(OneOf, ATTRIBUTES, st.lists(CONSTANTS, max_size=3).map(tuple)),
    st.builds(Present, NAMES, st.integers(0, 1), st.sampled_from(["", "", "quantity", "string", "int", "version"])),
    st.builds(
        Typed, st.sampled_from(["quantity", "string", "int", "version"]), NAMES, st.sampled_from(["1", "12", "3"])
    ),
    st.builds(Has, NAMES, st.integers(0, 3)),
)
EXPRESSIONS = st.recursive(
    LEAVES,
    lambda part: st.one_of(
        st.builds(Or, st.lists(part, min_size=2, max_size=3).map(tuple)),
        st.builds(And, st.lists(part, min_size=2, max_size=3).map(tuple)),
        st.builds(Not, part),
        st.builds(Choice, part, part, part),
    ),
    max_leaves=6,
)
#: (the value, the attribute or the capacity of today's that says it)
VALUES = st.one_of(
    st.sampled_from(["32Gi", "16Gi", "1k", "2048", "500m"]).map(
        lambda text: (Value("quantity", amount_of(text)), text)
    ),
    st.sampled_from(["12.0.0", "1.2.3", "11.1.42"]).map(
        lambda text: (Value("version", version_of(text)), DeviceAttribute(version_value=text))
    ),
    TEXTS.map(lambda text: (Value("string", text), DeviceAttribute(string_value=text))),
    st.integers(-3, 2048).map(lambda number: (Value("int", number), DeviceAttribute(int_value=number))),
    st.booleans().map(lambda flag: (Value("bool", flag), DeviceAttribute(bool_value=flag))),
    st.lists(st.integers(0, 3), min_size=1, max_size=3).map(
        lambda numbers: (Value("list", tuple(numbers)), DeviceAttribute(int_values=tuple(numbers)))
    ),
)


def device_with(given_: Mapping[str, tuple[Value, Any]]) -> DeviceView:
    amounts = {name: DeviceCapacity(value=one) for name, (_, one) in given_.items() if isinstance(one, str)}
    others = {name: one for name, (_, one) in given_.items() if not isinstance(one, str)}
    return DeviceView.of(DRIVER, Device(name="gpu-0", attributes=others, capacity=amounts))


def verdict(expression: str, device: DeviceView) -> bool | None:
    """None where there is none."""
    try:
        return compile_selector(translated(expression, DRIVER)).matches(device)
    except EvaluationError:
        return None


@settings(max_examples=some(60), deadline=None)
@given(EXPRESSIONS, st.dictionaries(NAMES.filter(lambda name: name != "absent"), VALUES))
def test_a_translated_selector_gives_the_verdict_that_the_draft_gives(
    expression: Any, given_: Mapping[str, tuple[Value, Any]]
) -> None:
    try:
        wanted: bool | None = expression.holds({name: value for name, (value, _) in given_.items()})
    except Mistaken:
        wanted = None
    assert verdict(expression.text, device_with(given_)) is wanted, translated(expression.text, DRIVER)


GPU_1 = {
    "UUID": (Value("string", ""), DeviceAttribute(string_value="GPU-6aa0af9e-a2be-88c8-d2b3-2240d25318d7")),
    "driverVersion": (Value("version", ""), DeviceAttribute(version_value="1.2.3")),
    "runtimeVersion": (Value("version", ""), DeviceAttribute(version_value="11.1.42")),
    "memory": (Value("quantity", ""), "32Gi"),
}


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        ('attributes["runtimeVersion"] >= "v12.0.0" && attributes["memory"] >= "32Gi"', False),
        ('attributes["runtimeVersion"] >= "v11.1" && attributes["memory"] >= "32Gi"', True),
        ('attributes["memory"] <= "16Gi"', False),
        ('attributes["memory"] >= quantity("1Gi") && attributes.runtimeVersion < semver("12.0.0")', True),
        ('attributes["UUID"].startsWith("GPU-")', True),
        ('attributes.quantity["memory"].isGreaterThan(quantity("31Gi"))', True),
        ('["memory", "UUID"].all(name, name in attributes)', True),
        ('cel.bind(least, "16Gi", attributes["memory"] >= "32Gi")', True),
        ('attributes["missing"] == "x"', None),
        ('attributes["memory"] == "much"', None),
    ],
)
def test_the_selectors_of_the_drafts_examples(expression: str, wanted: bool | None) -> None:
    assert verdict(expression, device_with(GPU_1)) is wanted


def test_a_selector_sees_only_what_its_driver_published() -> None:
    view = DeviceView.of("other.example.com", Device(name="x", capacity={"memory": DeviceCapacity(value="64Gi")}))
    assert verdict('attributes["memory"] >= "32Gi"', view) is False


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("size(attributes) > 1", "attributes can only be asked by name"),
        ("attributes.quantity == 1", "attributes can only be asked by name"),
        ('device.driver == "x"', "undeclared reference to 'device'"),
        ("[1].all(device, true)", "undeclared reference to 'device'"),
        ('attributes["memory"] >=', "Syntax error"),
    ],
)
def test_what_the_draft_does_not_know_is_refused(expression: str, message: str) -> None:
    with pytest.raises(CompileError, match=message.replace("(", r"\(")):
        translated(expression, DRIVER)

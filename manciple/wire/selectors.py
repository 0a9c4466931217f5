"""Selectors: which objects a list, a watch, a LabelSelector or a NodeSelector means.

Label selector text (`a=1,b in (x,y),!c,d>5`) and metav1.LabelSelector both become a `LabelSelector` of requirements;
field selector text becomes a `FieldSelector`; NodeSelector terms are matched directly. Sources:
apimachinery/pkg/labels/selector.go, pkg/fields/selector.go, component-helpers/scheduling/corev1/nodeaffinity.
Every parse error is a ValueError in upstream's words.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from manciple.wire.errors import forbidden, invalid, required, too_many
from manciple.wire.limits import short_text_cache
from manciple.wire.validation import Errors, Path, check_label_key, check_label_value, each, validate_labels

_TOKEN = re.compile(r"(==|!=|[=!,()<>])|([^\s=!,()<>]+)")
_INTEGER = re.compile(r"[+-]?[0-9]+")
_COMPARISONS = {"=": "=", "==": "=", "!=": "!=", ">": "Gt", "<": "Lt"}
_SET_OPERATORS = {"in": "In", "notin": "NotIn"}
_NODE_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")

#: Requirements of one selector, each of which is checked on every object or node that the selector is asked about.
#: Upstream has no limit. How many values a requirement lists makes no difference to that.
MOST_REQUIREMENTS = 100


@dataclass(frozen=True, slots=True)
class Requirement:
    """One condition on one label. operator: "=", "!=", "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"."""

    key: str
    operator: str
    values: tuple[str, ...] = ()
    _value_set: frozenset[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_value_set", frozenset(self.values))

    def matches(self, labels: Mapping[str, str]) -> bool:
        """A label that is absent satisfies "!=", NotIn and DoesNotExist, and nothing else."""
        value = labels.get(self.key)
        if self.operator in ("!=", "NotIn"):
            return value is None or value not in self._value_set
        if self.operator == "DoesNotExist":
            return value is None
        if value is None:
            return False
        if self.operator == "Exists":
            return True
        if self.operator in ("Gt", "Lt"):
            return _compares(value, self.operator, self.values)
        return value in self._value_set


@dataclass(frozen=True, slots=True)
class ParsedLabelSelector:
    """All requirements must hold; none means everything. `nothing` matches no object at all (a nil selector)."""

    requirements: tuple[Requirement, ...] = ()
    nothing: bool = False

    def matches(self, labels: Mapping[str, str]) -> bool:
        return not self.nothing and all(requirement.matches(labels) for requirement in self.requirements)

    @property
    def empty(self) -> bool:
        """Whether it selects everything."""
        return not self.requirements and not self.nothing


@dataclass(frozen=True, slots=True)
class FieldRequirement:
    """`field=value`, or `field!=value` where `equal` is false."""

    field: str
    value: str
    equal: bool = True


@dataclass(frozen=True, slots=True)
class FieldSelector:
    """All requirements must hold; a field that the kind does not have counts as ""."""

    requirements: tuple[FieldRequirement, ...] = ()

    def matches(self, fields: Mapping[str, str]) -> bool:
        return all((fields.get(one.field, "") == one.value) == one.equal for one in self.requirements)

    @property
    def empty(self) -> bool:
        return not self.requirements

    @property
    def mentions(self) -> tuple[str, ...]:
        """The longest value that some field must have, unless JSON would write it otherwise."""
        values = (one.value for one in self.requirements if one.equal and not _UNLIKE_JSON.search(one.value))
        longest = max(values, key=len, default="")
        return (longest,) if longest else ()


#: What JSON texts have escaped, or perhaps.
_UNLIKE_JSON = re.compile(r"[^ !#-\[\]-~]")


def _integer(text: str) -> int | None:
    return int(text) if _INTEGER.fullmatch(text) else None


def _compares(value: str, operator: str, values: Sequence[str]) -> bool:
    """Gt and Lt on whole numbers; false where either side is not one."""
    left = _integer(value)
    right = _integer(values[0]) if len(values) == 1 else None
    if left is None or right is None:
        return False
    return left > right if operator == "Gt" else left < right


# Label selector text -------------------------------------------------------------------------------------------------


class _Tokens:
    """The tokens of one selector text, with one token of look-ahead."""

    def __init__(self, text: str) -> None:
        self._tokens = [symbol or word for symbol, word in _TOKEN.findall(text)]
        self._at = 0

    def peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def take(self) -> str:
        token = self.peek()
        self._at += 1
        return token


def _is_word(token: str) -> bool:
    return token not in ("", "==", "!=", "=", "!", ",", "(", ")", "<", ">")


@short_text_cache(1024)
def parse_label_selector(text: str) -> ParsedLabelSelector:
    """Raises: ValueError "unable to parse requirement: ..." or "found '...', expected: ..."."""
    tokens = _Tokens(text)
    if not tokens.peek():
        return ParsedLabelSelector()
    return ParsedLabelSelector(tuple(sorted(_requirements(tokens), key=lambda requirement: requirement.key)))


def _requirements(tokens: _Tokens) -> Iterator[Requirement]:
    """Raises: ValueError."""
    for count in itertools.count(1):
        if count > MOST_REQUIREMENTS:
            raise ValueError(f"a selector may have at most {MOST_REQUIREMENTS} requirements")
        yield _requirement(tokens)
        separator = tokens.take()
        if not separator:
            return
        if separator != ",":
            raise ValueError(f"found '{separator}', expected: ',' or 'end of string'")
        if not (_is_word(tokens.peek()) or tokens.peek() == "!"):
            raise ValueError(f"found '{tokens.peek()}', expected: identifier after ','")


def _requirement(tokens: _Tokens) -> Requirement:
    absent = tokens.peek() == "!"
    if absent:
        tokens.take()
    key = tokens.take()
    if not _is_word(key):
        raise ValueError(f"unable to parse requirement: found '{key}', expected: identifier")
    if absent:
        return _checked(Requirement(key, "DoesNotExist"))
    operator = tokens.peek()
    if operator in ("", ","):
        return _checked(Requirement(key, "Exists"))
    tokens.take()
    if operator in _SET_OPERATORS:
        return _checked(Requirement(key, _SET_OPERATORS[operator], _value_set(tokens)))
    if operator in _COMPARISONS:
        value = tokens.take() if _is_word(tokens.peek()) else ""
        return _checked(Requirement(key, _COMPARISONS[operator], (value,)))
    expected = "in, notin, =, ==, !=, gt, lt"
    raise ValueError(f"unable to parse requirement: found '{operator}', expected: {expected}")


def _value_set(tokens: _Tokens) -> tuple[str, ...]:
    """`(a,b,)`: an empty place is the empty value, as upstream reads it."""
    opening = tokens.take()
    if opening != "(":
        raise ValueError(f"unable to parse requirement: found '{opening}' expected: '('")
    values: list[str] = []
    while True:
        values.append(tokens.take() if _is_word(tokens.peek()) else "")
        separator = tokens.take()
        if separator == ")":
            return tuple(sorted(set(values)))
        if separator != ",":
            raise ValueError(f"unable to parse requirement: found '{separator}', expected: ',' or ')'")


def _checked(requirement: Requirement) -> Requirement:
    problems = [f'key: Invalid value: "{requirement.key}": {message}' for message in check_label_key(requirement.key)]
    for index, value in enumerate(requirement.values):
        found = [*check_label_value(value)]
        if requirement.operator in ("Gt", "Lt") and _integer(value) is None:
            found.append("for 'Gt', 'Lt' operators, the value must be an integer")
        problems += [f'values[{index}][{requirement.key}]: Invalid value: "{value}": {message}' for message in found]
    if problems:
        joined = problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"
        raise ValueError(f"unable to parse requirement: {joined}")
    return requirement


# Field selector text -------------------------------------------------------------------------------------------------

_FIELD_TERM = re.compile(r"((?:[^\\=!]|\\.)*?)(!=|==|=)(.*)", re.DOTALL)
_FIELD_SEPARATOR = re.compile(r"((?:[^\\,]|\\.)*)(?:,|$)", re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


@short_text_cache(1024)
def parse_field_selector(text: str) -> FieldSelector:
    """`a=1,b!=2`; backslash escapes `\\`, `,` and `=` in values. Raises: ValueError "invalid selector: ..."."""
    terms = [term for match in _FIELD_SEPARATOR.finditer(text) if (term := match.group(1))]
    if len(terms) > MOST_REQUIREMENTS:
        raise ValueError(f"invalid selector: it may have at most {MOST_REQUIREMENTS} requirements")
    return FieldSelector(tuple(_field_requirement(term, text) for term in terms))


def _field_requirement(term: str, whole: str) -> FieldRequirement:
    parts = _FIELD_TERM.fullmatch(term)
    if parts is None:
        raise ValueError(f"invalid selector: '{whole}'; can't understand '{term}'")
    field, operator, value = parts.groups()
    if re.search(r"(?<!\\)=", value):
        raise ValueError(f"invalid field selector: unescaped character in value: '{value}'")
    return FieldRequirement(field.strip(), _unescaped(value), equal=operator != "!=")


def _unescaped(value: str) -> str:
    if re.search(r"\\(?![\\,=])", value):
        raise ValueError(f"invalid field selector: invalid escape sequence: {value}")
    return _ESCAPED.sub(r"\1", value)


# metav1.LabelSelector ------------------------------------------------------------------------------------------------


class LabelSelectorRequirementLike(Protocol):
    @property
    def key(self) -> str: ...
    @property
    def operator(self) -> str: ...
    @property
    def values(self) -> Sequence[str]: ...


class LabelSelectorLike(Protocol):
    """metav1.LabelSelector, wherever it is declared."""

    @property
    def match_labels(self) -> Mapping[str, str]: ...
    @property
    def match_expressions(self) -> Sequence[LabelSelectorRequirementLike]: ...


def as_label_selector(selector: LabelSelectorLike | None) -> ParsedLabelSelector:
    """metav1.LabelSelector as requirements; None selects nothing, an empty one everything.

    Raises: ValueError for an unknown operator.
    """
    if selector is None:
        return ParsedLabelSelector(nothing=True)
    equal = [Requirement(key, "In", (value,)) for key, value in selector.match_labels.items()]
    for expression in selector.match_expressions:
        if expression.operator not in _NODE_OPERATORS[:4]:
            raise ValueError(f'"{expression.operator}" is not a valid label selector operator')
        equal.append(Requirement(expression.key, expression.operator, tuple(expression.values)))
    return ParsedLabelSelector(tuple(equal))


def label_selector_text(selector: LabelSelectorLike | None) -> str:
    """As queries and the scale of a workload write it: "app=x,tier in (a,b)" (upstream: FormatLabelSelector)."""
    if selector is None:
        return "<none>"
    labels = {key: f"{key}={value}" for key, value in selector.match_labels.items()}
    terms = [labels[key] for key in sorted(labels)]
    for one in sorted(selector.match_expressions, key=lambda one: one.key):
        values = f"({','.join(sorted(one.values))})"
        terms.append(
            {
                "In": f"{one.key} in {values}",
                "NotIn": f"{one.key} notin {values}",
                "Exists": one.key,
                "DoesNotExist": f"!{one.key}",
            }.get(one.operator, "<error>")
        )
    return ",".join(terms)


def validate_label_selector(selector: LabelSelectorLike | None, path: Path) -> Errors:
    """metav1.LabelSelector (upstream: ValidateLabelSelector)."""
    if selector is None:
        return []
    if (count := len(selector.match_labels) + len(selector.match_expressions)) > MOST_REQUIREMENTS:
        return [too_many(path, count, MOST_REQUIREMENTS)]
    found = validate_labels(selector.match_labels, path.child("matchLabels"))
    for position, requirement in enumerate(selector.match_expressions):
        at = path.child("matchExpressions").at(position)
        values = at.child("values")
        if requirement.operator in ("In", "NotIn"):
            missing = required(values, "must be specified when `operator` is 'In' or 'NotIn'")
            found += [] if requirement.values else [missing]
        elif requirement.operator in ("Exists", "DoesNotExist"):
            extra = forbidden(values, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
            found += [extra] if requirement.values else []
        else:
            found.append(invalid(at.child("operator"), requirement.operator, "not a valid selector operator"))
        found += each(check_label_key(requirement.key), at.child("key"), requirement.key)
        for index, value in enumerate(requirement.values):
            found += each(check_label_value(value), values.at(index), value)
    return found


# NodeSelector --------------------------------------------------------------------------------------------------------


class NodeSelectorTermLike(Protocol):
    """core/v1 NodeSelectorTerm, wherever it is declared."""

    @property
    def match_expressions(self) -> Sequence[LabelSelectorRequirementLike]: ...
    @property
    def match_fields(self) -> Sequence[LabelSelectorRequirementLike]: ...


class NodeSelectorLike(Protocol):
    """core/v1 NodeSelector, wherever it is declared."""

    @property
    def node_selector_terms(self) -> Sequence[NodeSelectorTermLike]: ...


@dataclass(frozen=True, slots=True)
class ParsedNodeTerm:
    """One term, ready to be matched with many nodes. Without any requirement it matches none."""

    expressions: tuple[Requirement, ...]
    fields: tuple[Requirement, ...]

    @classmethod
    def of(cls, term: NodeSelectorTermLike) -> ParsedNodeTerm:
        return cls(_requirements_of(term.match_expressions), _requirements_of(term.match_fields))

    def matches(self, name: str, labels: Mapping[str, str]) -> bool:
        """All expressions on labels and all on fields (metadata.name is the only field there is)."""
        if not self.expressions and not self.fields:
            return False
        if not all(_matches_node(one, labels) for one in self.expressions):
            return False
        fields = {"metadata.name": name}
        return all(one.key in fields and _matches_node(one, fields) for one in self.fields)


def _requirements_of(expressions: Sequence[LabelSelectorRequirementLike]) -> tuple[Requirement, ...]:
    return tuple(Requirement(one.key, one.operator, tuple(one.values)) for one in expressions)


def _matches_node(requirement: Requirement, values: Mapping[str, str]) -> bool:
    """An operator that nobody knows matches nothing."""
    return requirement.operator in _NODE_OPERATORS and requirement.matches(values)


def parsed_node_terms(selector: NodeSelectorLike) -> tuple[ParsedNodeTerm, ...]:
    """A node matches the selector where it matches any of these."""
    return tuple(map(ParsedNodeTerm.of, selector.node_selector_terms))


def node_selector_matches(selector: NodeSelectorLike, name: str, labels: Mapping[str, str]) -> bool:
    """For one node; parse the selector first to ask about many."""
    return any(ParsedNodeTerm.of(term).matches(name, labels) for term in selector.node_selector_terms)

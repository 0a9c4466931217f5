"""Selectors: label and field selector text, metav1.LabelSelector, NodeSelector."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manciple.wire.selectors import (
    as_label_selector,
    node_selector_matches,
    parse_field_selector,
    parse_label_selector,
)

LABELS = {"app": "web", "tier": "front", "cores": "8", "empty": ""}


@pytest.mark.parametrize(
    ("text", "matches"),
    {
        "nothing said": ("", True),
        "equal": ("app=web", True),
        "equal, twice": ("app==web", True),
        "spaces around": (" app = web , tier ", True),
        "other value": ("app=db", False),
        "not equal": ("app!=db", True),
        "not equal holds without the label": ("missing!=x", True),
        "in": ("app in (db, web)", True),
        "in, other": ("app in (db)", False),
        "notin": ("app notin (db)", True),
        "notin holds without the label": ("missing notin (x)", True),
        "exists": ("app", True),
        "exists not": ("!missing", True),
        "exists after all": ("!app", False),
        "greater": ("cores>4", True),
        "less": ("cores<4", False),
        "greater on a word": ("app>4", False),
        "empty value": ("empty=", True),
        "empty place in a set": ("empty in (,a)", True),
        "all must hold": ("app=web,tier=back", False),
        "a key named in": ("in in (in)", False),
    }.values(),
)
def test_label_selector_text(text: str, matches: bool) -> None:
    assert parse_label_selector(text).matches(LABELS) is matches


@pytest.mark.parametrize(
    ("text", "message"),
    {
        "no key": ("=web", "found '=', expected: identifier"),
        "comma at the end": ("app,", "found '', expected: identifier after ','"),
        "two words": ("app web", "found 'web', expected: in, notin, =, ==, !=, gt, lt"),
        "open set": ("app in (a", "found '', expected: ',' or ')'"),
        "set without parenthesis": ("app in a", "expected: '('"),
        "value after negation": ("!app=web", "found '=', expected: ',' or 'end of string'"),
        "bad key": ("-a=b", 'key: Invalid value: "-a": name part must consist of'),
        "bad value": ("a=-b", 'values[0][a]: Invalid value: "-b": a valid label must be'),
        "comparison with a word": ("a>b", "the value must be an integer"),
    }.values(),
)
def test_label_selector_text_that_is_wrong(text: str, message: str) -> None:
    with pytest.raises(ValueError) as refused:  # noqa: PT011 - the message is asserted below
        parse_label_selector(text)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("text", "matches"),
    {
        "nothing said": ("", True),
        "equal": ("spec.nodeName=n1", True),
        "equal, twice": ("spec.nodeName==n1", True),
        "not equal": ("spec.nodeName!=n2", True),
        "unbound": ("spec.nodeName=", False),
        "unknown field is empty": ("status.podIP=", True),
        "both": ("spec.nodeName=n1,status.phase!=Running", False),
        "escaped comma": (r"reason=a\,b", True),
    }.values(),
)
def test_field_selector_text(text: str, matches: bool) -> None:
    fields = {"spec.nodeName": "n1", "status.phase": "Running", "reason": "a,b"}
    assert parse_field_selector(text).matches(fields) is matches


@pytest.mark.parametrize("text", ["spec.nodeName", "a=b=c", r"a=\x"])
def test_field_selector_text_that_is_wrong(text: str) -> None:
    with pytest.raises(ValueError, match=r"^invalid (field )?selector: "):
        parse_field_selector(text)


@dataclass
class Expression:
    key: str
    operator: str
    values: tuple[str, ...] = ()


@dataclass
class Selector:
    match_labels: dict[str, str] = field(default_factory=dict)
    match_expressions: tuple[Expression, ...] = ()
    match_fields: tuple[Expression, ...] = ()


@dataclass
class Terms:
    node_selector_terms: tuple[Selector, ...]


def test_a_missing_label_selector_selects_nothing_and_an_empty_one_everything() -> None:
    assert not as_label_selector(None).matches(LABELS)
    assert as_label_selector(Selector()).matches(LABELS)


def test_a_label_selector_combines_labels_and_expressions() -> None:
    selector = as_label_selector(Selector({"app": "web"}, (Expression("tier", "In", ("front", "back")),)))
    assert selector.matches(LABELS)
    assert not selector.matches({"app": "web"})


def test_a_label_selector_refuses_operators_of_node_selectors() -> None:
    with pytest.raises(ValueError, match='"Gt" is not a valid label selector operator'):
        as_label_selector(Selector(match_expressions=(Expression("cores", "Gt", ("4",)),)))


@pytest.mark.parametrize(
    ("terms", "matches"),
    {
        "no terms": ((), False),
        "an empty term": ((Selector(),), False),
        "a label": ((Selector(match_expressions=(Expression("app", "In", ("web",)),)),), True),
        "more cores": ((Selector(match_expressions=(Expression("cores", "Gt", ("7",)),)),), True),
        "fewer cores": ((Selector(match_expressions=(Expression("cores", "Lt", ("8",)),)),), False),
        "absent": ((Selector(match_expressions=(Expression("gpu", "DoesNotExist"),)),), True),
        "its name": ((Selector(match_fields=(Expression("metadata.name", "In", ("n1",)),)),), True),
        "another field": ((Selector(match_fields=(Expression("metadata.uid", "NotIn", ("x",)),)),), False),
        "any term will do": ((Selector(), Selector(match_expressions=(Expression("app", "Exists"),))), True),
        "unknown operator": ((Selector(match_expressions=(Expression("app", "Like", ("w",)),)),), False),
    }.values(),
)
def test_node_selectors(terms: tuple[Selector, ...], matches: bool) -> None:
    assert node_selector_matches(Terms(terms), "n1", LABELS) is matches


words = st.from_regex(r"\A[a-z]([-a-z0-9]{0,5}[a-z0-9])?\Z")


@given(st.dictionaries(words, words, max_size=4))
def test_labels_written_as_a_selector_select_themselves(labels: dict[str, str]) -> None:
    selector = parse_label_selector(",".join(f"{key}={value}" for key, value in labels.items()))
    assert selector.matches(labels)
    assert all(not selector.matches({**labels, key: "Other"}) for key in labels)

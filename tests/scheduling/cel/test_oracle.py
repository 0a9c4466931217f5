"""Expressions made at random, given to cel-expr-python (C++) and cel-python as well: verdicts are the same.

cel-python knows the language without its extensions (optional values, functions of texts), so it is asked what does not
use them; `FAULTS` lists what it does wrong there.
"""

from __future__ import annotations

from typing import Any

import celpy
import pytest
from cel_expr_python import cel
from cel_expr_python.ext import ext_optional, ext_strings
from celpy.adapter import json_to_cel
from celpy.celparser import CELParseError
from celpy.celtypes import BoolType
from celpy.evaluation import CELEvalError
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduling.cel import CompileError, DeviceView, compile_selector
from tests.examples import some

ATTRIBUTES = {"model": "A100", "memory": 80, "healthy": True, "index": 3}
_DEVICE = DeviceView(driver="gpu.example.com", attributes=ATTRIBUTES)
_ORACLE = cel.NewEnv(
    variables={"attributes": cel.Type.Map(cel.Type.STRING, cel.Type.DYN)},
    extensions=[ext_strings.ExtStrings(), ext_optional.ExtOptional()],
)

_INTS = st.integers(-5, 5).map(str) | st.sampled_from(["9223372036854775807", "attributes.memory", "attributes.index"])
_TEXTS = st.sampled_from(["''", "'a'", "'A100'", "'é'", "attributes.model"])
_COMPARISONS = st.sampled_from(["==", "!=", "<", "<=", ">", ">="])
fuzzed = settings(max_examples=some(150), deadline=None, derandomize=True, database=None)

Texts = st.SearchStrategy[str]


def _extended(inner: Texts) -> Texts:
    return (
        st.builds("({} + {})".format, inner, inner)
        | st.builds("{}.lowerAscii()".format, inner)
        | st.builds("{}.substring({})".format, inner, _INTS)
        | st.builds("{}.replace({}, {})".format, inner, inner, inner)
        | st.builds("{}.split({}).join({})".format, inner, inner, inner)
    )


def _expressions(texts: Texts, *more: Texts) -> Texts:
    """Of type bool, with `texts` for texts; `more` are further ones."""
    bools: Texts = st.deferred(lambda: simple | nested)
    ints = st.recursive(_INTS, lambda inner: _ints(inner, bools), max_leaves=6)
    simple = (
        st.sampled_from(["true", "false", "attributes.healthy", "has(attributes.model)", "has(attributes.nosuch)"])
        | st.builds("{} {} {}".format, ints, _COMPARISONS, ints)
        | st.builds("{} {} {}".format, texts, _COMPARISONS, texts)
        | st.builds("{}.contains({})".format, texts, texts)
        | st.builds("{} in [{}, {}]".format, ints, ints, ints)
        | st.just("attributes.nosuch == 1")
    )
    nested = st.one_of(
        st.builds("({} && {})".format, simple, simple),
        st.builds("({} || {})".format, simple, simple),
        st.builds("!({})".format, simple),
        st.builds("[{}, {}].all(x, x {} {} || {})".format, _INTS, _INTS, _COMPARISONS, ints, simple),
        st.builds("[{}, {}].exists(x, {} / x == 1)".format, _INTS, _INTS, _INTS),
        st.builds("[{}, {}].exists_one(x, x == {})".format, _INTS, _INTS, _INTS),
        st.builds("[{}, {}].map(x, x * 2) == [{}, {}]".format, _INTS, _INTS, ints, ints),
        *more,
    )
    return bools


def _ints(inner: Texts, bools: Texts) -> Texts:
    operators = st.sampled_from(["+", "-", "*", "/", "%"])
    return (
        st.builds("({} {} {})".format, inner, operators, inner)
        | st.builds("size({})".format, _TEXTS)
        | st.builds("({} ? {} : {})".format, bools, inner, inner)
        | st.builds("[{}, {}][{}]".format, inner, inner, inner)
        | st.builds("int(string({}))".format, inner)
    )


_OPTIONAL = st.builds("attributes[?'{}'].hasValue()".format, st.sampled_from(["model", "nosuch"]))
_ALL = _expressions(st.recursive(_TEXTS, _extended, max_leaves=4), _OPTIONAL)
_PLAIN = _expressions(_TEXTS)


def oracle(expression: str) -> bool | str:
    """The verdict of the other engine, "refused" where it does not compile, "error" where it has none."""
    try:
        compiled = _ORACLE.compile(expression)
    except Exception:
        return "refused"
    try:
        result: Any = compiled.eval(data={"attributes": ATTRIBUTES})
    except Exception:
        return "error"
    value = result.value()
    return value if isinstance(value, bool) else "error"


def ours(expression: str) -> bool | str:
    """The same of this one, from both evaluators."""
    try:
        selector = compile_selector(expression.replace("attributes", 'device.attributes["gpu.example.com"]'))
    except CompileError:
        return "refused"
    counted = selector.evaluate(_DEVICE)
    try:
        compiled: bool | str = selector.matches(_DEVICE)
    except Exception:
        compiled = "error"
    assert compiled == ("error" if counted.error else counted.matches)
    return compiled


@fuzzed
@given(_ALL)
def test_the_verdicts_agree(expression: str) -> None:
    # What does not compile differs by intent: Kubernetes refuses lists of mixed types, the other engine does not.
    verdicts = ours(expression), oracle(expression)
    assert "refused" in verdicts or verdicts[0] == verdicts[1], expression


def test_the_oracle_judges_most_of_what_it_is_asked() -> None:
    asked = ["attributes.memory >= 16", "[1, 2].all(x, x > 0)", "'a' + 'b' == 'ab'", "1 / 0 == 1", "size('é') == 1"]
    assert [oracle(expression) for expression in asked] == [True, True, True, "error", True]
    assert [ours(expression) for expression in asked] == [True, True, True, "error", True]


# cel-python ----------------------------------------------------------------------------------------------------------

_PYTHON = celpy.Environment()
_PYTHON_ATTRIBUTES = {"attributes": json_to_cel(ATTRIBUTES)}


def cel_python(expression: str) -> bool | str:
    """As `oracle`."""
    try:
        program = _PYTHON.program(_PYTHON.compile(expression))
    except CELParseError:
        return "refused"
    try:
        value = program.evaluate(_PYTHON_ATTRIBUTES)
    except CELEvalError:
        return "error"
    return bool(value) if isinstance(value, BoolType) else "error"


@fuzzed
@given(_PLAIN)
def test_cel_python_gives_the_same_verdicts(expression: str) -> None:
    verdict = ours(expression)
    assert verdict in ("refused", cel_python(expression)), expression


#: expression -> (our verdict, that of cel-python): what it does wrong, or does not know
FAULTS: dict[str, tuple[bool | str, bool | str]] = {
    # A text made by + is none of its own texts any more, and has no functions.
    "('a' + 'b').contains('a')": (True, "error"),
    # Not of the language proper: the extensions of strings and of optional values, which Kubernetes switches on.
    "'A'.lowerAscii() == 'a'": (True, "error"),
    "attributes[?'model'].hasValue()": (True, "refused"),
}


@pytest.mark.parametrize("expression", FAULTS)
def test_what_cel_python_does_otherwise_is_known(expression: str) -> None:
    assert (ours(expression), cel_python(expression)) == FAULTS[expression]
    assert oracle(expression) == FAULTS[expression][0]

"""Expressions made at random, given to cel-expr-python (C++) as well: where both give a verdict, it is the same one."""

from __future__ import annotations

from typing import Any

from cel_expr_python import cel
from cel_expr_python.ext import ext_optional, ext_strings
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
fuzzed = settings(max_examples=some(150), deadline=None, derandomize=True, database=None)


def _ints(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    operators = st.sampled_from(["+", "-", "*", "/", "%"])
    return (
        st.builds("({} {} {})".format, inner, operators, inner)
        | st.builds("size({})".format, _TEXTS)
        | st.builds("({} ? {} : {})".format, _bools, inner, inner)
        | st.builds("[{}, {}][{}]".format, inner, inner, inner)
        | st.builds("int(string({}))".format, inner)
    )


_bools: st.SearchStrategy[str] = st.deferred(lambda: _simple_bools | _nested_bools)
_ints_tree = st.recursive(_INTS, _ints, max_leaves=6)
_texts_tree = st.recursive(
    _TEXTS,
    lambda inner: (
        st.builds("({} + {})".format, inner, inner)
        | st.builds("{}.lowerAscii()".format, inner)
        | st.builds("{}.substring({})".format, inner, _INTS)
        | st.builds("{}.replace({}, {})".format, inner, inner, inner)
        | st.builds("{}.split({}).join({})".format, inner, inner, inner)
    ),
    max_leaves=4,
)
_comparisons = st.sampled_from(["==", "!=", "<", "<=", ">", ">="])
_simple_bools: st.SearchStrategy[str] = (
    st.sampled_from(["true", "false", "attributes.healthy", "has(attributes.model)", "has(attributes.nosuch)"])
    | st.builds("{} {} {}".format, _ints_tree, _comparisons, _ints_tree)
    | st.builds("{} {} {}".format, _texts_tree, _comparisons, _texts_tree)
    | st.builds("{}.contains({})".format, _texts_tree, _texts_tree)
    | st.builds("{} in [{}, {}]".format, _ints_tree, _ints_tree, _ints_tree)
    | st.just("attributes.nosuch == 1")
)
_nested_bools: st.SearchStrategy[str] = (
    st.builds("({} && {})".format, _simple_bools, _simple_bools)
    | st.builds("({} || {})".format, _simple_bools, _simple_bools)
    | st.builds("!({})".format, _simple_bools)
    | st.builds("[{}, {}].all(x, x {} {} || {})".format, _INTS, _INTS, _comparisons, _ints_tree, _simple_bools)
    | st.builds("[{}, {}].exists(x, {} / x == 1)".format, _INTS, _INTS, _INTS)
    | st.builds("[{}, {}].exists_one(x, x == {})".format, _INTS, _INTS, _INTS)
    | st.builds("[{}, {}].map(x, x * 2) == [{}, {}]".format, _INTS, _INTS, _ints_tree, _ints_tree)
    | st.builds("attributes[?'{}'].hasValue()".format, st.sampled_from(["model", "nosuch"]))
)


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
@given(_bools)
def test_the_verdicts_agree(expression: str) -> None:
    # What does not compile differs by intent: Kubernetes refuses lists of mixed types, the other engine does not.
    verdicts = ours(expression), oracle(expression)
    assert "refused" in verdicts or verdicts[0] == verdicts[1], expression


def test_the_oracle_judges_most_of_what_it_is_asked() -> None:
    asked = ["attributes.memory >= 16", "[1, 2].all(x, x > 0)", "'a' + 'b' == 'ab'", "1 / 0 == 1", "size('é') == 1"]
    assert [oracle(expression) for expression in asked] == [True, True, True, "error", True]
    assert [ours(expression) for expression in asked] == [True, True, True, "error", True]

"""What fails, or is refused, does so with the reference's words."""

from __future__ import annotations

import pytest

from scheduling.cel import CompileError, compile_selector
from tests.scheduling.cel.devices import verdict

FAILING = {
    "1 / 0 == 0": "division by zero",
    "1 % 0 == 0": "modulus by zero",
    "9223372036854775807 + 1 > 0": "integer overflow",
    "-(-9223372036854775807 - 1) > 0": "integer overflow",
    "18446744073709551615u + 1u > 0u": "unsigned integer overflow",
    "0u - 1u > 0u": "unsigned integer overflow",
    "int(9e18 * 2.0) > 0": "integer overflow",
    "[1][1] == 1": "index out of bounds: 1",
    "[1][dyn('a')] == 1": "unsupported index type 'string' in list",
    "dyn(1)": "CEL result of type int could not be converted to bool: unsupported type conversion from 'int' to bool",
    "dyn(semver('1.0.0'))": (
        "CEL result of type kubernetes.Semver could not be converted to bool: "
        "type conversion error from 'Semver' to 'bool'"
    ),
    "dyn(1) + dyn('a') == dyn(1)": "no such overload",
    "dyn(1) < dyn('a')": "no such overload",
    "optional.none().value() == 1": "optional.none() dereference",
    "[1].map(x, x / 0) == [1]": "division by zero",
    "'a'.substring(2) == ''": "index out of range: 2",
    "[1, 2].slice(1, 5) == []": "cannot slice(1, 5), list is length 2",
    "[].min() == 1": "min called on empty list",
    'device.attributes["gpu.example.com"].version == "1.30.2"': "no such overload",
    'device.attributes["gpu.example.com"].model': (
        "CEL result of type string could not be converted to bool: unsupported native conversion from string to 'bool'"
    ),
    'device.attributes["gpu.example.com"].model.all(x, true)': "got 'types.String', expected iterable type",
    "['a', 'b'].transformMapEntry(i, v, {'k': i}).size() == 1": "insert failed: key k already exists",
    "timestamp(0).getHours('No/Where') == 0": "unknown time zone No/Where",
    "timestamp('9999-12-31T23:59:59Z') + duration('1s') == timestamp(0)": "timestamp overflow",
    "ip('::ffff:1.2.3.4') == ip('1.2.3.4')": 'IPv4-mapped IPv6 address "::ffff:1.2.3.4" is not allowed',
    "lists.range(1000000000).size() > 0": "operation cancelled: actual cost limit exceeded",
    "lists.range(1000000000).size() > 0 || true": "operation cancelled: actual cost limit exceeded",
}


@pytest.mark.parametrize("expression", FAILING)
def test_it_fails_with_the_references_words(expression: str) -> None:
    assert verdict(expression) == FAILING[expression]


REFUSED = {
    "": "Syntax error",
    "1 +": "Syntax error: mismatched input '<EOF>'",
    "'a": "Syntax error",
    "'\\q'": "unable to unescape string",
    "for": "reserved identifier: for",
    "9223372036854775808 > 0": "invalid int literal",
    "nosuch": "<input>:1:1: undeclared reference to 'nosuch' (in container '')",
    "device.nosuch == 1": "<input>:1:7: undefined field 'nosuch'",
    "device.driver == 1": "<input>:1:15: found no matching overload for '_==_' applied to '(string, int)'",
    "'a'.startsWith(1)": "<input>:1:15: found no matching overload for 'startsWith' applied to 'string.(int)'",
    "1 && true": "<input>:1:1: expected type 'bool' but found 'int'",
    "[1, 'a'].size() == 2": "<input>:1:5: expected type 'int' but found 'string'",
    "{'a': 1, 'b': 'c'}.size() == 2": "<input>:1:15: expected type 'int' but found 'string'",
    "1.all(x, true)": "expression of type 'int' cannot be range of a comprehension (must be list, map, or dynamic)",
    "has(1)": "invalid argument to has() macro",
    "[1].all(1, true)": "argument must be a simple name",
    "'x'.matches('(')": "invalid matches argument",
    "duration('x') == duration('1s')": "invalid duration argument",
    "'%d'.format(['a']) == ''": "decimal clause can only be used on integers, was given string",
    "'%s'.format([]) == ''": "index 0 out of range",
    "int('x') == 1": "program instantiation failed: type conversion error from 'string' to 'int'",
    "'a'.find('(') == ''": "program instantiation failed: error parsing regexp",
    "'x'": "must evaluate to bool or the unknown type, not string",
    "device": "must evaluate to bool or the unknown type, not kubernetes.DRADevice",
    "true" + " " * 10240: "must not be longer than 10240 bytes",
    "[" * 300 + "]" * 300 + " == []": "expression recursion limit exceeded: 250",
}


@pytest.mark.parametrize("expression", REFUSED, ids=range(len(REFUSED)))
def test_it_is_refused_with_the_references_words(expression: str) -> None:
    with pytest.raises(CompileError) as refused:
        compile_selector(expression)
    assert REFUSED[expression] in refused.value.message


def test_a_problem_carries_its_line_its_column_and_a_caret() -> None:
    with pytest.raises(CompileError) as refused:
        compile_selector("true &&\n  device.driver == 1")
    assert (refused.value.line, refused.value.column) == (2, 17)
    assert refused.value.snippet == " |   device.driver == 1\n | ................^"

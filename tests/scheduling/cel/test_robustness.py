"""No text and no device may bring anything but a verdict or the language's own errors, soon, from any thread."""

from __future__ import annotations

import threading
import time
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduling.cel import CelError, CompileError, DeviceView, EvaluationError, compile_selector
from tests.examples import some
from tests.scheduling.cel.devices import gpu, verdict

fuzzed = settings(max_examples=some(150), deadline=None, derandomize=True, database=None)
_PIECES = [
    *"()[]{}.,?:!+-*/%<>=&|'\"\\ \n0123456789abxyu_é\u2028\U0001f600",
    "device", ".driver", ".attributes", '["gpu.example.com"]', ".capacity", ".model", ".memory", "true", "false",
    "null",
    "&&", "||", "==", "!=", "<=", ">=", " in ", "has(", ".all(x, ", ".map(x, ", ".exists(i, v, ", "cel.bind(x, ",
    ".optMap(x, ", ".orValue(", "[?", ".?", "{?", "'''", '"""', "r'", "b'", "0x", "1e", "9223372036854775807", "1u",
    "size(", "string(", ".matches(", "quantity('1Gi')", "semver('1.2.3')", ".format([", "//", "-", "in", "for",
    "google.protobuf.Int32Value{", "timestamp(", "duration('1h')", "optional.none()", "lists.range(", "type(", "dyn(",
]  # fmt: skip


def ask(expression: str, device: DeviceView) -> None:
    """Raises whatever is not the language's own error."""
    with suppress(CompileError):
        compile_selector(expression)
        verdict(expression, device)


@fuzzed
@given(st.lists(st.sampled_from(_PIECES), max_size=25).map("".join))
def test_pieces_of_the_language_in_any_order_bring_no_other_exception(expression: str) -> None:
    ask(expression, gpu())


@fuzzed
@given(st.text(max_size=40))
def test_any_text_brings_no_other_exception(expression: str) -> None:
    ask(expression, gpu())


_ATOMS = st.sampled_from(
    [
        "1", "0", "-1", "1u", "1.5", "'a'", "b'a'", "true", "false", "null", "[]", "[1]", "{}", "{'a': 1}", "int",
        "device", "device.driver", "device.attributes", 'device.attributes["gpu.example.com"]', "device.capacity",
        'device.attributes["gpu.example.com"].ids', 'device.attributes["gpu.example.com"].version', "dyn(1)",
        "dyn('a')",
        'device.capacity["gpu.example.com"].memory', "optional.of(1)", "optional.none()", "duration('1s')",
        "timestamp(0)", "quantity('1')", "semver('1.0.0')", "ip('::1')", "cidr('10.0.0.0/8')", "url('/a')",
        "format.uuid()", "dyn([1, 2])", "dyn({'a': 1})", "9223372036854775807", "lists.range(3)",
    ]
)  # fmt: skip
_METHODS = [
    "size", "hasValue", "value", "distinct", "sort", "reverse", "flatten", "first", "last", "isSorted", "sum", "min",
    "max", "trim", "lowerAscii", "join", "getHours", "getHost", "family", "masked", "major", "asInteger", "unwrapOpt",
]  # fmt: skip
_METHODS_OF_ONE = [
    "contains", "startsWith", "matches", "split", "indexOf", "orValue", "or", "includes", "compareTo", "isLessThan",
    "add", "containsIP", "find", "charAt", "join", "format", "validate", "substring", "flatten", "getHours",
]  # fmt: skip
_FUNCTIONS = [
    "int",
    "uint",
    "double",
    "string",
    "bool",
    "bytes",
    "timestamp",
    "duration",
    "type",
    "dyn",
    "size",
    "sign",
]
_OPERATORS = ["+", "-", "*", "/", "%", "==", "!=", "<", "<=", ">", ">=", "&&", "||", " in "]
_SHAPES = [
    *(f"({{}}{operator}{{}})" for operator in _OPERATORS),
    *(f"{function}({{}})" for function in _FUNCTIONS),
    *(f"dyn({{}}).{method}()" for method in _METHODS),
    *(f"dyn({{}}).{method}(dyn({{}}))" for method in _METHODS_OF_ONE),
    "dyn({})[dyn({})]", "dyn({}).?a[?dyn({})]", "({} ? {} : {})", "dyn({}).all(x, x == {})", "dyn({}).map(x, [x])",
    "dyn({}).transformMap(k, v, k == {}, v)", "cel.bind(x, {}, x == {})", "optional.of({}).optMap(x, {})",
    "[dyn({}), dyn({})]", "{{dyn({}): {}}}", "has(dyn({}).a)", "!dyn({})", "-dyn({})",
]  # fmt: skip


@st.composite
def trees(draw: st.DrawFn, depth: int = 3) -> str:
    """An expression of operations on values of any type."""
    if depth == 0 or draw(st.integers(0, 3)) == 0:
        return draw(_ATOMS)
    shape = draw(st.sampled_from(_SHAPES))
    return shape.format(*(draw(trees(depth - 1)) for _ in range(shape.replace("{{", "").count("{"))))


@settings(fuzzed, max_examples=some(400))
@given(trees(), st.sampled_from(["dyn({}) == dyn(1) || true", "dyn({}) == dyn('a')", "dyn({})"]))
def test_operations_on_values_of_any_type_bring_no_other_exception(tree: str, shape: str) -> None:
    ask(shape.format(tree), gpu())


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("dyn(device).driver == 'gpu.example.com'", True),
        ("dyn(device)[?'fault'].hasValue()", False),
        ("dyn(device).?a.hasValue()", False),
        ("dyn(device)[?dyn(1)].hasValue()", False),
        ("has(dyn(device).nothing)", False),
    ],
)
def test_a_device_behind_dyn_is_a_map_of_its_fields(expression: str, value: bool) -> None:
    assert verdict(expression) is value


@pytest.mark.parametrize("expression", ["dyn(device).fault == ''", "dyn(device).a == 1", "dyn(device)[dyn(1)] == 1"])
def test_a_device_behind_dyn_has_no_other_keys(expression: str) -> None:
    with pytest.raises(EvaluationError, match="no such key"):
        compile_selector(expression).matches(gpu())


@pytest.mark.parametrize("expression", ["dyn(1).size() in []", "1 / 0 in []", "dyn('a') + dyn(1) in []"])
def test_nothing_is_in_an_empty_list_not_even_an_error(expression: str) -> None:
    assert verdict(expression) is False


@pytest.mark.parametrize(
    "expression",
    [
        "sign(null) == 0",
        "(device.driver == 'a' ? quantity('1') : null).isGreaterThan(quantity('1'))",
        "quantity('1').isLessThan(null)",
        "semver('1.0.0').compareTo(null) == 0",
        "(true ? null : timestamp(0)).getHours() == 0",
        "(true ? null : duration('1s')).getSeconds() == 0",
        "ip.isCanonical(null) || family(null) == 4",
        "(true ? null : ip('::1')).family() == 6",
        "url('/a').getHost() == '' && (true ? null : url('/a')).getHost() == ''",
    ],
)
def test_null_where_a_type_may_be_null_has_no_overload(expression: str) -> None:
    with pytest.raises((CompileError, EvaluationError), match=r"no such overload|no matching overload|undeclared"):
        compile_selector(expression).matches(gpu())


RUNAWAYS = {
    "nested folds": "lists.range(1000).all(a, lists.range(1000).all(b, lists.range(1000).all(c, a + b + c >= 0)))",
    "lists that double": "cel.bind(a, lists.range(100000), a.map(x, a + a).size() > 0)",
    "texts that double": "cel.bind(a, 'x'.replace('', 'y'), " + "cel.bind(a, a + a, " * 40 + "a.size() > 0" + ")" * 41,
    "texts blown up": "lists.range(1000).all(x, 'abc'.replace('', '%s'.format([lists.range(10000)])).size() > 0)",
    "texts made of lists": "cel.bind(a, lists.range(90000), a.all(x, '%s'.format([a]).size() > 0))",
    "operands that macros use twice": "optional.of(1)" + ".optMap(x, x)" * 60 + ".hasValue()",
    "a pattern that backtracks elsewhere": "'" + "a" * 5000 + "b'.matches('(a+)+$') == true || 'x'.matches('(a|aa)+$')",
    "a huge pattern": "'a'.matches('((((a{100}){100}){100}){100}){100}')",
    "deep parentheses": "(" * 5000 + "true" + ")" * 5000,
    "deep negation": "!" * 5001 + "true",
    "deep brackets": "[" * 5000,
    "a long chain": " && ".join(["device.driver == 'a'"] * 400),
    "a long sum": "+".join(["1"] * 5000) + " == 5000",
    "deep conditionals": "true ? false : " * 600 + "true",
    "deep folds": "[1].all(x, " * 80 + "true" + ")" * 80,
}


@pytest.mark.sample(5)
@pytest.mark.parametrize("phrase", RUNAWAYS)
def test_it_ends_soon(phrase: str) -> None:
    started = time.process_time()
    with suppress(CelError):
        compile_selector(RUNAWAYS[phrase]).matches(gpu())
    assert time.process_time() - started < 10


def test_chains_of_operands_may_be_long() -> None:
    assert verdict(" && ".join(["true == true"] * 500)) is True
    assert verdict(" || ".join(["1 / 0 == 1"] * 500 + ["true"])) is True


@pytest.mark.parametrize("depth", [3, 15, 40, 70])
def test_nesting_keeps_its_meaning(depth: int) -> None:
    assert verdict("[1].all(x, " * (depth // 3) + "x == 1" + ")" * (depth // 3)) is True
    assert verdict("false ? false : " * depth + "true") is True
    assert verdict("(false || " * depth + "true && true" + ")" * depth) is True
    assert verdict("1 + (" * depth + "1" + ")" * depth + f" == {depth + 1}") is True


def test_four_threads_agree() -> None:
    expressions = [
        f'device.attributes["gpu.example.com"].memory > {limit} && [{limit}].map(x, x + 1).exists(y, y > {limit})'
        for limit in range(60, 100)
    ]
    expected = [limit < 80 for limit in range(60, 100)]
    found: list[list[bool]] = []
    start = threading.Barrier(4)

    def work() -> None:
        device = gpu()
        start.wait()
        for _ in range(20):
            found.append([compile_selector(expression).matches(device) for expression in expressions])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 80


def test_a_failure_keeps_no_trace_of_the_evaluations_before() -> None:
    device = DeviceView(driver="d", fault="attribute x: unsupported attribute value")
    selector = compile_selector("true")
    failures = []
    for _ in range(3):
        with pytest.raises(EvaluationError) as failed:
            selector.matches(device)
        failures.append(failed.value)
    assert len({id(failure) for failure in failures}) == 3
    assert {failure.message for failure in failures} == {"attribute x: unsupported attribute value"}

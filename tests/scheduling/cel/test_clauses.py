"""Which part of a selector refuses a device, quoted as it was written, and what the device has there."""

from __future__ import annotations

import pytest

from manciple.cel.kubernetes import parse_amount, parse_semver
from scheduling.cel import compile_selector
from scheduling.cel.clauses import Clause, clause_of, extremes, first_false, operands, shown
from tests.scheduling.cel.devices import gpu

ATTRIBUTES = 'device.attributes["gpu.example.com"]'
MEMORY = 'device.capacity["gpu.example.com"].memory'


def _false(expression: str) -> Clause:
    clause = first_false(compile_selector(expression), gpu())
    assert clause is not None
    return clause


@pytest.mark.parametrize(
    ("expression", "parts"),
    [
        pytest.param("a", ("a",), id="no chain"),
        pytest.param("a && b && c", ("a", "b", "c"), id="a chain"),
        pytest.param("a && (b && (c))", ("a", "b", "c"), id="chains in parentheses"),
        pytest.param("((a && b))", ("a", "b"), id="parentheses around all of it"),
        pytest.param("(a) && (b)", ("a", "b"), id="parentheses around each"),
        pytest.param("a || b && c", ("a || b && c",), id="an alternative binds less tightly"),
        pytest.param("a && (b || c)", ("a", "b || c"), id="an alternative in parentheses"),
        pytest.param("a ? b : c && d", ("a ? b : c && d",), id="a conditional"),
        pytest.param("x.?a.orValue(b) && c", ("x.?a.orValue(b)", "c"), id="an optional selection is no conditional"),
        pytest.param("cel.bind(x, a, x && b)", ("cel.bind(x, a, x && b)",), id="a name is bound"),
        pytest.param('a == "x && y" && b', ('a == "x && y"', "b"), id="text with the operator in it"),
        pytest.param(r'a == "\" && (" && b', (r'a == "\" && ("', "b"), id="text with an escaped quote"),
        pytest.param(r'a == r"\" && b', (r'a == r"\"', "b"), id="raw text ends at the first quote"),
        pytest.param("a == '''(\n' && ''' && b", ("a == '''(\n' && '''", "b"), id="text over several lines"),
        pytest.param("a // b && c\n && d // e", ("a", "d"), id="comments"),
        pytest.param("// first\n(a && b)", ("a", "b"), id="a comment in front"),
    ],
)
def test_an_expression_is_cut_at_its_outermost_and(expression: str, parts: tuple[str, ...]) -> None:
    assert operands(expression) == parts


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        pytest.param(f'{ATTRIBUTES}.model == "H100"', 'model == "H100"', id="the only operand"),
        pytest.param(
            f'{ATTRIBUTES}.model == "A100" && {ATTRIBUTES}.memory >= 96', "memory >= 96", id="the second operand"
        ),
        pytest.param(
            f"{ATTRIBUTES}.nothing == 1 && {ATTRIBUTES}.memory > 80", "memory > 80", id="an earlier one fails"
        ),
        pytest.param(f"96 <= {ATTRIBUTES}.memory", "memory >= 96", id="the literal stands first"),
        pytest.param(f'{MEMORY}.compareTo(quantity("200Gi")) >= 0', "memory >= 200Gi", id="compareTo"),
        pytest.param(f'{MEMORY}.isGreaterThan(quantity("1Ti"))', "memory > 1Ti", id="isGreaterThan"),
        pytest.param(f'{ATTRIBUTES}.version.isLessThan(semver("1.2.3"))', "version < 1.2.3", id="a version"),
        pytest.param('device.driver != "gpu.example.com"', 'driver != "gpu.example.com"', id="the driver"),
        pytest.param(
            f'"power" in {ATTRIBUTES} && {ATTRIBUTES}.power > 3', f'"power" in {ATTRIBUTES}', id="no comparison"
        ),
        pytest.param(
            f"{ATTRIBUTES}.memory > {ATTRIBUTES}.memory", f"{ATTRIBUTES}.memory > {ATTRIBUTES}.memory", id="no literal"
        ),
        pytest.param(
            f"cel.bind(a, {ATTRIBUTES}, a.memory == 80 && a.memory > 90)",
            f"cel.bind(a, {ATTRIBUTES}, a.memory == 80 && a.memory > 90)",
            id="a bound name",
        ),
        pytest.param("size(device.driver) > 99", "size(driver) > 99", id="its length"),
        pytest.param(f"{ATTRIBUTES}.version.major() > 5", "version.major() > 5", id="a part of a version"),
        pytest.param(f'{ATTRIBUTES}.?model.orValue("none") == "A1"', 'model == "A1"', id="with a default"),
        pytest.param(f"{ATTRIBUTES}.memory + 1 > 99", f"{ATTRIBUTES}.memory + 1 > 99", id="a sum"),
        pytest.param(f"{ATTRIBUTES}.healthy ? false : true", f"{ATTRIBUTES}.healthy ? false : true", id="conditional"),
    ],
)
def test_the_first_operand_that_is_false_is_named(expression: str, text: str) -> None:
    assert str(_false(expression)) == text


def test_a_chosen_device_and_one_that_a_selector_fails_on_have_no_false_operand() -> None:
    assert first_false(compile_selector("device.driver != ''"), gpu()) is None
    assert first_false(compile_selector(f"{ATTRIBUTES}.nothing == 1"), gpu()) is None


def test_the_value_that_was_compared_is_told_as_a_person_writes_it() -> None:
    comparison = clause_of(f'{MEMORY}.compareTo(quantity("200Gi")) >= 0').comparison
    assert comparison is not None
    assert shown(comparison.value(gpu())) == "80Gi"
    missing = clause_of(f"{ATTRIBUTES}.nothing >= 3").comparison
    assert missing is not None
    assert missing.value(gpu()) is None


def test_an_operand_keeps_the_text_that_the_user_wrote() -> None:
    assert _false(f'{ATTRIBUTES} . model=="B"').text == f'{ATTRIBUTES} . model=="B"'


@pytest.mark.parametrize(
    ("values", "found"),
    [
        pytest.param([3, 1, 2], ("1", "3"), id="numbers"),
        pytest.param([parse_amount("80Gi"), parse_amount("500M")], ("500M", "80Gi"), id="quantities"),
        pytest.param([parse_semver("1.10.0"), parse_semver("1.9.0")], ("1.9.0", "1.10.0"), id="versions"),
        pytest.param(["a", "b"], None, id="texts have no greatest"),
        pytest.param([1, "b"], None, id="mixed"),
        pytest.param([], None, id="none"),
    ],
)
def test_least_and_greatest(values: list[object], found: tuple[str, str] | None) -> None:
    ends = extremes(values)
    assert (ends and (shown(ends[0]), shown(ends[1]))) == found

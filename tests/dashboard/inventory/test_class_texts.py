"""What the class editors say of a text: diagnostics with their fixes, completions, guards, differences, impact."""

from __future__ import annotations

import pytest

from claims.devices.published import Published, read_slice
from dashboard.inventory.classes.forms import guarded, of_expression, of_parameters
from dashboard.inventory.classes.queries import ClassRequest, domains, examples, judge
from dashboard.inventory.classes.workbench import WIDTH, Cost, cel_table, draw, guard_of, impact
from dashboard.kit.differences import MINUS, difference, lines_changed, place_of
from insight.selector_matches import JudgedDevices
from inventory.kinds.devices import Device, DeviceAttribute, DeviceCapacity
from scheduling.cel import CelFeatures, compile_selector
from tests.builders import make_slice
from tests.dashboard import texts
from tests.outlines import Outline

DRIVER = "gpu.example.com"
ALL = CelFeatures(consumable_capacity=True, list_type_attributes=True)


def device(index: int, memory: str = "80Gi") -> Device:
    attributes = {
        "index": DeviceAttribute(int_value=index),
        "model": DeviceAttribute(string_value="A100" if index % 2 else "H100"),
        "driverVersion": DeviceAttribute(version_value="575.1.0"),
        "example.org/rack": DeviceAttribute(string_value=f"r{index}"),
    }
    return Device(name=f"gpu-{index}", attributes=attributes, capacity={"memory": DeviceCapacity(value=memory)})


DEVICES = [device(index, "80Gi" if index < 6 else "141Gi") for index in range(8)]
PUBLISHED = JudgedDevices(
    Published(
        read_slice(make_slice(node=node, driver=DRIVER, devices=devices))
        for node, devices in (("node-0", DEVICES[:4]), ("node-1", DEVICES[4:]))
    )
)


@pytest.mark.parametrize(
    ("expression", "place", "message"),
    [
        ("device.driver ==", (1, 17), "The expression ends before it is complete."),
        ("device.driver == 'a", (1, 18), "A string is not closed."),
        ("devic.x", (1, 1), "devic is unknown here."),
        ("device.foo", (1, 7), "device has no field foo."),
        ("device.driver == “a”", (1, 18), "Strings are in straight quotes."),
        ('true ||\n 1 > "a"', (2, 4), "> does not go with int and string."),
        ('device.capacity["a"].memory >= 3', (1, 29), "Quantities cannot be compared with >=."),
        ("1 + 2", (1, 1), "Must evaluate to bool or the unknown type, not int."),
        ('device.driver.isGreaterThan("575.0.0")', (1, 29), "isGreaterThan needs a semver, not a string."),
    ],
)
def test_what_does_not_compile_is_told_in_plain_words_at_its_place(
    expression: str, place: tuple[int, int], message: str
) -> None:
    found = of_expression(expression, ALL)[0]
    assert (found["line"], found["column"]) == place
    assert found["message"] == message


def test_all_problems_of_an_expression_are_told_its_cost_too_and_nothing_of_what_compiles() -> None:
    assert len(of_expression('true || 1 > "a" || 2 > "b"', ALL)) == 2
    dear = " && ".join(['device.attributes["a"].all(x, device.attributes["b"].all(y, x.matches(y)))'] * 30)
    assert texts.MAY_COST_TOO_MUCH in of_expression(dear, ALL)[0]["message"]
    for expression in ("", "  ", f'device.driver == "{DRIVER}"'):
        assert of_expression(expression, ALL) == []


@pytest.mark.parametrize(
    ("expression", "insert"),
    [
        ('device.attributes["a"].version\n  .isGreaterThan("575.0.0")', 'semver("575.0.0")'),
        ('device.capacity["a"].memory.compareTo("80Gi") >= 0', 'quantity("80Gi")'),
        ("device.capacity['a'].memory.isLessThan('1.5.0')", "quantity('1.5.0')"),
        ('device.attributes["a"].v == "x" || device.capacity["a"].memory.isLessThan("1")', 'quantity("1")'),
        ('device.attributes["a"].version.isGreaterThan("1.0")', 'semver("1.0.0")'),
        ('device.attributes["a"].version.isLessThan("v12")', 'semver("12.0.0")'),
        ('device.driver = "a"', "=="),
        ('device.driver == "a" & true', "&&"),
        ('device.driver == "a" | true', "||"),
        ('device.driver == "a" and true', "&&"),
        ('true &&\n device.driver == "a" OR true', "||"),
        ('driver == "a"', "device.driver"),
        ('capacity["a"].memory.compareTo(quantity("1")) > 0', "device.capacity"),
    ],
)
def test_what_is_written_as_in_other_languages_has_a_fix_that_compiles(expression: str, insert: str) -> None:
    fix = of_expression(expression, ALL)[0]["fix"]
    lines = expression.split("\n")
    line = lines[fix["line"] - 1]
    lines[fix["line"] - 1] = line[: fix["column"] - 1] + fix["insert"] + line[fix["end_column"] - 1 :]
    assert fix["insert"] == insert
    assert of_expression("\n".join(lines), ALL) == []


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("a: 1\nb: [", (2, 5), "Expected the node content"),
        ("- a", (1, 1), "Parameters are a mapping."),
        ("a: " + "x" * 11_000, (1, 1), "the limit is 10,240"),
    ],
)
def test_parameters_are_judged_as_they_are_typed(text: str, place: tuple[int, int], message: str) -> None:
    (found,) = of_parameters(text)
    assert (found["line"], found["column"]) == place
    assert message in found["message"]
    assert of_parameters("a: 1") == []


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("spec.selectors[1].cel.expression", (5, 11)),
        ("spec.selectors[9].cel", (3, 3)),
        ("spec.nothing", (2, 1)),
        ("", (1, 1)),
    ],
)
def test_a_field_of_the_api_is_found_in_the_text_or_the_nearest_above(path: str, place: tuple[int, int]) -> None:
    text = "kind: DeviceClass\nspec:\n  selectors:\n  - cel: {expression: a}\n  - cel: {expression: b}\n"
    assert place_of(text, path) == place


def test_completions_follow_what_is_published() -> None:
    table = {before: [option["label"] for option in options] for before, options in cel_table(PUBLISHED).items()}
    assert table['device.attributes["'] == [DRIVER, "example.org"]
    assert table[f'device.attributes["{DRIVER}"].'] == ["driverVersion", "index", "model"]
    assert table[f'device.attributes["{DRIVER}"].model=='] == ['"H100"', '"A100"']
    assert "isGreaterThan" in table[f'device.attributes["{DRIVER}"].driverVersion.']
    assert "min" not in table["device."]
    assert "isIP" in table[""]
    assert not [label for label in table[""] if label.startswith("_") or label == "in"]
    sizes = cel_table(PUBLISHED)[f'device.capacity["{DRIVER}"].memory.compareTo(quantity("']
    assert {"label": "80Gi", "apply": '80Gi")'} in sizes


def test_the_palette_tells_types_and_values() -> None:
    told = {one.name: (one.type, one.summary) for one in domains(PUBLISHED)[0].properties}
    assert told == {
        "driverVersion": ("semver", "semver"),
        "index": ("int", "0–7"),  # noqa: RUF001 - as a person reads it
        "memory": ("quantity", "80Gi, 141Gi"),
        "model": ("string", "2 values"),
    }


def test_every_example_compiles_and_chooses_a_device() -> None:
    found = list(examples(PUBLISHED))
    assert len(found) >= 4
    for what, expression in found:
        assert any(compile_selector(expression).matches(view) for view in PUBLISHED.views), what


GUARDED = {"a && b": "g &&\na && b", "a || b": "g &&\n(a || b)", "a ? b : c": "g &&\n(a ? b : c)"}


def test_a_guard_asks_for_the_key_before_all_of_the_expression() -> None:
    for expression, expected in GUARDED.items():
        assert guarded(expression, "g") == expected
    expression = f'device.capacity["{DRIVER}"].cores.isGreaterThan(quantity("1"))'
    missing = "no such key: cores"
    assert guard_of(expression, missing) == f'"cores" in device.capacity["{DRIVER}"]'
    assert guard_of(expression, "division by zero") == ""


def test_a_replaced_line_counts_once_and_only_what_changed_is_shown() -> None:
    lines = difference("a: 1\nb: 2\nc: 3\nd: 4\ne: 5", "a: 1\nb: 2\nc: 3\nd: 4\ne: 6")
    assert [(line.sign, line.text) for line in lines] == [(" ", "c: 3"), (" ", "d: 4"), (MINUS, "e: 5"), ("+", "e: 6")]
    assert lines_changed(lines) == 1
    assert difference("a", "a") == ()


LARGE = f'device.capacity["{DRIVER}"].memory.compareTo(quantity("100Gi")) >= 0'
ODD = f'device.attributes["{DRIVER}"].model == "A100"'


@pytest.mark.parametrize(
    ("before", "after", "held", "sentence"),
    [
        (None, [LARGE], 0, "Matches 2 devices."),
        ([], [LARGE], 22, "Matches 8 → 2. 2 waiting claims would see fewer devices; 22 held claims are not touched."),
        ([LARGE], [], 1, "…2 → 8. 2 …s … more …; 1 held claim is …"),
        ([LARGE], [f"true && {LARGE}"], 0, "Matches 2, as now."),
    ],
)
def test_the_sentence_counts_what_each_claim_would_see(
    before: list[str] | None, after: list[str], held: int, sentence: str
) -> None:
    waiting = [
        ClassRequest("a", "plain", {"gpu": ((),)}),
        ClassRequest("a", "odd", {"gpu": ((ODD,),)}),
        ClassRequest("a", "none", {"gpu": (("false",),)}),
    ]
    assert impact("gpu", before=before, after=after, devices=PUBLISHED, waiting=waiting, held=held).sentence == Outline(
        sentence
    )


def test_of_a_claim_with_several_requests_the_one_that_loses_counts() -> None:
    claim = ClassRequest("a", "both", {"gpu": ((LARGE,), (ODD,))})
    (effect,) = impact("gpu", before=[], after=[LARGE], devices=PUBLISHED, waiting=[claim], held=0).fewer
    assert (effect.before, effect.after) == (4, 1)


@pytest.mark.parametrize(
    ("cost", "percent", "share"),
    [(1, 0.0, "0.0001%"), (1_000, 50.0, "0.1%"), (500_000, 95.0, "50%"), (9**9, 100.0, "38742%")],
)
def test_the_cost_stands_on_a_logarithmic_scale(cost: int, percent: float, share: str) -> None:
    found = Cost(cost=cost, known=True)
    assert (found.percent, found.share, found.exceeds) == (percent, share, cost > 10**6)
    assert Cost(cost=cost, known=False).percent == 0


def test_the_map_draws_runs_and_says_what_it_shows() -> None:
    drawn = draw(judge([LARGE], PUBLISHED))
    assert drawn.width == WIDTH
    assert (drawn.match.count("M"), drawn.miss.count("M"), drawn.error) == (1, 2, "")
    assert drawn.label == texts.CLASS_MAP("2 nodes", "2 devices", "node-1", 6)

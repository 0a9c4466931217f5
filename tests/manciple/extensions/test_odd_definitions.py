"""Definitions and objects that are odd, or mean harm: they are refused or served, and nobody else notices."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from manciple.extensions import json_paths
from manciple.extensions.checking import Checker
from manciple.extensions.expressions import NEW
from manciple.extensions.structure import node_of
from tests.manciple.api.requests import TABLE, Api
from tests.manciple.extensions.builders import DEFINITIONS, WIDGETS, of_schema, schema, widget

ANYTHING: dict[str, Any] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
FOR_ALL = ("/apis", "/apis/example.com/v1", "/openapi/v2", "/openapi/v3/apis/example.com/v1")


def of_value(**one: Any) -> dict[str, Any]:
    """A definition of objects whose spec.x has this schema."""
    return of_schema(schema({"type": "object", "properties": {"x": one}}))


@pytest.mark.parametrize(
    ("pattern", "fits", "does_not"),
    [
        ("(?i)^true$", "TRUE", "no"),
        ("(?s)^a.b$", "a\nb", "ab"),
        (r"^\Qa.b\E$", "a.b", "axb"),
        ("^[^]]$", "[", "]"),
        ("^[]a]$", "]", "b"),
        ("^[[:word:]]$", "_", "é"),
        (r"^a\z", "a", "a\n"),
        ("^(?P<name>a)$", "a", "b"),
        ("^{}$", "{}", "{"),
        (r"^\s$", " ", "\N{NO-BREAK SPACE}"),
        ("^[a&&b]$", "&", "c"),
        ("^[+--]$", ",", "x"),
        ("^[a~~b]$", "~", "c"),
        ("^[^[]$", "]", "["),
        (r"^\w\d$", "a1", "é1"),
    ],
)
def test_a_pattern_means_what_it_means_in_go(pattern: str, fits: str, does_not: str) -> None:
    checker = Checker(node_of({"type": "string", "pattern": pattern}))
    assert checker.check(fits, NEW) == []
    (told,) = checker.check(does_not, NEW)
    assert told.detail.endswith(f"in body should match '{pattern}'")


@pytest.mark.parametrize(
    ("limit", "why"),
    [
        ({"type": "string", "maxLength": -1}, "must be greater than or equal to 0"),
        ({"type": "number", "multipleOf": 0}, "must be greater than 0"),
        ({"type": "string", "pattern": "(a"}, "error parsing regexp: missing ): (a"),
        ({"type": "string", "maxLength": 2**63}, "into field spec.versions[0].schema.openAPIV3Schema"),
    ],
)
def test_limits_that_are_none_are_refused_with_the_definition(api: Api, limit: dict[str, Any], why: str) -> None:
    refused = api.post(DEFINITIONS, of_value(**limit))
    assert refused.code in {400, 422}
    assert why in refused.message


def test_large_numbers_are_floats_as_in_go_and_no_page_for_everybody_fails_by_them(api: Api) -> None:
    large = of_value(type="number", maximum=2**70, default=2**69, exclusiveMinimum=True, enum=[2**69])
    large["spec"]["versions"][0]["additionalPrinterColumns"] = [{"name": "X", "type": "integer", "jsonPath": ".spec.x"}]
    api.made(DEFINITIONS, large)
    assert [api.get(path).code for path in FOR_ALL] == [200] * 4
    made = api.made(WIDGETS, widget(spec={}))
    assert made["spec"] == {"x": 2.0**69}
    assert api.get(WIDGETS, accept=TABLE).json["rows"][0]["cells"] == ["one", None]
    body = json.dumps(widget("two", spec={"x": 1})).replace('"x": 1', '"x": 1e400').encode()
    assert api.post(WIDGETS, body).message.endswith("json: cannot unmarshal number into field spec.x of type float64")


@pytest.mark.parametrize(
    "path",
    [
        f".spec[?({' ' * 4000})]",
        f".spec[?(@.x=={'[' * 2000}{']' * 2000})]",
        f".spec{'[?(' * 1300}",
        f"{'..' * 12}a",
        f".spec{'[*,*]' * 30}",
        f".spec[?(@..a{'..' * 12}b=='x')]",
        "." * 3_000_000,
    ],
    ids=lambda path: path[:20],
)
def test_a_column_whose_path_would_take_for_ever_shows_nothing(path: str) -> None:
    spec: Any = [1]
    for _ in range(30):
        spec = [spec, {"a": 1}]
    began = time.process_time()
    try:
        found = json_paths.find(json_paths.parse(path), {"spec": spec})
    except json_paths.BadPath:
        found = []
    assert found == []
    assert time.process_time() - began < 1


UNREADABLE = (f".spec[?(@.x=={'[' * 2000}{']' * 2000})]", ".spec[-]", ".spec[:-]", f".spec[{'9' * 4000}]", ".spec[::0]")


def test_a_definition_with_columns_that_cannot_be_read_is_served_without_them(api: Api) -> None:
    columns = [{"name": "X", "type": "string", "jsonPath": path} for path in UNREADABLE]
    api.made(DEFINITIONS, of_schema(schema(ANYTHING), additionalPrinterColumns=columns))
    assert [api.get(one).code for one in FOR_ALL] == [200] * 4
    api.made(WIDGETS, widget(spec={"x": []}))
    assert api.get(WIDGETS, accept=TABLE).json["rows"][0]["cells"] == ["one"]


def test_a_scale_with_an_odd_head_is_a_bad_request(api: Api) -> None:
    paths = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
    api.made(DEFINITIONS, of_schema(schema(ANYTHING), subresources={"scale": paths}))
    api.made(WIDGETS, widget(spec={"replicas": 1}))
    refused = api.patch(f"{WIDGETS}/one/scale", {"metadata": "x", "spec": {"replicas": 2}})
    assert refused.code == 400
    assert api.get(f"{WIDGETS}/one").json["spec"] == {"replicas": 1}

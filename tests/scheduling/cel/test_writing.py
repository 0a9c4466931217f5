"""An expression that is written anew from its tree is the same expression."""

from __future__ import annotations

import pytest

from manciple.cel.parser import EVERY_MACRO, parse
from manciple.cel.tree import Ident
from manciple.cel.writing import written


def tree(text: str) -> object:
    return parse(text, without=EVERY_MACRO)


@pytest.mark.parametrize(
    "expression",
    [
        'device.attributes["d"].memory >= 16 && !("x" in device.capacity["d"]) || true',
        "[1, -2, 3u, 1.5e+30, null, b'\\x00a'].exists(one, one == -9223372036854775808)",
        "{'a': 1, ?'b': optional.none()}.all(k, v, has(v.w) ? k.startsWith('\\n\"') : size([?v.?w, v[?0]]) > -(2 - 1))",
        "a - (b - c) == (a - b) - c && a / (b * c) % d < -e.f(g)[h].i",
        "google.protobuf.Int32Value{value: 1} == cel.bind(x, 1, x)",
    ],
)
def test_an_expression_is_written_from_its_tree_as_it_was_read(expression: str) -> None:
    once = written(tree(expression))  # type: ignore[arg-type]
    assert written(tree(once)) == once  # type: ignore[arg-type]


def test_what_is_put_in_other_words_stands_in_their_place() -> None:
    text = written(tree("a.b + f(a) + [a]"), lambda node: "x" if isinstance(node, Ident) and node.name == "a" else None)  # type: ignore[arg-type]
    assert text == "((x.b + f(x)) + [x])"

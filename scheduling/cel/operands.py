"""Cuts the text of an expression at its outermost `&&`, so that a refusal can quote the part that refused.

Only the text is looked at: strings, comments and brackets are skipped. Where the outermost operator is anything but
`&&` (`||`, a conditional, a macro such as cel.bind) the expression is one operand. Each operand of an `&&` chain is an
expression of its own, because nothing outside of it can bind its names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

_TOKEN = re.compile(
    r"""(?P<comment>//[^\n]*)
    |(?P<raw>[bB]?[rR][bB]?(?:\"{3}.*?\"{3}|'{3}.*?'{3}|"[^"\n]*"|'[^'\n]*'))
    |(?P<text>\"{3}(?:\\.|.)*?\"{3}|'{3}(?:\\.|.)*?'{3}|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')
    |(?P<word>[A-Za-z_0-9]+)
    |(?P<open>[(\[{])|(?P<close>[)\]}])
    |(?P<and>&&)|(?P<looser>\|\||(?<!\.)\?)""",
    re.VERBOSE | re.DOTALL,
)


#: How many expressions are kept cut.
KEPT = 1024


@lru_cache(maxsize=KEPT)
def operands(expression: str) -> tuple[str, ...]:
    """What must all be true, in order, each as it is written, without the blanks and parentheses around it.

    `a && (b && c)` -> ("a", "b", "c"); `a || b` -> ("a || b",). The expression must be one that compiles.
    """
    text = _bare(expression)
    cuts = list(_cuts(text))
    if not cuts:
        return (text,)
    starts, ends = [0, *(end for _, end in cuts)], [*(start for start, _ in cuts), len(text)]
    parts = [text[start:end] for start, end in zip(starts, ends, strict=True)]
    return tuple(one for part in parts for one in operands(part))


def _cuts(text: str) -> Iterator[tuple[int, int]]:
    """Where the outermost `&&` stand; nowhere if an operator that binds less tightly stands beside them."""
    tokens = [(match, depth) for match, depth in _tokens(text) if depth == 0]
    if not any(match.lastgroup == "looser" for match, _ in tokens):
        yield from (match.span() for match, _ in tokens if match.lastgroup == "and")


def _tokens(text: str) -> Iterator[tuple[re.Match[str], int]]:
    """Every token with the number of brackets around it; brackets stand outside of themselves."""
    depth = 0
    for match in _TOKEN.finditer(text):
        depth -= match.lastgroup == "close"
        yield match, depth
        depth += match.lastgroup == "open"


def _bare(text: str) -> str:
    """Without the blanks, the comments before and behind, and the parentheses around all of it."""
    text = _without_outer_comments(text.strip())
    while text.startswith("("):
        closing = next((match for match, depth in _tokens(text) if match.lastgroup == "close" and depth == 0), None)
        if closing is None or closing.end() != len(text):
            break
        text = _without_outer_comments(text[1:-1].strip())
    return text


def _without_outer_comments(text: str) -> str:
    while text.startswith("//"):
        text = text.partition("\n")[2].strip()
    comments = [match for match, _ in _tokens(text) if match.lastgroup == "comment"]
    if comments and comments[-1].end() == len(text):
        return _without_outer_comments(text[: comments[-1].start()].strip())
    return text

"""Documents as people see them: YAML, written and read with the places of its errors, and how one state of an object
differs from the next, field by field as values and as lines.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from textwrap import indent
from typing import Any, NotRequired, TypedDict

import yaml

from dashboard.kit.forms import plain
from manciple.wire import codec
from manciple.wire.errors import ApiError

#: What the server keeps in an object's metadata besides what people write.
KEPT_BY_SERVER = ("managedFields", "uid", "resourceVersion", "generation", "creationTimestamp", "selfLink")
#: Unchanged lines around a change.
CONTEXT = 2
MINUS = "\N{MINUS SIGN}"
#: Names in a field's path: what is deeper is a part of that field.
DEPTH = 3

# Field by field -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FieldChange:
    """path: "spec.nodeName". None where the field is missing before, or after."""

    path: str
    before: Any
    after: Any


def changed_fields(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[FieldChange, ...]:
    """What people would call the fields that changed, in the documents' order; without server-managed fields."""
    return tuple(_changes(written(before), written(after), ()))


def _changes(before: Any, after: Any, path: tuple[str, ...]) -> Iterator[FieldChange]:
    if before == after:
        return
    if isinstance(before, Mapping) and isinstance(after, Mapping) and len(path) < DEPTH:
        for name in dict.fromkeys((*before, *after)):
            yield from _changes(before.get(name), after.get(name), (*path, name))
    else:
        yield FieldChange(".".join(path), before, after)


def written(document: Mapping[str, Any]) -> dict[str, Any]:
    """The document without server-managed fields in its metadata."""
    metadata = document.get("metadata", {})
    kept = {name: value for name, value in metadata.items() if name not in KEPT_BY_SERVER}
    return {**document, "metadata": kept}


# As lines -------------------------------------------------------------------------------------------------------------


class _Dumper(yaml.SafeDumper):
    """Block style; texts of several lines stand as such."""


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


_Dumper.add_representer(str, _text)


def dump(value: Any) -> str:
    """YAML as a person would write it: keys in their order, no flow style."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10_000).rstrip("\n")


_DIVIDER = re.compile(r"^---(\s.*)?$")


def divided(text: str) -> list[tuple[int, str]]:
    """The parts of a text of several documents, with the number of lines before each; also those without content."""
    parts, start, lines = list[tuple[int, str]](), 0, text.split("\n")
    for number, line in enumerate([*lines, "---"]):
        if _DIVIDER.match(line):
            parts.append((start, "\n".join(lines[start:number])))
            start = number + 1
    return parts


def has_content(text: str) -> bool:
    """Whether there is more in it than comments."""
    return any(line.strip() and not line.lstrip().startswith("#") for line in text.split("\n"))


def rewritten(text: str, value: Any) -> str:
    """The document with another value: what stays the same stays as it is written, with its comments.

    Where an edit of the text does not give the value (anchors, flow style), it is written anew.
    """
    if not has_content(text):
        return f"{dump(value)}\n"
    try:
        edits = list(_edits(text, yaml.compose(text, Loader=yaml.SafeLoader), read_yaml(text), value))
        for start, end, part in sorted(edits, reverse=True):
            text = f"{text[:start]}{part}{text[end:]}"
        if read_yaml(text) == value:
            return text
    except (YamlProblem, yaml.YAMLError, KeyError):
        pass
    return f"{dump(value)}\n"


def _edits(text: str, node: Any, before: Any, after: Any) -> Iterator[tuple[int, int, str]]:
    """(start, end, what stands there instead); none of them overlap."""
    if before == after:
        return
    lists = isinstance(before, list) and isinstance(after, list) and len(before) == len(after)
    if isinstance(node, yaml.MappingNode) and isinstance(after, dict) and before and after:
        yield from _edits_of_mapping(text, node, before, after)
    elif isinstance(node, yaml.SequenceNode) and lists:
        for child, old, new in zip(node.value, before, after, strict=True):
            yield from _edits(text, child, old, new)
    else:
        yield _replaced(text, node, after)


def _edits_of_mapping(
    text: str, node: yaml.MappingNode, before: dict[str, Any], after: dict[str, Any]
) -> Iterator[tuple[int, int, str]]:
    for place, (key, value) in enumerate(node.value):
        start = text.rfind("\n", 0, key.start_mark.index) + 1
        if key.value in after:
            yield from _edits(text, value, before[key.value], after[key.value])
        elif place or len(node.value) == 1 or not text[start : key.start_mark.index].strip():
            yield start, _line_after(text, _end(value)), ""
        else:  # the first of an entry stands behind its dash, where the next one goes
            yield key.start_mark.index, node.value[1][0].start_mark.index, ""
    column, at = node.value[0][0].start_mark.column, _line_after(text, _end(node))
    added = {name: value for name, value in after.items() if name not in before}
    if added:
        part = indent(dump(added), " " * column) + "\n"
        yield at, at, part if text[:at].endswith("\n") or not at else f"\n{part}"


def _replaced(text: str, node: yaml.Node, value: Any) -> tuple[int, int, str]:
    start, end = node.start_mark.index, _end(node)
    line, dumped = text[text.rfind("\n", 0, start) + 1 : start], dump(value).removesuffix("\n...")
    below_key = not line.strip()
    if not value or not isinstance(value, dict | list):
        needs_blank = below_key or not line.endswith(" ")
        return len(text[:start].rstrip()) if below_key else start, end, f"{' ' if needs_blank else ''}{dumped}"
    if below_key:
        return start, end, indent(dumped, " " * len(line)).lstrip()
    depth = len(line) - len(line.lstrip(" -")) + (2 if isinstance(value, dict) else 0)
    return len(text[:start].rstrip()), end, "\n" + indent(dumped, " " * depth)


def _end(node: yaml.Node) -> int:
    """Where its content ends: the mark of a block is behind the blanks and comments that follow it."""
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        return _end(last[1] if isinstance(last, tuple) else last)
    end: int = node.end_mark.index
    return end


def _line_after(text: str, at: int) -> int:
    end = text.find("\n", max(at - 1, 0) if text[at - 1 : at] == "\n" else at)
    return len(text) if end < 0 else end + 1


@dataclass(frozen=True, slots=True)
class DiffLine:
    """One line of a difference."""

    sign: str  # "+", MINUS, "@" for what is left out, or a blank
    text: str

    @property
    def kind(self) -> str:
        return {"+": "add", MINUS: "del", "@": "skip"}.get(self.sign, "")


def difference(before: str, after: str) -> tuple[DiffLine, ...]:
    """Unified, without headings; empty where nothing changed."""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), n=CONTEXT, lineterm="")
    found = [line for line in lines if not line.startswith(("---", "+++"))]
    # The first heading says nothing: what comes before it is left out as a matter of course.
    return tuple(_line(line) for line in found[1:])


def _line(text: str) -> DiffLine:
    if text.startswith("@@"):
        return DiffLine("@", "⋯")
    return DiffLine(MINUS if text[0] == "-" else text[0], text[1:])


def lines_changed(lines: Sequence[DiffLine]) -> int:
    """As a person counts: a line that was replaced is one."""
    return max(sum(line.sign == "+" for line in lines), sum(line.sign == MINUS for line in lines))


# Reading a text, with the places of its errors ------------------------------------------------------------------------


class Fix(TypedDict):
    """What a click replaces a part of the text by."""

    line: int
    column: int
    end_line: int
    end_column: int
    label: str
    insert: str


class Finding(TypedDict):
    """What is wrong with a text, and where, as static/manciple/kit/editor.js reads it. line, column: from 1, in code
    points; 0 without a place. severity: "error".
    """

    line: int
    column: int
    severity: str
    message: str
    hint: NotRequired[str]
    end_line: NotRequired[int]
    end_column: NotRequired[int]
    fix: NotRequired[Fix]


def finding(line: int, column: int, message: str, *, hint: str = "") -> Finding:
    said = Finding(line=line, column=column, severity="error", message=plain(message))
    return Finding(**said, hint=hint) if hint else said


def sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith('.') else '.'}"


class YamlProblem(ValueError):
    """A text is no YAML."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding["message"])
        self.finding = finding


def read_yaml(text: str) -> Any:
    """Raises: YamlProblem with the place."""
    try:
        yaml.compose(text, Loader=yaml.SafeLoader)  # for the places of its errors
        return codec.read_document(text.encode(), content_type="application/yaml")
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or "cannot be read"
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        raise YamlProblem(finding(line, column, sentence(problem))) from None
    except ApiError as error:
        raise YamlProblem(finding(1, 1, sentence(error.message))) from None
    except RecursionError:
        raise YamlProblem(finding(1, 1, "It is nested too deeply.")) from None


_STEP = re.compile(r"[^.\[\]]+|\[\d+\]")


def place_of(text: str, path: str) -> tuple[int, int]:
    """Line and column of the field that an API path such as `spec.selectors[1].cel` names, or of the nearest above."""
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError:
        return 1, 1
    mark = node.start_mark if node else None
    for step in _STEP.findall(path):
        child = _child(node, step)
        if child is None:
            break
        mark, node = child
    return (mark.line + 1, mark.column + 1) if mark else (1, 1)


def _child(node: yaml.Node | None, step: str) -> tuple[Any, yaml.Node] | None:
    """(where it is written, its value)"""
    if isinstance(node, yaml.SequenceNode) and step.startswith("["):
        index = int(step[1:-1])
        return (node.value[index].start_mark, node.value[index]) if index < len(node.value) else None
    if isinstance(node, yaml.MappingNode):
        return next(((key.start_mark, value) for key, value in node.value if key.value == step), None)
    return None


def at_paths(text: str, causes: Sequence[dict[str, str]]) -> list[Finding]:
    """The causes of a Status (`field`, `message`) at their fields in the text."""
    return [
        finding(*place_of(text, cause.get("field", "")), f"{cause.get('field', '')}: {cause.get('message', '')}")
        for cause in causes
    ]

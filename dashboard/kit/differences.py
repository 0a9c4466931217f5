"""Documents as people see them: YAML, written and read with the places of its errors, and how one state of an object
differs from the next, field by field as values and as lines.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NotRequired, TypedDict

import yaml

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
    """What people would call the fields that changed, in the documents' order; without what the server keeps."""
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
    """The document without what the server keeps in its metadata."""
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
    said = Finding(line=line, column=column, severity="error", message=message)
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

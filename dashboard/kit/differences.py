"""How one state of an object differs from the next: field by field as values, and as lines of YAML."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

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

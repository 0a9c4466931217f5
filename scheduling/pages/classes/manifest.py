"""A DeviceClass as YAML: what the API would store, how it differs from what is stored, and back; its versions."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import yaml
from msgspec import structs

from inventory.kinds.devices import DeviceClass
from manciple.store import history
from manciple.store.history import Revised
from manciple.wire import codec
from manciple.wire.errors import ApiError
from manciple.wire.registry import Kind
from scheduling.pages.classes.diagnostics import Finding, YamlProblem, at_paths, place_of, read_yaml

#: What the server keeps of an object besides what people write.
_KEPT_BY_SERVER = ("managedFields", "uid", "resourceVersion", "generation", "creationTimestamp", "selfLink")
#: Unchanged lines around a change.
CONTEXT = 2
MINUS = "\N{MINUS SIGN}"


class _Dumper(yaml.SafeDumper):
    """Block style; texts of several lines stand as such."""


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


_Dumper.add_representer(str, _text)


def dump(value: Any) -> str:
    """YAML as a person would write it: keys in their order, no flow style."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10_000).rstrip("\n")


def manifest(device_class: DeviceClass, *, server: bool = False) -> str:
    """The class as YAML. server: with what the server keeps, as `kubectl get -o yaml` shows it."""
    document = codec.to_builtins(device_class)
    metadata = document.get("metadata", {})
    dropped = () if server else _KEPT_BY_SERVER
    document["metadata"] = {name: value for name, value in metadata.items() if name not in (*dropped, "managedFields")}
    return dump(document)


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


class Unreadable(ValueError):
    """A text is no DeviceClass. `findings` say where."""

    def __init__(self, findings: list[Finding]) -> None:
        super().__init__(findings[0]["message"])
        self.findings = findings


def parse(text: str, kind: Kind, *, name: str = "") -> DeviceClass:
    """The class that a text describes. name: it must be this one's. Raises: Unreadable."""
    try:
        document = read_yaml(text)
    except YamlProblem as problem:
        raise Unreadable([problem.finding]) from None
    if not isinstance(document, dict):
        raise Unreadable([_finding(1, 1, "A DeviceClass is a mapping with apiVersion, kind, metadata and spec.")])
    try:
        found = codec.decode_document(kind, document, strictness="Strict").object
    except ApiError as refusal:
        raise Unreadable(refusals(text, refusal)) from None
    if not isinstance(found, DeviceClass):
        raise Unreadable([_finding(*place_of(text, "kind"), "The kind must be DeviceClass.")])
    if name and found.metadata.name != name:
        message = f"The name stays {name}: a class is not renamed. Make a new class for another name."
        raise Unreadable([_finding(*place_of(text, "metadata.name"), message)])
    return structs.replace(found, metadata=structs.replace(found.metadata, managed_fields=()))


def refusals(text: str, refusal: ApiError) -> list[Finding]:
    """What the API says against a text, where the fields stand."""
    causes = (refusal.details or {}).get("causes")
    if causes:
        return at_paths(text, causes, lambda cause: f"{cause.get('field', '')}: {cause.get('message', '')}")
    path = refusal.message.partition('unknown field "')[2].partition('"')[0]
    said = refusal.message.rpartition("cannot be handled as a DeviceClass: ")[2]
    return [_finding(*place_of(text, path), said.removeprefix("strict decoding error: "))]


def _finding(line: int, column: int, message: str) -> Finding:
    return {"line": line, "column": column, "severity": "error", "message": message}


# A class's versions --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """One revision. `before` is False where the log does not reach back to what it superseded."""

    revision: int
    at: datetime
    created: bool
    lines: tuple[DiffLine, ...]
    before: bool = True

    @property
    def title(self) -> str:
        if self.created:
            return "Created"
        if not self.before:
            return "The oldest revision that the log still has"
        changed = lines_changed(self.lines)
        return (
            f"{changed} line{'' if changed == 1 else 's'} changed" if changed else "Nothing changed that people write"
        )


def versions(uid: str) -> tuple[Version, ...]:
    """Of a live class, as far as the log reaches back."""
    return told(history.of_object(uid))


def told(found: Sequence[Revised]) -> tuple[Version, ...]:
    """found: oldest first."""
    texts = [manifest(codec.decode_text(DeviceClass, one.text)) for one in found]
    made: list[Version] = []
    for index, (one, text) in enumerate(zip(found, texts, strict=True)):
        created = one.type == "ADDED"
        known = created or index > 0
        lines = difference("" if created else texts[index - 1], text) if known else ()
        made.append(Version(revision=one.revision, at=one.at, created=created, lines=lines, before=known))
    return tuple(reversed(made))

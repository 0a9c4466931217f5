"""A DeviceClass as YAML: what the API would store, and back."""

from __future__ import annotations

from msgspec import structs

from dashboard.inventory.classes.diagnostics import Finding, YamlProblem, at_paths, place_of, read_yaml
from dashboard.kit.differences import KEPT_BY_SERVER, dump
from inventory.kinds.devices import DeviceClass
from manciple.wire import codec
from manciple.wire.errors import ApiError
from manciple.wire.registry import Kind


def manifest(device_class: DeviceClass, *, server: bool = False) -> str:
    """The class as YAML. server: with what the server keeps, as `kubectl get -o yaml` shows it."""
    document = codec.to_builtins(device_class)
    metadata = document.get("metadata", {})
    dropped = () if server else KEPT_BY_SERVER
    document["metadata"] = {name: value for name, value in metadata.items() if name not in (*dropped, "managedFields")}
    return dump(document)


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
    return Finding(line=line, column=column, severity="error", message=message)

"""What may stand where in the YAML of pods, claims and templates: keys from the types themselves, values that exist.

The table is the one that static/manciple/editor.js reads: by the path to a mapping, entries of lists have the path of
their list. It derives from the same declarations as the API's OpenAPI documents.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any

from claims.models import Claim
from inventory.models import DeviceClass, Node
from manciple.pages.people import Person
from manciple.store import objects
from manciple.store.history import namespaces_with
from manciple.wire.schema import ServedKind, components
from scheduling.pages.pods.documents import RESOURCES
from scheduling.resources import NAMESPACES, TEMPLATES, kind

#: How deep the keys are told, and how much of a description.
DEEPEST, LONGEST_TEXT = 9, 160
#: Names of one kind that are offered.
NAMES = 500

Option = dict[str, str]

#: Fields that take one of a few words, whatever the path before them.
_WORDS: Mapping[str, tuple[str, ...]] = {
    "allocationMode": ("ExactCount", "All"),
    "restartPolicy": ("Always", "OnFailure", "Never"),
    "imagePullPolicy": ("Always", "IfNotPresent", "Never"),
    "tolerations.operator": ("Exists", "Equal"),
    "tolerations.effect": ("NoSchedule", "PreferNoSchedule", "NoExecute"),
    "matchExpressions.operator": ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"),
    "matchAttribute": ("resource.kubernetes.io/pcieRoot",),
}


def table(person: Person) -> dict[str, Any]:
    """The keys, and the values that this person may know of."""
    return {"keys": {"": _kinds_keys(), **_keys()}, "values": _values(person)}


def _kinds_keys() -> list[Option]:
    return [{"label": name} for name in ("apiVersion", "kind", "metadata", "spec")]


@cache
def _keys() -> dict[str, list[Option]]:
    """`Kind/path` -> what may stand there."""
    found: dict[str, list[Option]] = {}
    for one in map(kind, RESOURCES):
        served = ServedKind(one.group, one.version, one.kind, one.type)
        schemas = components([served])
        for path, properties in _walk(schemas, schemas[served.name], "", 0):
            if path:
                found[f"{one.kind}/{path}"] = [_option(name, schema) for name, schema in properties.items()]
    return found


def _walk(
    schemas: Mapping[str, Any], schema: Mapping[str, Any], path: str, depth: int
) -> Iterator[tuple[str, dict[str, Any]]]:
    """(path, properties) of the mappings in a schema; what the server writes is left out."""
    properties = {name: one for name, one in schema.get("properties", {}).items() if path or name != "status"}
    if path == "metadata":
        wanted = ("name", "generateName", "namespace", "labels", "annotations")
        properties = {name: properties[name] for name in wanted}
    if properties:
        yield path, properties
    for name, one in properties.items():
        inner = _resolved(schemas, one)
        if depth < DEEPEST and inner.get("properties"):
            yield from _walk(schemas, inner, f"{path}.{name}" if path else name, depth + 1)


def _resolved(schemas: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """A property's schema, or that of its entries."""
    if schema.get("type") == "array":
        schema = schema["items"]
    reference = schema.get("$ref") or next((one.get("$ref") for one in schema.get("allOf", ())), None)
    return schemas[reference.rpartition("/")[2]] if reference else schema


def _option(name: str, schema: Mapping[str, Any]) -> Option:
    text = str(schema.get("description", ""))
    detail = str(schema.get("type", "object" if "allOf" in schema or "$ref" in schema else ""))
    found = {"label": name, "detail": {"array": "list"}.get(detail, detail)}
    return found | ({"info": text[:LONGEST_TEXT]} if text else {})


# Values --------------------------------------------------------------------------------------------------------------


def _values(person: Person) -> dict[str, list[str]]:
    claims = list(person.seen(Claim.objects.all()).order_by("name").values_list("name", flat=True)[:NAMES])
    classes = list(DeviceClass.objects.order_by("name").values_list("name", flat=True)[:NAMES])
    nodes = list(Node.objects.order_by("name").values_list("name", flat=True)[:NAMES])
    found = {
        "kind": [kind(one).kind for one in RESOURCES],
        "apiVersion": sorted({kind(one).api_version for one in RESOURCES}),
        "metadata.namespace": editable_namespaces(person),
        "spec.nodeName": nodes,
        "spec.resourceClaims.resourceClaimName": claims,
        "spec.resourceClaims.resourceClaimTemplateName": sorted({name for _, name in templates(person)}),
    }
    for path, name, words in _words():
        found[path] = classes if name == "deviceClassName" else list(words)
    return found


@cache
def _words() -> tuple[tuple[str, str, tuple[str, ...]], ...]:
    """(path, field, words) of the fields that take one of a few values, or a class."""
    found = []
    for path, options in _keys().items():
        for option in options:
            name = option["label"]
            full = f"{path}.{name}"
            words = next((words for end, words in _WORDS.items() if f".{full}".endswith(f".{end}")), ())
            if words or name == "deviceClassName":
                found.append((full, name, words))
    return tuple(found)


def editable_namespaces(person: Person) -> list[str]:
    """Where the person may make something."""
    names: Iterable[str] = (one.name for one in objects.list(kind(NAMESPACES)).items)
    return [name for name in names if person.may_edit(name)]


def templates(person: Person) -> list[tuple[str, str]]:
    """(namespace, name) of the templates that the person sees."""
    seen = [name for name in namespaces_with(TEMPLATES) if person.sees(name)]
    return [(name, one.name) for name in seen for one in objects.list(kind(TEMPLATES), namespace=name).items][:NAMES]

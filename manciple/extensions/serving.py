"""From a definition to kinds that are served: one `Kind` for each version, all of them of one resource. PURE.

Objects are stored in one version, whose name is all that differs (strategy None). A version has its own schema, so it
prunes, fills in, judges, selects and prints by its own: `Kind`s that share the stored version, each behind the
conversion of its address. Schemas are compiled when an object first needs them.

With the strategy Webhook the versions differ in their content, and somebody else converts (`Convert`). What is written
in another version is checked by the schema of that, converted and stored; it is judged as that version shows it.
Sources: apiextensions-apiserver/pkg/registry/customresource, pkg/apiserver/customresource_handler.go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from msgspec import structs

from manciple.extensions import checking, json_paths
from manciple.extensions.definitions import (
    NAMESPACED,
    CustomResourceColumnDefinition,
    CustomResourceDefinition,
    CustomResourceDefinitionVersion,
    CustomResourceSubresourceScale,
)
from manciple.extensions.expressions import NEW, Before, Rules, path_in
from manciple.extensions.publishing import published
from manciple.extensions.scaling import scale_projection, validate_scale
from manciple.extensions.splitting import splitting_of
from manciple.extensions.structure import NOWHERE, SchemaNode, fit, node_of, prune
from manciple.wire.base import OpenObject, status_metadata
from manciple.wire.codec import decode_document, decode_value, to_builtins
from manciple.wire.errors import FieldError, invalid
from manciple.wire.registry import Column, Conversion, Kind, Served, Subresource, VersionRules
from manciple.wire.tables import AGE_COLUMN, NAME_COLUMN, age
from manciple.wire.validation import Path, validate_object_meta, validate_object_meta_update

#: Faults after which rules are not asked: they may rely on what is wrong.
_BLOCKING = frozenset(
    {
        "FieldValueNotSupported",
        "FieldValueRequired",
        "FieldValueTooLong",
        "FieldValueTooMany",
        "FieldValueTypeInvalid",
    }
)
_BLOCKED = (
    "some validation rules were not checked because the object was invalid; correct the existing errors to complete "
    "validation"
)


@dataclass(frozen=True, slots=True)
class ServedDefinition:
    """What is served of one definition. kind: of the stored version; served: by the version's name."""

    kind: Kind
    served: Mapping[str, Served]


#: (definition, documents, apiVersion) -> the documents in that version. Raises: ApiError.
Convert = Callable[[CustomResourceDefinition, Sequence[dict[str, Any]], str], list[dict[str, Any]]]


def serve(definition: CustomResourceDefinition, convert: Convert) -> ServedDefinition:
    """The kinds of an established definition. convert: asks its webhook."""
    if definition.is_converted:
        return _serve_converted(definition, convert)
    schemas = {version.name: VersionSchema(definition, version) for version in definition.spec.versions}
    stored = schemas[definition.storage_version]
    conversions = {name: _conversion(definition, schema) for name, schema in schemas.items()}
    others = {
        version.name: conversions[version.name]
        for version in definition.spec.versions
        if version.served and version.name != stored.version.name
    }
    kinds = {name: replace(_kind(definition, schema), served_versions=others) for name, schema in schemas.items()}
    served = {
        version.name: Served(kinds[version.name], version.name, conversions[version.name])
        for version in definition.spec.versions
        if version.served
    }
    return ServedDefinition(kinds[stored.version.name], served)


def _serve_converted(definition: CustomResourceDefinition, convert: Convert) -> ServedDefinition:
    schemas = {version.name: VersionSchema(definition, version) for version in definition.spec.versions}
    stored = definition.storage_version
    conversions = {name: _webhook_conversion(definition, schema, convert) for name, schema in schemas.items()}
    others = {
        version.name: conversions[version.name]
        for version in definition.spec.versions
        if version.served and version.name != stored
    }
    there = f"{definition.spec.group}/{stored}"

    def upgraded(obj: OpenObject) -> OpenObject:
        if obj.api_version == there:
            return obj
        (document,) = convert(definition, [to_builtins(obj)], there)
        return decode_value(OpenObject, document)

    kind = replace(_kind(definition, schemas[stored]), served_versions=others, upgraded=upgraded)
    served = {
        version.name: Served(
            _described(definition, kind, schemas[version.name]), version.name, conversions[version.name]
        )
        for version in definition.spec.versions
        if version.served
    }
    return ServedDefinition(kind, served)


def _described(definition: CustomResourceDefinition, kind: Kind, schema: VersionSchema) -> Kind:
    """The kind of the stored version as another version describes it."""
    version = schema.version
    scale = version.subresources.scale if version.subresources else None
    return replace(
        kind,
        subresources=kind.subresources if version.has_status else {},
        projections=kind.projections if scale else {},
        schema=published(version.open_schema or {}),
        deprecation=_deprecation(definition, version),
        description=schema.node.raw.get("description", ""),
    )


def _webhook_conversion(definition: CustomResourceDefinition, schema: VersionSchema, convert: Convert) -> Conversion:
    group, stored = definition.spec.group, definition.storage_version
    here, there = f"{group}/{schema.version.name}", f"{group}/{stored}"
    own = replace(_kind(definition, schema), version=schema.version.name)

    def shown(documents: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        return [_fitted(document, here, schema) for document in convert(definition, documents, here)]

    def seen(*objects: OpenObject) -> list[OpenObject]:
        return [decode_value(OpenObject, document) for document in shown([to_builtins(obj) for obj in objects])]

    rules = VersionRules(
        validate_create=lambda new: schema.validate(*seen(new)),
        validate_update=lambda new, old: schema.validate_update(*seen(new, old)),
        subresources={"status": lambda new, old: schema.validate_status(*seen(new, old))},
    )
    return Conversion(
        to_storage=lambda document: convert(definition, [document], there)[0],
        from_storage=lambda document: shown([document])[0],
        many=shown,
        checked=lambda document, strictness: decode_document(own, document, strictness=strictness),
        rules=rules,
        columns=_columns(schema.version.additional_printer_columns),
    )


def _kind(definition: CustomResourceDefinition, schema: VersionSchema) -> Kind:
    spec, version, accepted = definition.spec, schema.version, definition.status.accepted_names
    scale = version.subresources.scale if version.subresources else None
    return Kind(
        group=spec.group,
        version=definition.storage_version,
        kind=spec.names.kind,
        plural=spec.names.plural,
        singular=accepted.singular,
        short_names=accepted.short_names,
        categories=accepted.categories,
        namespaced=spec.scope == NAMESPACED,
        type=OpenObject,
        prepare_create=schema.prepare,
        prepare_update=schema.prepare_update,
        validate_create=schema.validate,
        validate_update=schema.validate_update,
        subresources={"status": schema.status} if version.has_status else {},
        selectable=_selectable(definition),
        columns=_columns(version.additional_printer_columns),
        generation_of=schema.counted,
        list_kind=accepted.list_kind or spec.names.list_kind,
        fit=schema.fit,
        refitted=_refitted(definition, schema),
        prune=schema.prune,
        splitting=splitting_of(schema.node),
        schema=published(version.open_schema or {}),
        projections={"scale": scale_projection(scale)} if scale else {},
        deprecation=_deprecation(definition, version),
        description=schema.node.raw.get("description", ""),
    )


def _deprecation(definition: CustomResourceDefinition, version: CustomResourceDefinitionVersion) -> str:
    if not version.deprecated:
        return ""
    named = f"{definition.spec.group}/{version.name} {definition.spec.names.kind}"
    return version.deprecation_warning or f"{named} is deprecated"


# Versions -------------------------------------------------------------------------------------------------------------


def _conversion(definition: CustomResourceDefinition, schema: VersionSchema) -> Conversion:
    group, stored = definition.spec.group, definition.storage_version
    here, there = f"{group}/{schema.version.name}", f"{group}/{stored}"

    return Conversion(
        to_storage=lambda document: {**document, "apiVersion": there},
        from_storage=lambda document: _fitted(document, here, schema),
        verbatim_after=_since(definition),
    )


def _fitted(document: dict[str, Any], api_version: str, schema: VersionSchema) -> dict[str, Any]:
    content = {name: part for name, part in document.items() if name not in ("apiVersion", "kind", "metadata")}
    head = {"apiVersion": api_version, "kind": document["kind"], "metadata": document["metadata"]}
    return head | fit(content, schema.node)


def _since(definition: CustomResourceDefinition) -> int | None:
    """The revision since which all that is written has gone through the schema as it is; None: there are several."""
    only = len(definition.spec.versions) == 1
    return int(definition.metadata.resource_version or 0) or None if only else None


def _refitted(definition: CustomResourceDefinition, schema: VersionSchema) -> Callable[[OpenObject, int], OpenObject]:
    since = _since(definition)

    def refitted(obj: OpenObject, revision: int) -> OpenObject:
        if since is None or revision > since:
            return obj
        return structs.replace(obj, content=fit(obj.content, schema.node))

    return refitted


class VersionSchema:
    """What one version makes of objects, and says of them."""

    def __init__(self, definition: CustomResourceDefinition, version: CustomResourceDefinitionVersion) -> None:
        self.version = version
        self._namespaced = definition.spec.scope == NAMESPACED
        self.node: SchemaNode = node_of(version.open_schema or {})

    @cached_property
    def _checker(self) -> checking.Checker:
        return checking.Checker(self.node)

    @cached_property
    def _status_checker(self) -> checking.Checker | None:
        node = self.node.properties.get("status")
        return checking.Checker(node) if node is not None else None

    @cached_property
    def _rules(self) -> Rules:
        return Rules(self.node, root=True)

    @property
    def _scale(self) -> CustomResourceSubresourceScale | None:
        return self.version.subresources.scale if self.version.subresources else None

    def fit(self, content: dict[str, Any], findings: Any) -> dict[str, Any]:
        def dropped(path: str) -> None:
            findings.warn(f'unknown field "{path}"')

        for wrong in checking.embedded_faults(content, self.node):
            findings.note(wrong)
        return fit(content, self.node, dropped=dropped)

    def prune(self, document: dict[str, Any], dropped: Callable[[str], None]) -> dict[str, Any]:
        prune(document, self.node, root=True, dropped=dropped)
        return document

    # Preparing

    def prepare(self, new: OpenObject) -> OpenObject:
        return structs.replace(new, content=_without_status(new.content)) if self.version.has_status else new

    def prepare_update(self, new: OpenObject, old: OpenObject) -> OpenObject:
        if not self.version.has_status:
            return new
        return structs.replace(new, content=_without_status(new.content) | _status_of(old.content))

    def prepare_status(self, new: OpenObject, old: OpenObject) -> OpenObject:
        metadata = status_metadata(new.metadata, old.metadata)
        content = _without_status(old.content) | _status_of(new.content)
        return structs.replace(old, metadata=metadata, content=content)

    def counted(self, obj: OpenObject) -> dict[str, Any]:
        """The part whose changes metadata.generation counts."""
        return _without_status(obj.content) if self.version.has_status else obj.content

    # Judging

    def validate(self, new: OpenObject) -> list[FieldError]:
        document = to_builtins(new)
        found = [
            *validate_object_meta(new.metadata, namespaced=self._namespaced, any_finalizers=True),
            *self._checker.check(document, NEW),
        ]
        found += validate_scale(self._scale, document)
        found += checking.check_embedded(document, self.node)
        found += checking.check_lists(document, self.node)
        return found + self._asked(document, NEW, found)

    def validate_update(self, new: OpenObject, old: OpenObject) -> list[FieldError]:
        document, before = to_builtins(new), self._before(new, old)
        found = [
            *validate_object_meta_update(new.metadata, old.metadata, any_finalizers=True),
            *self._checker.check(document, before),
        ]
        return found + self._whole(document, before, found)

    def validate_status(self, new: OpenObject, old: OpenObject) -> list[FieldError]:
        document, before = to_builtins(new), self._before(new, old)
        found = validate_object_meta_update(new.metadata, old.metadata, any_finalizers=True)
        if self._status_checker is not None and "status" in document:
            of_status = before.member("status", document["status"])
            found += self._status_checker.check(document["status"], of_status, Path("status"))
        return found + self._whole(document, before, found)

    def _before(self, new: OpenObject, old: OpenObject) -> Before:
        """With today's defaults, whenever the old object was written."""
        return Before.of(to_builtins(new), fit(to_builtins(old), self.node))

    def _whole(self, document: dict[str, Any], before: Before, so_far: list[FieldError]) -> list[FieldError]:
        found = validate_scale(self._scale, document)
        found += checking.check_embedded(document, self.node)
        if not checking.check_lists(before.value, self.node):
            found += checking.check_lists(document, self.node)
        return found + self._asked(document, before, [*so_far, *found])

    def _asked(self, document: dict[str, Any], before: Before, so_far: list[FieldError]) -> list[FieldError]:
        if not self._rules.any:
            return []
        if any(error.type in _BLOCKING for error in so_far):
            return [invalid(NOWHERE, None, _BLOCKED)]
        return self._rules.check(document, before)

    @property
    def status(self) -> Subresource:
        return Subresource(prepare_update=self.prepare_status, validate_update=self.validate_status)


def _without_status(content: Mapping[str, Any]) -> dict[str, Any]:
    return {name: part for name, part in content.items() if name != "status"}


def _status_of(content: Mapping[str, Any]) -> dict[str, Any]:
    return {"status": content["status"]} if "status" in content else {}


# Selecting and printing -----------------------------------------------------------------------------------------------


def _selectable(definition: CustomResourceDefinition) -> Callable[[OpenObject], Mapping[str, str]]:
    """The fields of all versions, because objects are stored once."""
    paths: dict[str, json_paths.Path] = {}
    for version in definition.spec.versions:
        node = node_of(version.open_schema or {})
        for one in version.selectable_fields:
            if (found := path_in(one.json_path, node, arrays=False)) is not None:
                paths[found[0]] = json_paths.parse(one.json_path)
    return lambda obj: {name: _selected(json_paths.find(path, obj.content)) for name, path in paths.items()}


def _selected(found: list[Any]) -> str:
    if not found or found[0] is None:
        return ""
    return str(found[0]).lower() if isinstance(found[0], bool) else str(found[0])


def _columns(defined: tuple[CustomResourceColumnDefinition, ...]) -> tuple[Column, ...]:
    if not defined:
        return (NAME_COLUMN, AGE_COLUMN)
    return (NAME_COLUMN, *(column for one in defined for column in _column(one)))


def _column(defined: CustomResourceColumnDefinition) -> Iterator[Column]:
    try:
        path = json_paths.parse(defined.json_path)
    except json_paths.BadPath:
        return  # as upstream: a column that cannot find anything is left out

    needs_head = "metadata" in defined.json_path or ".." in defined.json_path

    def cell(obj: OpenObject, now: float) -> Any:
        document = to_builtins(obj) if needs_head else {"kind": obj.kind, **obj.content}
        return _shown(json_paths.find(path, document), defined.type, now)

    text = defined.description or f"Custom resource definition column (in JSONPath format): {defined.json_path}"
    yield Column(
        name=defined.name,
        type=defined.type,
        format=defined.format,
        description=text,
        priority=defined.priority,
        cell=cell,
    )


def _shown(found: list[Any], type_: str, now: float) -> Any:
    """A cell's value: numbers and flags as they are, where they are of the column's type; None shows as nothing."""
    value = found[0] if found else None
    if value is None:
        return None
    if type_ == "date":
        return age(value, now) if isinstance(value, str) else "<invalid>"
    if type_ == "integer":
        is_whole = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 2**63
        return int(value) if is_whole else None
    if type_ == "number":
        return value if isinstance(value, int | float) and not isinstance(value, bool) else None
    if type_ == "boolean":
        return value if isinstance(value, bool) else None
    return _as_text(value)


def _as_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict | list):
        return checking.compact(value)
    return str(value)

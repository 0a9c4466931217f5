"""What a definition may say: group, names, scope, versions and what they serve. PURE.

Source: apiextensions-apiserver/pkg/apis/apiextensions/validation/validation.go, pkg/apihelpers/helpers.go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar
from urllib.parse import urlsplit

from manciple.access.kinds.webhook_clients import validate_client
from manciple.extensions.definitions import (
    APPROVAL,
    ESTABLISHED,
    CustomResourceColumnDefinition,
    CustomResourceDefinition,
    CustomResourceDefinitionNames,
    CustomResourceDefinitionSpec,
    CustomResourceDefinitionVersion,
    CustomResourceSubresourceScale,
    SelectableField,
)
from manciple.extensions.expressions import path_in
from manciple.extensions.schema_rules import validate_schema
from manciple.extensions.structure import Schema, node_of
from manciple.wire.errors import FieldError, duplicate, forbidden, immutable, invalid, not_supported, required, too_many
from manciple.wire.validation import (
    METADATA,
    SPEC,
    STATUS,
    Path,
    check_dns_1035_label,
    check_dns_subdomain,
    check_object_name,
    validate_object_meta,
    validate_object_meta_update,
)

#: versions of ConversionReview that upstream speaks; we speak v1
REVIEW_VERSIONS, SPOKEN = ("v1", "v1beta1"), "v1"
COLUMN_TYPES = ("boolean", "date", "integer", "number", "string")
COLUMN_FORMATS = ("byte", "date", "date-time", "double", "float", "int32", "int64", "password")
MOST_SELECTABLE = 8
_PROTECTED = ("k8s.io", "kubernetes.io")
_LONGEST_WARNING = 256
Errors = Iterator[FieldError]


def validate(new: CustomResourceDefinition) -> list[FieldError]:
    def name_rule(text: str, *, prefix: bool = False) -> Sequence[str]:
        found = check_object_name(text, prefix=prefix)
        named = text == f"{new.spec.names.plural}.{new.spec.group}"
        return found if named else (*found, 'must be spec.names.plural+"."+spec.group')

    return [
        *validate_object_meta(new.metadata, namespaced=False, name_rule=name_rule, any_finalizers=True),
        *_spec(new.spec, SPEC),
        *_status(new),
        *_approval(new, None),
    ]


def validate_update(new: CustomResourceDefinition, old: CustomResourceDefinition) -> list[FieldError]:
    return [
        *validate_object_meta_update(new.metadata, old.metadata, any_finalizers=True),
        *_spec(new.spec, SPEC, old.spec),
        *_fixed(new.spec, old.spec, established=old.holds(ESTABLISHED)),
        *_status(new),
        *_approval(new, old),
    ]


def validate_status(new: CustomResourceDefinition, old: CustomResourceDefinition) -> list[FieldError]:
    return [*validate_object_meta_update(new.metadata, old.metadata, any_finalizers=True), *_status(new)]


def _fixed(new: CustomResourceDefinitionSpec, old: CustomResourceDefinitionSpec, *, established: bool) -> Errors:
    if established:
        if new.scope != old.scope:
            yield immutable(SPEC.child("scope"), new.scope)
        if new.names.kind != old.names.kind:
            yield immutable(SPEC.child("names", "kind"), new.names.kind)
    if new.group != old.group:
        yield immutable(SPEC.child("group"), new.group)
    if new.names.plural != old.names.plural:
        yield immutable(SPEC.child("names", "plural"), new.names.plural)


# The spec -------------------------------------------------------------------------------------------------------------


def _spec(spec: CustomResourceDefinitionSpec, path: Path, old: CustomResourceDefinitionSpec | None = None) -> Errors:
    group = path.child("group")
    if not spec.group:
        yield required(group)
    elif wrong := check_dns_subdomain(spec.group):
        yield invalid(group, spec.group, ",".join(wrong))
    elif "." not in spec.group:
        yield invalid(group, spec.group, "should be a domain with at least one dot")
    if not spec.scope:
        yield required(path.child("scope"))
    elif spec.scope not in ("Cluster", "Namespaced"):
        yield not_supported(path.child("scope"), spec.scope, ("Cluster", "Namespaced"))
    yield from _versions(spec, path)
    yield from _schemas(spec, path, old)
    yield from _served_beside(spec, path)
    yield from _names(spec.names, path.child("names"), wanted=True)
    if spec.preserve_unknown_fields:
        why = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"
        yield invalid(path.child("preserveUnknownFields"), True, why)
    yield from _conversion(spec, path.child("conversion"))


def _versions(spec: CustomResourceDefinitionSpec, path: Path) -> Errors:
    for at, version in enumerate(spec.versions):
        where = path.child("versions").at(at)
        if version.open_schema is None:
            yield required(where.child("schema", "openAPIV3Schema"))
        if wrong := check_dns_1035_label(version.name):
            yield invalid(where.child("name"), version.name, ",".join(wrong))
        for why in _warning_faults(version.deprecation_warning, deprecated=version.deprecated):
            yield invalid(where.child("deprecationWarning"), version.deprecation_warning, why)
    if spec.versions and spec.versions[0].name and (wrong := check_dns_1035_label(spec.versions[0].name)):
        yield invalid(path.child("version"), spec.versions[0].name, ",".join(wrong))
    versions = path.child("versions")
    if len({version.name for version in spec.versions}) < len(spec.versions):
        yield invalid(versions, spec.versions, "must contain unique version names")
    if sum(version.storage for version in spec.versions) != 1:
        yield invalid(versions, spec.versions, "must have exactly one version marked as storage version")


def _served_beside(spec: CustomResourceDefinitionSpec, path: Path) -> Errors:
    """Subresources and columns."""
    for where, scale in _placed(spec, path, "subresources", lambda version: version.subresources):
        if scale is not None and scale.scale is not None:
            yield from _scale(scale.scale, where)
    for where, columns in _placed(
        spec, path, "additionalPrinterColumns", lambda version: version.additional_printer_columns
    ):
        for at, column in enumerate(columns):
            yield from _column(column, where.at(at))


def _conversion(spec: CustomResourceDefinitionSpec, path: Path) -> Errors:
    conversion = spec.conversion
    if conversion is None:
        return
    strategies = ("None", "Webhook")
    if not conversion.strategy:
        yield required(path.child("strategy"))
    elif conversion.strategy not in strategies:
        yield not_supported(path.child("strategy"), conversion.strategy, strategies)
    elif conversion.strategy == "Webhook":
        if conversion.webhook is None or conversion.webhook.client_config is None:
            yield required(path.child("webhookClientConfig"), "required when strategy is set to Webhook")
        else:
            yield from validate_client(conversion.webhook.client_config, path.child("webhookClientConfig"))
        versions = conversion.webhook.conversion_review_versions if conversion.webhook else ()
        yield from _review_versions(versions, path.child("conversionReviewVersions"))
    if conversion.strategy == "None" and conversion.webhook:
        why = "should not be set when strategy is not set to Webhook"
        if conversion.webhook.client_config:
            yield forbidden(path.child("webhookClientConfig"), why)
        if conversion.webhook.conversion_review_versions:
            yield forbidden(path.child("conversionReviewVersions"), why)


def _review_versions(versions: Sequence[str], path: Path) -> Errors:
    """v1 must be among them: no other is spoken here."""
    if not versions:
        yield required(path)
        return
    for at, version in enumerate(versions):
        if version in versions[:at]:
            yield invalid(path.at(at), version, "duplicate version")
        elif wrong := check_dns_1035_label(version):
            yield invalid(path.at(at), version, ",".join(wrong))
    if not set(REVIEW_VERSIONS) & set(versions):
        yield invalid(path, versions, f"must include at least one of {', '.join(REVIEW_VERSIONS)}")
    elif SPOKEN not in versions:
        yield invalid(path, versions, f"must include {SPOKEN}, the version that this server speaks")


def _names(names: CustomResourceDefinitionNames, path: Path, *, wanted: bool) -> Errors:
    single = {
        "plural": names.plural,
        "singular": names.singular,
        "kind": names.kind,
        "listKind": names.list_kind,
    }
    if wanted:
        yield from (required(path.child(name)) for name, text in single.items() if not text)
    for name, text in single.items():
        is_kind = name in ("kind", "listKind")
        if text and (wrong := check_dns_1035_label(text.lower() if is_kind else text)):
            prefix = "may have mixed case, but should otherwise match: " if is_kind else ""
            yield invalid(path.child(name), text, prefix + ",".join(wrong))
    for name, texts in (("shortNames", names.short_names), ("categories", names.categories)):
        for at, text in enumerate(texts):
            if wrong := check_dns_1035_label(text):
                yield invalid(path.child(name).at(at), text, ",".join(wrong))
    if names.kind and names.kind == names.list_kind:
        yield invalid(path.child("listKind"), names.list_kind, "kind and listKind may not be the same")


def _status(new: CustomResourceDefinition) -> Errors:
    yield from _names(new.status.accepted_names, STATUS.child("acceptedNames"), wanted=False)
    path, stored = STATUS.child("storedVersions"), new.status.stored_versions
    if not stored:
        yield invalid(path, [], "must have at least one stored version")
        return
    known = {version.name for version in new.spec.versions}
    for version in new.spec.versions:
        if version.storage and version.name not in stored:
            yield invalid(path, list(stored), f"must have the storage version {version.name}")
    for at, name in enumerate(stored):
        if name not in known:
            why = (
                f"missing from spec.versions; {name} was previously a storage version, and must remain in "
                f"spec.versions until a storage migration ensures no data remains persisted in {name} and removes "
                f"{name} from status.storedVersions"
            )
            yield invalid(path.at(at), name, why)


# Versions -------------------------------------------------------------------------------------------------------------


Part = TypeVar("Part")


def _placed(
    spec: CustomResourceDefinitionSpec,
    path: Path,
    name: str,
    part: Callable[[CustomResourceDefinitionVersion], Part],
    *,
    once: str = "",
) -> Iterator[tuple[Path, Part]]:
    """(where errors say it stands, a part of the versions): what all versions have alike stands in the spec itself,
    as upstream keeps it.
    """
    found = [part(version) for version in spec.versions]
    if found and found[0] not in (None, ()) and all(one == found[0] for one in found):
        yield path.child(once or name), found[0]
        return
    for at, one in enumerate(found):
        yield path.child("versions").at(at).child(name), one


def _schemas(spec: CustomResourceDefinitionSpec, path: Path, old: CustomResourceDefinitionSpec | None) -> Errors:
    """What was accepted before is not judged anew: rules may have become stricter since."""
    accepted = [(version.open_schema, version.has_status) for version in old.versions] if old else []
    has_status = any(version.has_status for version in spec.versions)
    judged: dict[str, bool] = {}
    for where, schema in _placed(spec, path, "schema", lambda version: version.open_schema, once="validation"):
        if schema is None or (schema, has_status) in accepted:
            continue
        wrong = validate_schema(schema, where.child("openAPIV3Schema"), has_status=has_status)
        judged[where] = bool(wrong)
        yield from wrong
    if any(judged.values()):
        return
    for where, version in _placed(spec, path, "selectableFields", lambda one: (one.selectable_fields, one.open_schema)):
        fields, schema = version
        if schema is not None:
            yield from _selectable(fields, schema, where)


def _warning_faults(warning: str | None, *, deprecated: bool) -> Iterator[str]:
    if warning is None:
        return
    if not deprecated:
        yield "can only be set for deprecated versions"
        return
    if len(warning.encode()) > _LONGEST_WARNING:
        yield "must be <= 256 characters long"
    if not warning:
        yield "must not be an empty string"
    at = next((at for at, one in enumerate(warning) if not one.isprintable()), None)
    if at is not None:
        bytes_before = len(warning[:at].encode())
        yield f"must only contain printable UTF-8 characters; non-printable character found at index {bytes_before}"


def _scale(scale: CustomResourceSubresourceScale, path: Path) -> Errors:
    for name, text, roots, why in (
        ("specReplicasPath", scale.spec_replicas_path, (".spec.",), "should be a json path under .spec"),
        ("statusReplicasPath", scale.status_replicas_path, (".status.",), "should be a json path under .status"),
    ):
        where = path.child("scale", name)
        if not text:
            yield required(where)
        else:
            yield from _simple_path(text, where, roots, why)
    if scale.label_selector_path:
        where = path.child("scale", "labelSelectorPath")
        why = "should be a json path under either .spec or .status"
        yield from _simple_path(scale.label_selector_path, where, (".spec.", ".status."), why)


def _simple_path(text: str, path: Path, roots: tuple[str, ...] = (), why: str = "") -> Errors:
    if not text.startswith("."):
        yield invalid(path, text, "must be a simple json path starting with .")
    elif roots and not text.startswith(roots):
        yield invalid(path, text, why)


def _column(column: CustomResourceColumnDefinition, path: Path) -> Errors:
    if not column.name:
        yield required(path.child("name"))
    types = f"must be one of {','.join(COLUMN_TYPES)}"
    if not column.type:
        yield required(path.child("type"), types)
    elif column.type not in COLUMN_TYPES:
        yield invalid(path.child("type"), column.type, types)
    if column.format and column.format not in COLUMN_FORMATS:
        yield invalid(path.child("format"), column.format, f"must be one of {','.join(COLUMN_FORMATS)}")
    if not column.json_path:
        yield required(path.child("JSONPath"))
        return
    yield from _simple_path(column.json_path, path.child("JSONPath"))


def _selectable(fields: Sequence[SelectableField], schema: Schema, path: Path) -> Errors:
    node, seen = node_of(schema), set[str]()
    for at, selectable in enumerate(fields):
        where, text = path.at(at).child("jsonPath"), selectable.json_path
        if not text:
            yield required(where)
            continue
        found = path_in(text, node, arrays=False)
        if found is None:
            yield invalid(where, text, "is an invalid path: does not refer to a valid field")
            continue
        shown, there = found
        if shown.partition(".")[0] == "metadata":
            yield invalid(where, text, "must not point to fields in metadata")
        if there is None or there.type not in ("string", "boolean", "integer"):
            allowed = "Enum string fields and strings with formats are allowed."
            yield invalid(where, text, f"must point to a field of type string, boolean or integer. {allowed}")
        if shown in seen:
            yield duplicate(where, text)
        seen.add(shown)
    if len(seen) > MOST_SELECTABLE:
        yield too_many(path, len(seen), MOST_SELECTABLE)


# Groups of Kubernetes' own --------------------------------------------------------------------------------------------


def is_protected(group: str) -> bool:
    return any(group == one or group.endswith(f".{one}") for one in _PROTECTED)


def approval_fault(annotation: str | None) -> str:
    """Why a definition in a protected group is not approved; "" where it is, or says that it does without."""
    if annotation is None or not annotation:
        return "protected groups must have approval annotation " + (
            f'"{APPROVAL}", see https://github.com/kubernetes/enhancements/pull/1111'
        )
    if annotation.startswith("unapproved"):
        return ""
    address = urlsplit(annotation)
    if address.scheme and address.netloc:
        return ""
    return (
        f'protected groups must have approval annotation "{APPROVAL}" with either a URL or a reason starting with '
        '"unapproved", see https://github.com/kubernetes/enhancements/pull/1111'
    )


def _approval(new: CustomResourceDefinition, old: CustomResourceDefinition | None) -> Errors:
    if not is_protected(new.spec.group):
        return
    given = new.metadata.annotations.get(APPROVAL)
    why = approval_fault(given)
    if not why or (old is not None and approval_fault(old.metadata.annotations.get(APPROVAL)) == why):
        return
    where = METADATA.child("annotations").key(APPROVAL)
    yield invalid(where, given, why) if given else required(where, why)

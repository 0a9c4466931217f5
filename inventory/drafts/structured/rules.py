"""Rules of NodeResourceSlice, and of what the draft alone says in parameters of claims and classes. PURE.

"All names must be DNS sub-domains": but the draft's own examples have attributes named `UUID` and `driverVersion`, so
names of attributes may have capitals. Names that end with .k8s.io are kept for Kubernetes. Where the draft says
nothing, the rules are those of Kubernetes 1.30 for what became of it.
"""

from __future__ import annotations

from msgspec.structs import replace

from inventory.drafts.structured.dialect import tolerant_version, translated
from inventory.drafts.structured.values import (
    DraftResourceRequest,
    NamedResourceAttribute,
    NamedResourcesWithAttributesRequest,
    NamedResourceWithAttributes,
    NodeResourceSlice,
    SelectedResource,
)
from inventory.kinds.device_rules import EXPRESSION_MAX, TOO_COMPLEX, validate_driver_name, validate_expression
from manciple.cel.errors import CompileError
from manciple.wire.errors import FieldError, forbidden, invalid, required, too_long
from manciple.wire.validation import (
    SPEC,
    Path,
    check_dns_subdomain,
    required_or,
    validate_immutable,
    validate_list,
    validate_object_meta,
    validate_object_meta_update,
    validate_set,
)

Errors = list[FieldError]
MODEL = "namedResourcesWithAttributes"
#: The names of attributes to which Kubernetes may give a meaning.
RESERVED = ".k8s.io"
VALUES = "quantity, bool, int, intSlice, string, stringSlice or version"

# NodeResourceSlice ----------------------------------------------------------------------------------------------------


def prepare_slice(new: NodeResourceSlice) -> NodeResourceSlice:
    """Versions are kept as semantic versioning writes them; what is none stays, to be refused."""
    resources = new.spec.named_resources_with_attributes
    if resources is None:
        return new
    normal = tuple(replace(one, attributes=tuple(map(_normal, one.attributes))) for one in resources)
    return replace(new, spec=replace(new.spec, named_resources_with_attributes=normal))


def _normal(attribute: NamedResourceAttribute) -> NamedResourceAttribute:
    version = attribute.version_value
    return attribute if version is None else replace(attribute, version_value=tolerant_version(version) or version)


def validate_slice(new: NodeResourceSlice) -> Errors:
    spec = new.spec
    found = validate_object_meta(new.metadata, namespaced=False)
    found += required_or(check_dns_subdomain, spec.node_name, SPEC.child("nodeName"))
    found += validate_driver_name(spec.driver_name, SPEC.child("driverName"))
    if spec.named_resources_with_attributes is None:
        return [*found, required(SPEC.child(MODEL), "exactly one structured model must be set")]
    resources = spec.named_resources_with_attributes
    return found + validate_set(resources, SPEC.child(MODEL), _validate_resource, key=lambda one: one.name)


def validate_slice_update(new: NodeResourceSlice, old: NodeResourceSlice) -> Errors:
    """Node and driver cannot change."""
    found = validate_object_meta_update(new.metadata, old.metadata) + validate_slice(new)
    found += validate_immutable(new.spec.node_name, old.spec.node_name, SPEC.child("nodeName"))
    return found + validate_immutable(new.spec.driver_name, old.spec.driver_name, SPEC.child("driverName"))


def _validate_resource(resource: NamedResourceWithAttributes, path: Path) -> Errors:
    found = required_or(check_dns_subdomain, resource.name, path.child("name"))
    attributes = path.child("attributes")
    return found + validate_set(resource.attributes, attributes, _validate_attribute, key=lambda one: one.name)


def _validate_attribute(attribute: NamedResourceAttribute, path: Path) -> Errors:
    name = attribute.name
    found = required_or(lambda text: check_dns_subdomain(text.lower()), name, path.child("name"))
    if name.lower().endswith(RESERVED):
        found.append(invalid(path.child("name"), name, f"names that end with {RESERVED} are reserved for Kubernetes"))
    values = (
        *(attribute.quantity, attribute.bool_value, attribute.int_value, attribute.int_slice),
        *(attribute.string_value, attribute.string_slice, attribute.version_value),
    )
    given = sum(value is not None for value in values)
    if given != 1:
        found.append(invalid(path, name, f"must have exactly one of {VALUES}, has {given}"))
    version = attribute.version_value
    if version is not None and tolerant_version(version) is None:
        found.append(invalid(path.child("version"), version, "must be a semantic version, such as 1.2.3 or v1.2"))
    return found


# Parameters -----------------------------------------------------------------------------------------------------------


def validate_requests(requests: tuple[DraftResourceRequest, ...], path: Path) -> Errors:
    """Those of ResourceClaimParameters."""
    return validate_list(requests, path, _validate_request)


def _validate_request(request: DraftResourceRequest, path: Path) -> Errors:
    found = validate_driver_name(request.driver_name, path.child("driverName"))
    model = request.named_resources_with_attributes
    if model is None:
        return [*found, required(path.child(MODEL), "exactly one structured model must be set")]
    return found + _validate_model(model, path.child(MODEL), request.driver_name)


def _validate_model(model: NamedResourcesWithAttributesRequest, path: Path, driver: str) -> Errors:
    if model.required and model.selector:
        return [forbidden(path.child("selector"), "must not be set besides `required`")]
    if model.selector:
        return validate_selector(model.selector, path.child("selector"), driver)
    if not model.required:
        return [required(path.child("required"))]

    def validate_one(one: SelectedResource, at: Path) -> Errors:
        return validate_selector(one.selector, at.child("selector"), driver)

    return validate_list(model.required, path.child("required"), validate_one)


def validate_selector(selector: str, path: Path, driver: str) -> Errors:
    """A selector of the draft, or of Kubernetes 1.30's named resources."""
    if not selector:
        return [required(path)]
    if len(selector.encode()) > EXPRESSION_MAX:
        return [too_long(path, EXPRESSION_MAX)]
    try:
        text = translated(selector, driver)
    except CompileError as error:
        return [invalid(path, selector, error.message)]
    found = validate_expression(text, path)
    # Its greatest cost cannot be told from a translation, in which any attribute may be a list. Evaluation is bounded.
    problems = [one for one in found if one.detail != TOO_COMPLEX]
    return [invalid(path, selector, f"{one.detail} (as translated)") for one in problems]

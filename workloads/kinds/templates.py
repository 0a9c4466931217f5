"""The pods that workloads make: PodTemplateSpec, its defaults and its rules, and a pod made of one. PURE.

Sources: k8s.io/api/core/v1 (PodTemplateSpec), pkg/apis/core/validation (ValidatePodTemplateSpec),
pkg/apis/apps/validation (the selector and the template that it must match), pkg/controller/controller_utils.go
(GetPodFromTemplate, IsPodActive) and pkg/api/v1/pod/util.go of Kubernetes 1.36.
"""

from __future__ import annotations

import hashlib
from typing import Annotated, ClassVar

import msgspec
from msgspec.structs import replace

from claims.kinds.pod_rules import validate_size, validate_spec
from claims.kinds.pod_security import (
    has_profile_annotations,
    validate_profile_annotations,
    validate_profiles_match,
)
from claims.kinds.pod_strategy import OF_PODS, with_defaults, with_hidden_fields
from claims.kinds.pods import Pod, PodSpec
from inventory.kinds.gates import without_disabled
from manciple.wire.base import (
    ApiObject,
    LabelSelector,
    ObjectMeta,
    OwnerReference,
    Value,
    always,
    pb,
)
from manciple.wire.errors import FieldError, forbidden, invalid, not_supported, required
from manciple.wire.selectors import as_label_selector, validate_label_selector
from manciple.wire.validation import SPEC, Path, validate_annotations, validate_labels

PACKAGE = "io.k8s.api.apps.v1"

Errors = list[FieldError]

TEMPLATE = SPEC.child("template")


class PodTemplateSpec(Value):
    """What the pods look like.

    metadata: their labels and annotations. spec: as of a pod.
    """

    SCHEMA: ClassVar = "io.k8s.api.core.v1.PodTemplateSpec"

    metadata: Annotated[ObjectMeta, pb(1)] = always(ObjectMeta())
    spec: Annotated[PodSpec, pb(2)] = PodSpec()


# How it is stored -----------------------------------------------------------------------------------------------------


def prepared(new: PodTemplateSpec, old: PodTemplateSpec | None = None) -> PodTemplateSpec:
    """With a pod's defaults, and without the fields of features that are off, unless `old` has them."""
    before = None if old is None else old.spec
    spec = with_defaults(without_disabled(new.spec, before, OF_PODS))
    spec = replace(spec, enable_service_links=new.spec.enable_service_links)  # only pods themselves get a default
    return replace(new, spec=spec if before is None else with_hidden_fields(spec, before))


# Rules ----------------------------------------------------------------------------------------------------------------


def validate_template(template: PodTemplateSpec, path: Path = TEMPLATE) -> Errors:
    """What holds for the templates of every kind."""
    meta, spec = template.metadata, template.spec
    found = validate_labels(meta.labels, path.child("labels"))
    found += validate_annotations(meta.annotations, path.child("annotations"))
    of_pod = validate_size(spec) or validate_spec(spec, ObjectMeta())
    if has_profile_annotations(meta.annotations):
        of_pod += validate_profile_annotations(meta.annotations, spec)
        of_pod += validate_profiles_match(meta.annotations, spec)
    if spec.ephemeral_containers:
        of_pod.append(forbidden(SPEC.child("ephemeralContainers"), "ephemeral containers not allowed in pod template"))
    return found + [replace(error, field=f"{path}.{error.field}") for error in of_pod]


def validate_selected(selector: LabelSelector | None, template: PodTemplateSpec, *, empty: str, kind: str) -> Errors:
    """The selector of a workload whose pods always run, and the template that it must match.

    empty: what is wrong with a selector that selects everything. kind: the kind's name, in what is forbidden.
    """
    at = SPEC.child("selector")
    found = [required(at)] if selector is None else validate_label_selector(selector, at)
    is_readable = selector is None or not found
    if selector is not None and not selector.match_labels and not selector.match_expressions:
        found.append(invalid(at, selector, empty))
    if not is_readable:
        return [*found, invalid(at, selector, "invalid label selector")]
    parsed = as_label_selector(selector)
    if not parsed.empty and not parsed.matches(template.metadata.labels):
        labels = template.metadata.labels or None
        message = "`selector` does not match template `labels`"
        found.append(invalid(TEMPLATE.child("metadata", "labels"), labels, message))
    found += validate_template(template)
    return found + validate_always_running(template, kind=kind)


def validate_always_running(template: PodTemplateSpec, *, kind: str) -> Errors:
    """Of pods that run for as long as they are wanted."""
    found: Errors = []
    policy = template.spec.restart_policy
    if policy != "Always":
        found.append(not_supported(TEMPLATE.child("spec", "restartPolicy"), policy, ("Always",)))
    if template.spec.active_deadline_seconds is not None:
        message = f"activeDeadlineSeconds in {kind} is not Supported"
        found.append(forbidden(TEMPLATE.child("spec", "activeDeadlineSeconds"), message))
    return found


# Pods of a template ---------------------------------------------------------------------------------------------------


def owner_reference(owner: ApiObject) -> OwnerReference:
    """Of what `owner` controls (upstream: metav1.NewControllerRef)."""
    return OwnerReference(
        api_version=owner.api_version,
        kind=owner.kind,
        name=owner.metadata.name,
        uid=owner.metadata.uid,
        controller=True,
        block_owner_deletion=True,
    )


def pod_of(template: PodTemplateSpec, owner: ApiObject) -> Pod:
    """A pod that `owner` controls, whose name the server makes of the owner's."""
    meta = template.metadata
    metadata = ObjectMeta(
        generate_name=f"{owner.metadata.name}-",
        namespace=owner.metadata.namespace,
        labels=meta.labels,
        annotations=meta.annotations,
        finalizers=meta.finalizers,
        owner_references=(owner_reference(owner),),
    )
    return Pod(api_version="v1", kind="Pod", metadata=metadata, spec=template.spec)


#: The characters of generated names, which spell no words.
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"


def template_hash(template: PodTemplateSpec, collisions: int) -> str:
    """Ten letters and digits for what a template says. collisions: so many other templates had the same.

    Another one than upstream's, which is of how Go prints a struct (pkg/controller/controller_utils.go, ComputeHash).
    """
    text = msgspec.json.encode(template) + (str(collisions).encode() if collisions else b"")
    digits = f"{int.from_bytes(hashlib.sha256(text).digest()[:4]):010}"
    return "".join(_ALPHABET[ord(digit) % len(_ALPHABET)] for digit in digits)


def without_label(template: PodTemplateSpec, label: str) -> PodTemplateSpec:
    if label not in template.metadata.labels:
        return template
    labels = {key: value for key, value in template.metadata.labels.items() if key != label}
    return replace(template, metadata=replace(template.metadata, labels=labels))

"""apiextensions.k8s.io/v1 CustomResourceDefinition: its types, and how one is prepared. PURE.

What may stand in one is `definition_rules`' business, what its schemas may say `schema_rules`'. Source:
apiextensions-apiserver/pkg/apis/apiextensions/v1/types.go and pkg/registry/customresourcedefinition/strategy.go.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from msgspec import field
from msgspec.structs import replace

from manciple.wire import machinery
from manciple.wire.base import (
    ApiObject,
    Condition,
    Int32,
    Int64,
    Raw,
    Value,
    always,
    pb,
    status_metadata,
)
from manciple.wire.validation import CLEANUP_FINALIZER

PACKAGE = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1"
GROUP = "apiextensions.k8s.io"
RESOURCE = f"customresourcedefinitions.{GROUP}"

ESTABLISHED, NAMES_ACCEPTED, TERMINATING = "Established", "NamesAccepted", "Terminating"
#: Groups in which a definition needs Kubernetes' approval, and the annotation that tells of it.
APPROVAL = "api-approved.kubernetes.io"
APPROVED = "KubernetesAPIApprovalPolicyConformant"
NAMESPACED = "Namespaced"


class CustomResourceDefinitionNames(Value):
    """The names of a kind.

    plural: the name in addresses; the definition is named PLURAL.GROUP. singular, short_names: other names for
    kubectl. kind: the name in objects, in CamelCase. list_kind: the kind of its lists. categories: groups of kinds that
    kubectl gets together, such as `all`.
    """

    plural: Annotated[str, pb(1)] = always("")
    singular: Annotated[str, pb(2)] = ""
    short_names: Annotated[tuple[str, ...], pb(3)] = ()
    kind: Annotated[str, pb(4)] = always("")
    list_kind: Annotated[str, pb(5)] = ""
    categories: Annotated[tuple[str, ...], pb(6)] = ()


class CustomResourceValidation(Value):
    """The schema of the objects. open_apiv3_schema: a structural schema."""

    open_apiv3_schema: Annotated[Raw, pb(1, encoding="jsonSchema")] = field(default=None, name="openAPIV3Schema")


class CustomResourceSubresourceStatus(Value):
    """The status is written at an address of its own. There is nothing to set."""


class CustomResourceSubresourceScale(Value):
    """The scale is served at an address of its own.

    spec_replicas_path: the wanted number, below .spec. status_replicas_path: the actual one, below .status.
    label_selector_path: a label selector as text.
    """

    spec_replicas_path: Annotated[str, pb(1)] = always("")
    status_replicas_path: Annotated[str, pb(2)] = always("")
    label_selector_path: Annotated[str | None, pb(3)] = None


class CustomResourceSubresources(Value):
    """Parts of the objects with addresses of their own: .../status and .../scale."""

    status: Annotated[CustomResourceSubresourceStatus | None, pb(1)] = None
    scale: Annotated[CustomResourceSubresourceScale | None, pb(2)] = None


class CustomResourceColumnDefinition(Value):
    """A column of `kubectl get`.

    name: the head of the column. type: one of integer, number, string, boolean and date. format: the format of the
    type. description: a text for people. priority: above 0 it shows with -o wide only. json_path: the path of the
    value.
    """

    name: Annotated[str, pb(1)] = always("")
    type: Annotated[str, pb(2)] = always("")
    format: Annotated[str, pb(3)] = ""
    description: Annotated[str, pb(4)] = ""
    priority: Annotated[Int32, pb(5)] = 0
    json_path: Annotated[str, pb(6)] = always("")


class SelectableField(Value):
    """A field that field selectors may ask for. json_path: its path."""

    json_path: Annotated[str, pb(1)] = always("")


class CustomResourceDefinitionVersion(Value):
    """A version of the kind.

    name: such as v1 or v2beta1. served: whether the API serves it. storage: whether objects are stored in it; exactly
    one version is. deprecated: clients that use it are warned. deprecation_warning: the text of the warning.
    """

    name: Annotated[str, pb(1)] = always("")
    served: Annotated[bool, pb(2)] = always(False)
    storage: Annotated[bool, pb(3)] = always(False)
    deprecated: Annotated[bool, pb(7)] = False
    deprecation_warning: Annotated[str | None, pb(8)] = None
    schema: Annotated[CustomResourceValidation | None, pb(4)] = None
    subresources: Annotated[CustomResourceSubresources | None, pb(5)] = None
    additional_printer_columns: Annotated[tuple[CustomResourceColumnDefinition, ...], pb(6)] = ()
    selectable_fields: Annotated[tuple[SelectableField, ...], pb(9)] = ()

    @property
    def open_schema(self) -> dict[str, Any] | None:
        """The schema as a document; None where the version has none."""
        found: dict[str, Any] | None = self.schema.open_apiv3_schema if self.schema else None
        return found

    @property
    def has_status(self) -> bool:
        return self.subresources is not None and self.subresources.status is not None


class ServiceReference(machinery.ServiceReference):
    """A Service, which is called at its endpoints."""


class WebhookClientConfig(machinery.WebhookClientConfig):
    """Where a webhook is."""

    service: Annotated[ServiceReference | None, pb(1)] = None


class WebhookConversion(Value):
    """A webhook that converts objects.

    client_config: where it is. conversion_review_versions: that the webhook understands, v1 among them.
    """

    client_config: Annotated[WebhookClientConfig | None, pb(2)] = None
    conversion_review_versions: Annotated[tuple[str, ...], pb(3)] = always(())


class CustomResourceConversion(Value):
    """The conversion between versions.

    strategy: None, which changes the apiVersion only, or Webhook. webhook: it converts, with that strategy.
    """

    strategy: Annotated[str, pb(1)] = always("")
    webhook: Annotated[WebhookConversion | None, pb(2)] = None


class CustomResourceDefinitionSpec(Value):
    """The kind that is added.

    group: the API group of the kind. scope: Cluster or Namespaced. versions: all that are or were served.
    preserve_unknown_fields: must be false, or left out.
    """

    group: Annotated[str, pb(1)] = always("")
    names: Annotated[CustomResourceDefinitionNames, pb(3)] = CustomResourceDefinitionNames()
    scope: Annotated[str, pb(4)] = always("")
    versions: Annotated[tuple[CustomResourceDefinitionVersion, ...], pb(7)] = ()
    conversion: Annotated[CustomResourceConversion | None, pb(9)] = None
    preserve_unknown_fields: Annotated[bool, pb(10)] = False


class CustomResourceDefinitionCondition(Condition):
    """One observed aspect of a definition. `status`: True, False or Unknown; `reason`: a CamelCase word."""

    SCHEMA: ClassVar = f"{PACKAGE}.CustomResourceDefinitionCondition"


class CustomResourceDefinitionStatus(Value):
    """What became of the definition.

    conditions: Established, NamesAccepted and Terminating. accepted_names: those that are served.
    stored_versions: those that objects may be stored in. observed_generation: the generation of the spec that this is
    about.
    """

    conditions: Annotated[tuple[CustomResourceDefinitionCondition, ...], pb(1, list_keys="type")] = ()
    accepted_names: Annotated[CustomResourceDefinitionNames, pb(2)] = CustomResourceDefinitionNames()
    stored_versions: Annotated[tuple[str, ...], pb(3)] = ()
    observed_generation: Annotated[Int64, pb(4)] = 0


class CustomResourceDefinition(ApiObject):
    """A kind that was added to the server. Its objects are served from when it is Established until it is deleted."""

    spec: Annotated[CustomResourceDefinitionSpec, pb(2)] = CustomResourceDefinitionSpec()
    status: Annotated[CustomResourceDefinitionStatus, pb(3)] = CustomResourceDefinitionStatus()

    @property
    def storage_version(self) -> str:
        return next((version.name for version in self.spec.versions if version.storage), "")

    @property
    def is_converted(self) -> bool:
        """Whether a webhook converts between its versions."""
        return self.spec.conversion is not None and self.spec.conversion.strategy == "Webhook"

    def holds(self, condition: str) -> bool:
        """Whether a condition is True."""
        return any(one.type == condition and one.status == "True" for one in self.status.conditions)

    def version(self, name: str) -> CustomResourceDefinitionVersion | None:
        return next((version for version in self.spec.versions if version.name == name), None)


# Preparing ------------------------------------------------------------------------------------------------------------


def prepare(new: CustomResourceDefinition) -> CustomResourceDefinition:
    """A new definition: defaults filled in, nothing of its status yet but the version that is stored."""
    return _completed(replace(new, status=CustomResourceDefinitionStatus()))


def prepare_update(new: CustomResourceDefinition, old: CustomResourceDefinition) -> CustomResourceDefinition:
    return _completed(replace(new, status=old.status), old)


def prepare_status(new: CustomResourceDefinition, old: CustomResourceDefinition) -> CustomResourceDefinition:
    return replace(old, metadata=status_metadata(new.metadata, old.metadata), status=new.status)


def _completed(new: CustomResourceDefinition, old: CustomResourceDefinition | None = None) -> CustomResourceDefinition:
    """With names, conversion, the storage version among those stored, and what keeps it until its objects are gone."""
    spec, names = new.spec, new.spec.names
    names = replace(
        names,
        singular=names.singular or names.kind.lower(),
        list_kind=names.list_kind or (f"{names.kind}List" if names.kind else ""),
    )
    conversion = _with_port(spec.conversion or CustomResourceConversion(strategy="None"))
    spec = replace(spec, names=names, conversion=conversion, versions=tuple(map(_with_paths, spec.versions)))
    stored = dict.fromkeys(new.status.stored_versions)
    stored.update((version.name, None) for version in [one for one in spec.versions if one.storage][:1])
    finalizers = new.metadata.finalizers
    if CLEANUP_FINALIZER not in finalizers and (old is None or not old.metadata.deletion_timestamp):
        finalizers = (*finalizers, CLEANUP_FINALIZER)
    elif old is not None and CLEANUP_FINALIZER in old.metadata.finalizers:
        finalizers = tuple(dict.fromkeys((*finalizers, CLEANUP_FINALIZER)))
    return replace(
        new,
        spec=spec,
        metadata=replace(new.metadata, finalizers=finalizers),
        status=replace(new.status, stored_versions=tuple(stored)),
    )


def _with_port(conversion: CustomResourceConversion) -> CustomResourceConversion:
    config = conversion.webhook.client_config if conversion.webhook else None
    if conversion.webhook is None or config is None or config.service is None or config.service.port is not None:
        return conversion
    completed = replace(config, service=replace(config.service, port=443))
    return replace(conversion, webhook=replace(conversion.webhook, client_config=completed))


def _with_paths(version: CustomResourceDefinitionVersion) -> CustomResourceDefinitionVersion:
    """What is said twice is said once: no subresources is the same as none of them."""
    below = version.subresources
    return version if below is None or below.status or below.scale else replace(version, subresources=None)

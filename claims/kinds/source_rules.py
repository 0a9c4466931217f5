"""Rules of what a pod takes from Secrets, ConfigMaps and itself: as files of volumes, and as environment variables.

Source: pkg/apis/core/validation/validation.go (validateVolumeSource and below, validateEnvVarValueFrom,
ValidateEnvFrom) of Kubernetes 1.36. Where it names a field by a shorter path than one would expect, so do we.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache

from claims.kinds.containers import (
    EnvFromSource,
    EnvVarSource,
    FileKeySelector,
    KeyToPath,
    ObjectFieldSelector,
    ResourceFieldSelector,
)
from claims.kinds.volumes import (
    ClusterTrustBundleProjection,
    ConfigMapVolumeSource,
    DownwardAPIVolumeFile,
    DownwardAPIVolumeSource,
    PodCertificateProjection,
    ProjectedVolumeSource,
    SecretVolumeSource,
    ServiceAccountTokenProjection,
    Volume,
    VolumeProjection,
)
from manciple.access.kinds.secrets import check_key
from manciple.access.kinds.service_accounts import LONGEST_LIFETIME, SHORTEST_LIFETIME
from manciple.wire.errors import FieldError, forbidden, invalid, not_found, not_supported, required, too_long
from manciple.wire.selectors import validate_label_selector
from manciple.wire.validation import (
    DNS_LABEL_MAX,
    DNS_SUBDOMAIN_MAX,
    Path,
    check_dns_label,
    check_dns_subdomain,
    check_environment_name,
    check_label_key,
    check_object_name,
    each,
    required_or,
    validate_annotations,
    validate_list,
)

Errors = list[FieldError]

MODE_MAX = 0o777
KEY_TYPES = ("ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519", "RSA3072", "RSA4096")
#: How long a pod's certificate may be wanted to last: from an hour to 91 days, of signers of Kubernetes to one.
_CERTIFICATE_SECONDS_MIN, _CERTIFICATE_SECONDS_MAX = 60 * 60, 91 * 24 * 60 * 60
_KUBERNETES_SECONDS_MAX = 24 * 60 * 60
#: A domain, a namespace and a name, and what separates them.
_SIGNER_MAX = DNS_SUBDOMAIN_MAX + DNS_LABEL_MAX + DNS_SUBDOMAIN_MAX + 2
#: What a container can be shown of its pod in a variable, and in a file.
VARIABLE_FIELDS = (
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
)
FILE_FIELDS = ("metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid")
RESOURCES = (
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
)
_HUGE_PAGES = ("limits.hugepages-", "requests.hugepages-")
_KNOWN_FIELDS = frozenset({*VARIABLE_FIELDS, *FILE_FIELDS, "spec.restartPolicy", "spec.schedulerName", "status.phase"})
#: Names of fields of the API's first versions, and what they are called now.
_OLD_FIELDS = {"spec.host": "spec.nodeName"}
_SUBSCRIPT = re.compile(r"(?P<map>metadata\.(?:labels|annotations))\['(?P<key>.*)'\]", re.DOTALL)
#: resource -> the amounts in which it is shown
_DIVISORS = {
    "cpu": ("1m", "1"),
    "memory": ("1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"),
}

# Volumes --------------------------------------------------------------------------------------------------------------


def validate_secret(source: SecretVolumeSource, path: Path) -> Errors:
    found = [] if source.secret_name else [required(path.child("secretName"))]
    return [*found, *_validate_mode(source.default_mode, path, "defaultMode"), *_items(source.items, path)]


def validate_config_map(source: ConfigMapVolumeSource, path: Path) -> Errors:
    found = [] if source.name else [required(path.child("name"))]
    return [*found, *_validate_mode(source.default_mode, path, "defaultMode"), *_items(source.items, path)]


def validate_downward_api(source: DownwardAPIVolumeSource, path: Path) -> Errors:
    found = _validate_mode(source.default_mode, path, "defaultMode")
    return found + [error for item in source.items for error in _validate_shown_file(item, path)]


def validate_projected(source: ProjectedVolumeSource, path: Path) -> Errors:
    return [] if _is_hashable(source) and _is_faultless(source) else _validate_projected(source, path)


def validate_no_tokens(volume: Volume, path: Path) -> Errors:
    """A pod without a service account has no token."""
    sources = volume.projected.sources if volume.projected is not None else ()
    return [
        forbidden(
            path.child("projected", "sources").at(position).child("serviceAccountToken"),
            "must not be specified when serviceAccountName is not set",
        )
        for position, source in enumerate(sources)
        if source.service_account_token is not None
    ]


def _validate_mode(mode: int | None, path: Path, field: str) -> Errors:
    if mode is None or 0 <= mode <= MODE_MAX:
        return []
    return [invalid(path.child(field), mode, "must be a number between 0 and 0777 (octal), both inclusive")]


def _items(items: tuple[KeyToPath, ...], path: Path) -> Errors:
    return validate_list(items, path.child("items"), _validate_item)


def _validate_item(item: KeyToPath, path: Path) -> Errors:
    found = [] if item.key else [required(path.child("key"))]
    return [*found, *_validate_file_path(item.path, path.child("path")), *_validate_mode(item.mode, path, "mode")]


def validate_local_path(text: str, path: Path) -> Errors:
    """A path below some directory: relative, and never above it."""
    found: Errors = []
    if text.startswith("/"):
        found.append(invalid(path, text, "must be a relative path"))
    if ".." in text.split("/"):
        found.append(invalid(path, text, "must not contain '..'"))
    return found


def _validate_file_path(text: str, path: Path) -> Errors:
    """Where a file stands in its volume: below it, and not where the agent keeps what it needs to replace files."""
    if not text:
        return [required(path)]
    found = validate_local_path(text, path)
    if not found and text.startswith(".."):
        found.append(invalid(path, text, "must not start with '..'"))
    return found


def _validate_shown_file(item: DownwardAPIVolumeFile, path: Path) -> Errors:
    found = _validate_file_path(item.path, path.child("path"))
    if item.field_ref is not None:
        found += _validate_field(item.field_ref, path.child("fieldRef"), FILE_FIELDS)
        if item.resource_field_ref is not None:
            found.append(invalid(path, "resource", "fieldRef and resourceFieldRef can not be specified simultaneously"))
    elif item.resource_field_ref is not None:
        found += _validate_amount(item.resource_field_ref, path.child("resourceFieldRef"), in_volume=True)
    else:
        found.append(required(path, "one of fieldRef and resourceFieldRef is required"))
    return found + _validate_mode(item.mode, path, "mode")


def _is_hashable(projected: ProjectedVolumeSource) -> bool:
    """Sources of certificates and of trust bundles may hold maps."""
    return all(one.pod_certificate is None and one.cluster_trust_bundle is None for one in projected.sources)


@lru_cache(maxsize=32)  # entries are as large as a client makes them
def _is_faultless(projected: ProjectedVolumeSource) -> bool:
    """Remembered, because nearly every pod has the same one: that of its account's token."""
    return not _validate_projected(projected, Path())


def _validate_projected(projected: ProjectedVolumeSource, path: Path) -> Errors:
    found = _validate_mode(projected.default_mode, path, "defaultMode")
    taken: set[str] = set()
    for position, source in enumerate(projected.sources):
        found += _validate_projection(source, path, path.child("sources").at(position))
        found += _validate_conflicts(source, taken, path)
    return found


def _validate_projection(source: VolumeProjection, volume: Path, path: Path) -> Errors:
    found: Errors = []
    if sum(getattr(source, name) is not None for name in VolumeProjection.__struct_fields__) > 1:
        found.append(forbidden(path, "may not specify more than 1 volume type per source"))
    for name, projection in (("secret", source.secret), ("configMap", source.config_map)):
        if projection is not None:
            at = path.child(name)
            found += [] if projection.name else [required(at.child("name"))]
            found += _items(projection.items, at)
    if source.downward_api is not None:
        at = path.child("downwardAPI")
        found += [error for item in source.downward_api.items for error in _validate_shown_file(item, at)]
    if source.service_account_token is not None:
        found += _validate_token(source.service_account_token, volume, path.child("serviceAccountToken"))
    if source.cluster_trust_bundle is not None:
        found += _validate_bundle(source.cluster_trust_bundle, path.child("clusterTrustBundle"))
    if source.pod_certificate is not None:
        found += _validate_certificate(source.pod_certificate, path.child("podCertificate"))
    return found


def _validate_token(token: ServiceAccountTokenProjection, volume: Path, path: Path) -> Errors:
    seconds, at = token.expiration_seconds or 0, path.child("expirationSeconds")
    found: Errors = []
    if seconds < SHORTEST_LIFETIME:
        found.append(invalid(at, seconds, "may not specify a duration less than 10 minutes"))
    elif seconds > LONGEST_LIFETIME:
        found.append(invalid(at, seconds, "may not specify a duration larger than 2^32 seconds"))
    return found + _validate_file_path(token.path, volume.child("path"))


def _validate_bundle(bundle: ClusterTrustBundleProjection, path: Path) -> Errors:
    found: Errors = []
    if bundle.name is not None and bundle.signer_name is not None:
        found.append(invalid(path, bundle, "only one of name and signerName may be used"))
    elif bundle.name is not None:
        at = path.child("name")
        found += [] if bundle.name else [required(at, "must be a valid object name")]
        signer, colon, name = bundle.name.rpartition(":")
        messages = check_dns_subdomain(name if colon and signer else bundle.name)
        found += [invalid(at, bundle.name, f"not a valid clustertrustbundlename: {message}") for message in messages]
        if bundle.label_selector is not None:
            message = "labelSelector must be unset if name is specified"
            found.append(invalid(path.child("labelSelector"), bundle.label_selector, message))
    elif bundle.signer_name is not None:
        found += _validate_signer(bundle.signer_name, path.child("signerName"))
        found += validate_label_selector(bundle.label_selector, path.child("labelSelector"))
    else:
        found.append(required(path, "either name or signerName must be specified"))
    return found + _validate_file_path(bundle.path, path.child("path"))


def _validate_signer(name: str, path: Path) -> Errors:
    """DOMAIN/PATH, as that of a signing request."""
    if not name:
        return [required(path, "must be a valid signer name")]
    domain, slash, rest = name.partition("/")
    if not slash or "/" in rest:
        message = "must be a fully qualified domain and path of the form 'example.com/signer-name'"
        return [invalid(path, name, message)]
    found: Errors = []
    if len(domain) > DNS_SUBDOMAIN_MAX:
        found.append(too_long(path, DNS_SUBDOMAIN_MAX))
    for label in domain.split("."):
        found += [invalid(path, domain, f'validating label "{label}": {one}') for one in check_dns_label(label)]
    if "." not in domain:
        found.append(invalid(path, domain, "should be a domain with at least two segments separated by dots"))
    for label in rest.split("."):
        found += [invalid(path, rest, f'validating label "{label}": {one}') for one in check_dns_subdomain(label)]
    if len(name) > _SIGNER_MAX:
        found.append(too_long(path, _SIGNER_MAX))
    return found


def _is_of_kubernetes(signer: str) -> bool:
    return f".{signer.partition('/')[0]}".endswith(".kubernetes.io")


def _validate_user_annotations(annotations: Mapping[str, str], path: Path) -> Errors:
    """As other annotations, and each with a domain."""
    found = validate_annotations(annotations, path)
    message = 'must be a domain-prefixed key (such as "acme.io/foo")'
    return found + [invalid(path, key, message) for key in annotations if "/" not in key]


def _validate_certificate(certificate: PodCertificateProjection, path: Path) -> Errors:
    found = _validate_signer(certificate.signer_name, path.child("signerName"))
    if certificate.key_type not in KEY_TYPES:
        found.append(not_supported(path.child("keyType"), certificate.key_type, KEY_TYPES))
    seconds, at = certificate.max_expiration_seconds, path.child("maxExpirationSeconds")
    longest = _KUBERNETES_SECONDS_MAX if _is_of_kubernetes(certificate.signer_name) else _CERTIFICATE_SECONDS_MAX
    if seconds is not None and seconds < _CERTIFICATE_SECONDS_MIN:
        found.append(invalid(at, seconds, f"if provided, maxExpirationSeconds must be >= {_CERTIFICATE_SECONDS_MIN}"))
    elif seconds is not None and seconds > longest:
        found.append(invalid(at, seconds, f"if provided, maxExpirationSeconds must be <= {longest}"))
    found += _validate_user_annotations(certificate.user_annotations, path.child("userAnnotations"))
    files = (
        ("credentialBundlePath", certificate.credential_bundle_path),
        ("keyPath", certificate.key_path),
        ("certificateChainPath", certificate.certificate_chain_path),
    )
    if not any(text for _, text in files):
        message = "specify at least one of credentialBundlePath, keyPath, and certificateChainPath"
        found.append(required(path, message))
    for shown, text in files:
        found += _validate_file_path(text, path.child(shown)) if text else []
    return found


def _validate_conflicts(source: VolumeProjection, taken: set[str], path: Path) -> Errors:
    """No two files have one path. taken: the files of the sources before it, to which its own are added."""
    found: Errors = []
    for name, file in _files_of(source):
        if file in taken:
            found.append(invalid(path, name, "conflicting duplicate paths"))
        taken.add(file)
    return found


def _files_of(source: VolumeProjection) -> Iterator[tuple[str, str]]:
    """How a message names it, and the path, of each file whose path is compared with those of the others. As in the
    reference, that of a token is not.
    """
    for projection in (source.secret, source.config_map):
        if projection is not None:
            yield from ((projection.name, item.path) for item in projection.items if item.path)
    if source.downward_api is not None:
        yield from ((item.path, item.path) for item in source.downward_api.items if item.path)
    bundle, certificate = source.cluster_trust_bundle, source.pod_certificate
    if bundle is not None:
        yield bundle.path, bundle.path
    if certificate is not None:
        paths = (certificate.credential_bundle_path, certificate.key_path, certificate.certificate_chain_path)
        yield from ((file, file) for file in paths if file)


# Variables ------------------------------------------------------------------------------------------------------------


def validate_variable_source(source: EnvVarSource, path: Path, volumes: Mapping[str, Volume]) -> Errors:
    """What is wrong with the one source that is chosen. volumes: the pod's, by name."""
    found: Errors = []
    if source.field_ref is not None:
        found += _validate_field(source.field_ref, path.child("fieldRef"), VARIABLE_FIELDS)
    if source.resource_field_ref is not None:
        found += _validate_amount(source.resource_field_ref, path.child("resourceFieldRef"), in_volume=False)
    if source.file_key_ref is not None:
        found += _validate_file_key(source.file_key_ref, path.child("fileKeyRef"), volumes)
    for name, key in (("configMapKeyRef", source.config_map_key_ref), ("secretKeyRef", source.secret_key_ref)):
        if key is not None:
            at = path.child(name)
            found += each(check_dns_subdomain(key.name), at.child("name"), key.name)
            found += required_or(check_key, key.key, at.child("key"))
    return found


def _validate_file_key(selector: FileKeySelector, path: Path, volumes: Mapping[str, Volume]) -> Errors:
    """A line of a file in an emptyDir volume; unlike mounts, it may name a volume that is not valid itself."""
    at, name = path.child("volumeName"), selector.volume_name
    volume = volumes.get(name)
    found = required_or(check_dns_label, name, at)
    if volume is None:
        found.append(not_found(at, name))
    elif volume.empty_dir is None:
        found.append(invalid(at, name, "referenced volume must be of type emptyDir"))
    if not selector.path:
        found.append(required(path.child("path")))
    elif ".." in selector.path.split("/"):
        found.append(invalid(path.child("path"), selector.path, "must not contain '..'"))
    return found + required_or(check_environment_name, selector.key, path.child("key"))


def validate_environment_source(source: EnvFromSource, path: Path, collection: Path) -> Errors:
    """A whole ConfigMap or Secret as variables. collection: where all such sources stand."""
    found: Errors = []
    if source.prefix:
        found += each(check_environment_name(source.prefix), path.child("prefix"), source.prefix)
    chosen = [(n, r) for n, r in (("configMapRef", source.config_map_ref), ("secretRef", source.secret_ref)) if r]
    for name, reference in chosen:
        at = path.child(name, "name")
        found += required_or(lambda name: check_object_name(name, prefix=True), reference.name, at)
    if not chosen:
        found.append(invalid(collection, "", "must specify one of: `configMapRef` or `secretRef`"))
    elif len(chosen) > 1:
        found.append(invalid(collection, "", "may not have more than one field specified at a time"))
    return found


# Fields and amounts of the pod ----------------------------------------------------------------------------------------


def _validate_field(selector: ObjectFieldSelector, path: Path, supported: Collection[str]) -> Errors:
    at, shown = path.child("fieldPath"), selector.field_path
    if not selector.api_version:
        return [required(path.child("apiVersion"))]
    if not shown:
        return [required(at)]
    if selector.api_version != "v1":
        return [invalid(at, shown, f"error converting fieldPath: unsupported pod version: {selector.api_version}")]
    if match := _SUBSCRIPT.fullmatch(shown):
        key = match["key"]
        of_annotation = match["map"] == "metadata.annotations"
        return each(check_label_key(key.lower() if of_annotation else key), path, key)
    shown = _OLD_FIELDS.get(shown, shown)
    if shown not in _KNOWN_FIELDS:
        return [invalid(at, shown, f"error converting fieldPath: field label not supported: {shown}")]
    return [] if shown in supported else [not_supported(at, shown, supported)]


def _validate_amount(selector: ResourceFieldSelector, path: Path, *, in_volume: bool) -> Errors:
    found: Errors = []
    if in_volume and not selector.container_name:
        found.append(required(path.child("containerName")))
    elif not selector.resource:
        found.append(required(path.child("resource")))
    elif selector.resource not in RESOURCES and not selector.resource.startswith(_HUGE_PAGES):
        found.append(not_supported(path.child("resource"), selector.resource, RESOURCES))
    return found + _validate_divisor(selector, path.child("divisor"))


def _validate_divisor(selector: ResourceFieldSelector, path: Path) -> Errors:
    """Of a resource that is known, and of one of huge pages, some units."""
    resource, divisor = selector.resource.partition(".")[2], selector.divisor or "0"
    known = selector.resource in RESOURCES or selector.resource.startswith(_HUGE_PAGES)
    if not known or divisor in ("0", *_DIVISORS["cpu" if resource == "cpu" else "memory"]):
        return []
    if resource == "cpu":
        told = "only divisor's values 1m and 1 are supported with the cpu resource"
    else:
        values = "1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei"
        told = f"only divisor's values {values} are supported with the {_spoken(resource)} resource"
    return [invalid(path, selector.resource, told)]


def _spoken(resource: str) -> str:
    return {"ephemeral-storage": "local ephemeral storage"}.get(resource, resource.partition("-")[0])

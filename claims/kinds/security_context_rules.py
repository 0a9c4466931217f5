"""Rules of security contexts, profiles and their annotations, and of what only Linux or Windows pods may have.

Which values a namespace allows is decided by `pod_security`. Source: pkg/apis/core/validation/validation.go
(validatePodSpecSecurityContext, ValidateSecurityContext, validateHostUsers, the seccomp and AppArmor fields and
annotations, validateLinux, validateWindows, validateWindowsHostProcessPod, validateWindowsSecurityContextOptions) of
Kubernetes 1.36.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from claims.kinds.containers import (
    AppArmorProfile,
    Container,
    PodSecurityContext,
    SeccompProfile,
    SecurityContext,
    Sysctl,
    WindowsSecurityContextOptions,
)
from claims.kinds.pods import PodSpec
from claims.kinds.volume_rules import validate_local_path
from manciple.wire.errors import FieldError, duplicate, forbidden, invalid, not_supported, required, too_long
from manciple.wire.validation import METADATA, SPEC, Path, check_dns_subdomain, each

Errors = list[FieldError]

ID_MAX = 2**31 - 1
PROFILE_TYPES = ("Localhost", "RuntimeDefault", "Unconfined")
PROC_MOUNTS = ("Default", "Unmasked")
#: name in JSON, attribute, its values
POLICIES = (
    ("fsGroupChangePolicy", "fs_group_change_policy", ("Always", "OnRootMismatch")),
    ("supplementalGroupsPolicy", "supplemental_groups_policy", ("Merge", "Strict")),
    ("seLinuxChangePolicy", "se_linux_change_policy", ("MountOption", "Recursive")),
)

_APP_ARMOR_MAX = 4095
_APP_ARMOR = "container.apparmor.security.beta.kubernetes.io/"
_SECCOMP_POD = "seccomp.security.alpha.kubernetes.io/pod"
_SECCOMP_CONTAINER = "container.seccomp.security.alpha.kubernetes.io/"
_ANNOTATIONS = (_APP_ARMOR, _SECCOMP_POD, _SECCOMP_CONTAINER)

_PART = "[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
_SYSCTL = rf"({_PART}[\./])*{_PART}"
_SYSCTL_MAX = 253
_SWAPPED = str.maketrans("./", "/.")
_OF_IPC = frozenset(
    {"kernel.sem"}
    | {f"kernel.{name}" for name in ("shm", "shmall", "shmmax", "shmmni", "shm_rmid_forced")}
    | {f"kernel.{name}" for name in ("msg", "msgmax", "msgmnb", "msgmni")}
)

# Pods -----------------------------------------------------------------------------------------------------------------


def validate_pod_security(spec: PodSpec) -> Errors:
    found = _validate_host_users(spec)
    context, path = spec.security_context, SPEC.child("securityContext")
    if spec.share_process_namespace and spec.host_pid:
        message = "ShareProcessNamespace and HostPID cannot both be enabled"
        found.append(invalid(path.child("shareProcessNamespace"), spec.share_process_namespace, message))
    if context is None:
        return found
    ids = [("fsGroup", context.fs_group), ("runAsUser", context.run_as_user), ("runAsGroup", context.run_as_group)]
    ids += [(f"supplementalGroups[{position}]", group) for position, group in enumerate(context.supplemental_groups)]
    found += validate_ids(ids, path)
    for shown, attribute, supported in POLICIES:
        policy = getattr(context, attribute)
        if policy is not None and policy not in supported:
            found.append(not_supported(path.child(shown), policy, supported))
    if context.sysctls:
        found += _validate_sysctls(context.sysctls, path.child("sysctls"), spec)
    return found + _validate_profiles(context, path)


def _validate_host_users(spec: PodSpec) -> Errors:
    """A pod with its own user namespace cannot use other host namespaces or block devices."""
    if spec.host_users is None or spec.host_users:
        return []
    shared = (("hostNetwork", spec.host_network), ("HostPID", spec.host_pid), ("HostIPC", spec.host_ipc))
    message = "when `hostUsers` is false"
    found = [forbidden(SPEC.child(shown), message) for shown, wanted in shared if wanted]
    return found + [
        forbidden(path.child("volumeDevices"), message)
        for one, path in containers_with_paths(spec)
        if one.volume_devices
    ]


def validate_ids(ids: Iterable[tuple[str, int | None]], path: Path) -> Errors:
    return [
        invalid(path.child(shown), number, f"must be between 0 and {ID_MAX}, inclusive")
        for shown, number in ids
        if number is not None and not 0 <= number <= ID_MAX
    ]


def _shared_by(sysctl: str, spec: PodSpec) -> str:
    """The field that shares the sysctl's namespace with the host, or "". The first of the separators "." and "/"
    separates; the other one is part of names: net.ipv4.conf.eno2/100.rp_filter.
    """
    slash, dot = (sysctl.find(separator) for separator in "/.")
    if slash >= 0 and (dot < 0 or slash < dot):
        sysctl = sysctl.translate(_SWAPPED)
    if spec.host_network and sysctl.startswith("net."):
        return "hostNetwork"
    if spec.host_ipc and (sysctl in _OF_IPC or sysctl.startswith("fs.mqueue.")):
        return "hostIPC"
    return ""


def _validate_sysctls(sysctls: Iterable[Sysctl], path: Path, spec: PodSpec) -> Errors:
    seen: set[str] = set()
    found: Errors = []
    for position, sysctl in enumerate(sysctls):
        at, name = path.at(position).child("name"), sysctl.name
        if not name:
            found.append(required(at))
        elif len(name) > _SYSCTL_MAX or not re.fullmatch(_SYSCTL, name):
            found.append(invalid(at, name, f"must have at most {_SYSCTL_MAX} characters and match regex ^{_SYSCTL}$"))
        elif name in seen:
            found.append(duplicate(at, name))
        if shared := _shared_by(name, spec):
            found.append(invalid(at, name, f"may not be specified when '{shared}' is true"))
        seen.add(name)
    return found


# Containers -----------------------------------------------------------------------------------------------------------


def validate_container_security(context: SecurityContext, path: Path, *, host_users: bool) -> Errors:
    found = validate_ids([("runAsUser", context.run_as_user), ("runAsGroup", context.run_as_group)], path)
    if context.proc_mount is not None:
        at = path.child("procMount")
        if context.proc_mount not in PROC_MOUNTS:
            found.append(not_supported(at, context.proc_mount, PROC_MOUNTS))
        elif context.proc_mount == "Unmasked" and host_users:
            found.append(invalid(at, context.proc_mount, "`hostUsers` must be false to use `Unmasked`"))
    if context.allow_privilege_escalation is False:
        cannot = "cannot set `allowPrivilegeEscalation` to false and"
        if context.privileged:
            found.append(invalid(path, context, f"{cannot} `privileged` to true"))
        if context.capabilities is not None and "CAP_SYS_ADMIN" in context.capabilities.add:
            found.append(invalid(path, context, f"{cannot} `capabilities.Add` CAP_SYS_ADMIN"))
    return found + _validate_profiles(context, path)


def _validate_profiles(context: PodSecurityContext | SecurityContext, path: Path) -> Errors:
    found: Errors = []
    if context.seccomp_profile is not None:
        found += _validate_seccomp(context.seccomp_profile, path.child("seccompProfile"))
    if context.app_armor_profile is not None:
        found += _validate_app_armor(context.app_armor_profile, path.child("appArmorProfile"))
    if context.windows_options is not None:
        found += validate_windows_options(context.windows_options, path.child("windowsOptions"))
    return found


def _validate_type(profile: SeccompProfile | AppArmorProfile, path: Path, field: str) -> Errors:
    if not profile.type:
        return [required(path.child("type"), f"type is required when {field} is set")]
    return [] if profile.type in PROFILE_TYPES else [not_supported(path.child("type"), profile.type, PROFILE_TYPES)]


def _validate_seccomp(profile: SeccompProfile, path: Path) -> Errors:
    found, at = _validate_type(profile, path, "seccompProfile"), path.child("localhostProfile")
    if profile.type == "Localhost":
        if profile.localhost_profile is None:
            return [*found, required(at, "must be set when seccomp type is Localhost")]
        return found + validate_local_path(profile.localhost_profile, at)
    if profile.localhost_profile is not None:
        found.append(invalid(at, profile, "can only be set when seccomp type is Localhost"))
    return found


def _validate_app_armor(profile: AppArmorProfile, path: Path) -> Errors:
    found, at, name = (
        _validate_type(profile, path, "appArmorProfile"),
        path.child("localhostProfile"),
        profile.localhost_profile,
    )
    if profile.type == "Localhost":
        if name is not None and name != name.strip():
            found.append(invalid(at, name, "must not be padded with whitespace"))
        elif not name:
            found.append(required(at, "must be set when AppArmor type is Localhost"))
        if name and len(name) > _APP_ARMOR_MAX:
            found.append(too_long(at, _APP_ARMOR_MAX))
    elif name is not None and profile.type in PROFILE_TYPES:
        found.append(invalid(at, name, "can only be set when AppArmor type is Localhost"))
    return found


# Annotations that the fields replaced ---------------------------------------------------------------------------------


def is_app_armor(key: str) -> bool:
    return key.startswith(_APP_ARMOR)


def has_profile_annotations(annotations: Mapping[str, str]) -> bool:
    return any(key.startswith(_ANNOTATIONS) for key in annotations)


def validate_profile_annotations(annotations: Mapping[str, str], spec: PodSpec) -> Errors:
    path = METADATA.child("annotations")
    names = {one.name for one, _ in containers_with_paths(spec)}
    found: Errors = []
    for key, value in annotations.items():
        if key.startswith(_APP_ARMOR):
            name = key.removeprefix(_APP_ARMOR)
            if name not in names:
                found.append(invalid(path.key(key), name, "container not found"))
            if value not in ("", "runtime/default", "unconfined") and not value.startswith("localhost/"):
                found.append(invalid(path.key(key), value, f'invalid AppArmor profile name: "{value}"'))
        elif (key == _SECCOMP_POD or key.startswith(_SECCOMP_CONTAINER)) and not _is_seccomp(value):
            found.append(invalid(path.child(key), value, "must be a valid seccomp profile"))
    return found


def _is_seccomp(value: str) -> bool:
    kind, slash, name = value.partition("/")
    if kind == "localhost" and slash:
        return not validate_local_path(name, Path())
    return value in ("runtime/default", "docker/default", "unconfined")


def validate_profiles_match(annotations: Mapping[str, str], spec: PodSpec) -> Errors:
    """An annotation must match the field that replaced it."""
    of_pod = spec.security_context or PodSecurityContext()
    found: Errors = []
    if of_pod.seccomp_profile is not None and _SECCOMP_POD in annotations:
        at = SPEC.child("securityContext", "seccompProfile")
        found += _validate_match(annotations[_SECCOMP_POD], of_pod.seccomp_profile, at, "seccomp")
    for container, path in containers_with_paths(spec):
        own = container.security_context or SecurityContext()
        at, key = path.child("securityContext"), f"{_SECCOMP_CONTAINER}{container.name}"
        if own.seccomp_profile is not None and key in annotations:
            found += _validate_match(annotations[key], own.seccomp_profile, at.child("seccompProfile"), "seccomp")
        profile, key = own.app_armor_profile or of_pod.app_armor_profile, f"{_APP_ARMOR}{container.name}"
        if profile is not None and key in annotations and not is_for_windows(spec):
            found += _validate_match(annotations[key], profile, at.child("appArmorProfile"), "apparmor")
    return found


def _validate_match(value: str, profile: SeccompProfile | AppArmorProfile, path: Path, what: str) -> Errors:
    names = {"Unconfined": ("unconfined",), "RuntimeDefault": ("runtime/default",), "Localhost": ()}
    if what == "seccomp":
        names["RuntimeDefault"] = ("runtime/default", "docker/default")
    if profile.type == "Localhost" and value.startswith("localhost/"):
        if value.removeprefix("localhost/") == profile.localhost_profile:
            return []
        return [forbidden(path.child("localhostProfile"), f"{what} profile in annotation and field must match")]
    if profile.type not in names or value in names[profile.type]:
        return []
    return [forbidden(path.child("type"), f"{what} type in annotation and field must match")]


def app_armor_of(annotations: Mapping[str, str], container: str) -> AppArmorProfile | None:
    """The AppArmor profile in the container's annotation; None if there is none or it is invalid."""
    value = annotations.get(f"{_APP_ARMOR}{container}")
    if value is None:
        return None
    if value.startswith("localhost/"):
        profile = AppArmorProfile(type="Localhost", localhost_profile=value.removeprefix("localhost/"))
        return None if _validate_app_armor(profile, Path()) else profile
    kinds = {"runtime/default": "RuntimeDefault", "unconfined": "Unconfined"}
    return AppArmorProfile(type=kinds[value]) if value in kinds else None


# Linux and Windows ----------------------------------------------------------------------------------------------------


SYSTEMS = ("linux", "windows")

_CREDENTIAL_MAX = 64 * 1024
_DOMAIN_MAX, _USER_MAX = 256, 104
_NET_BIOS = re.compile(r'[^\\/:*?"<>|.]{1}[^\\/:*?"<>|]{0,14}')
_DOMAIN = re.compile(r"(?i:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?)*)")
_BAD_IN_USERS = re.compile(r'["/\\:;|=,+*?<>@\[\]]')

#: (name in JSON, attribute) of fields that a Windows pod must not set: in its spec, its security context, and those of
#: its containers
_OF_SPEC = (
    ("hostUsers", "host_users"),
    ("hostPID", "host_pid"),
    ("hostIPC", "host_ipc"),
    ("shareProcessNamespace", "share_process_namespace"),
)
_OF_POD = (
    ("appArmorProfile", "app_armor_profile"),
    ("seLinuxOptions", "se_linux_options"),
    ("seccompProfile", "seccomp_profile"),
    ("fsGroup", "fs_group"),
    ("fsGroupChangePolicy", "fs_group_change_policy"),
    ("sysctls", "sysctls"),
    ("runAsUser", "run_as_user"),
    ("runAsGroup", "run_as_group"),
    ("supplementalGroups", "supplemental_groups"),
    ("supplementalGroupsPolicy", "supplemental_groups_policy"),
    ("seLinuxChangePolicy", "se_linux_change_policy"),
)
_OF_CONTAINERS = (
    ("appArmorProfile", "app_armor_profile"),
    ("seLinuxOptions", "se_linux_options"),
    ("seccompProfile", "seccomp_profile"),
    ("capabilities", "capabilities"),
    ("readOnlyRootFilesystem", "read_only_root_filesystem"),
    ("privileged", "privileged"),
    ("allowPrivilegeEscalation", "allow_privilege_escalation"),
    ("procMount", "proc_mount"),
    ("runAsUser", "run_as_user"),
    ("runAsGroup", "run_as_group"),
)


def validate_system(spec: PodSpec) -> Errors:
    """spec.os, and fields that its system does not support."""
    name = spec.os.name if spec.os is not None else ""
    found = _validate_host_processes(spec)
    if spec.os is None:
        return found
    if not name:
        return [*found, required(SPEC.child("os", "name"))]
    if name not in SYSTEMS:
        return [*found, not_supported(SPEC.child("os"), name, SYSTEMS)]
    return found + (_validate_linux(spec) if name == "linux" else _validate_windows(spec))


def is_for_windows(spec: PodSpec) -> bool:
    return spec.os is not None and spec.os.name == "windows"


def containers_with_paths(spec: PodSpec) -> Iterator[tuple[Container, Path]]:
    """All containers, in the reference's order."""
    for shown, containers in (
        ("initContainers", spec.init_containers),
        ("containers", spec.containers),
        ("ephemeralContainers", spec.ephemeral_containers),
    ):
        for position, container in enumerate(containers):
            yield container, SPEC.child(shown).at(position)


def _validate_linux(spec: PodSpec) -> Errors:
    message = "windows options cannot be set for a linux pod"
    contexts = [(spec.security_context, SPEC)]
    contexts += [(one.security_context, path) for one, path in containers_with_paths(spec)]  # type: ignore[misc]
    return [
        forbidden(path.child("securityContext", "windowsOptions"), message)
        for context, path in contexts
        if context is not None and context.windows_options is not None
    ]


def _validate_windows(spec: PodSpec) -> Errors:
    checked: list[tuple[object, Path, tuple[tuple[str, str], ...]]] = [(spec, SPEC, _OF_SPEC)]
    checked.append((spec.security_context, SPEC.child("securityContext"), _OF_POD))
    checked += [
        (one.security_context, path.child("securityContext"), _OF_CONTAINERS)
        for one, path in containers_with_paths(spec)
    ]
    found = [
        forbidden(path.child(shown), "cannot be set for a windows pod")
        for value, path, fields in checked
        if value is not None
        for shown, attribute in fields
        if _is_set(getattr(value, attribute), flag=value is spec and attribute in ("host_pid", "host_ipc"))
    ]
    if spec.resources:
        found.append(forbidden(SPEC.child("resources"), "may not be set for a windows pod"))
    return found


def _is_set(value: object, *, flag: bool) -> bool:
    return bool(value) if flag or value == () else value is not None


def _validate_host_processes(spec: PodSpec) -> Errors:
    """If any container is a HostProcess container, all are, and the pod uses the host network."""
    pod_options = spec.security_context.windows_options if spec.security_context is not None else None
    of_pod = pod_options.host_process if pod_options is not None else None
    found: Errors = []
    effective: set[bool] = set()
    for container, path in containers_with_paths(spec):
        options = container.security_context.windows_options if container.security_context is not None else None
        own = options.host_process if options is not None else None
        if of_pod is not None and own is not None and own != of_pod:
            message = f"pod hostProcess value must be identical if both are specified, was {str(of_pod).lower()}"
            found.append(invalid(path.child("securityContext", "windowsOptions", "hostProcess"), own, message))
        effective.add(bool(of_pod if own is None else own))
    if effective == {True, False}:
        message = "If pod contains any hostProcess containers then all containers must be HostProcess containers"
        found.append(invalid(SPEC, "", message))
    if True in effective and not spec.host_network:
        message = "hostNetwork must be true if pod contains any hostProcess containers"
        found.append(invalid(SPEC.child("hostNetwork"), spec.host_network, message))
    return found


# Windows options ------------------------------------------------------------------------------------------------------


def validate_windows_options(options: WindowsSecurityContextOptions, path: Path) -> Errors:
    found: Errors = []
    name, text, user = options.gmsa_credential_spec_name, options.gmsa_credential_spec, options.run_as_user_name
    if name is not None:
        found += each(check_dns_subdomain(name), path.child("gmsaCredentialSpecName"), name)
    if text is not None:
        at = path.child("gmsaCredentialSpec")
        if not text:
            found.append(invalid(at, text, "gmsaCredentialSpec cannot be an empty string"))
        elif len(text.encode()) > _CREDENTIAL_MAX:
            found.append(invalid(at, text, "gmsaCredentialSpec size must be under 64 KiB"))
    return found if user is None else found + each(_check_user(user), path.child("runAsUserName"), user)


def _check_user(text: str) -> Iterator[str]:
    """DOMAIN\\USER, or USER alone."""
    if not text:
        yield "runAsUserName cannot be an empty string"
        return
    if re.search(r"[\x00-\x1f\x7f]", text):
        yield "runAsUserName cannot contain control characters"
    domain, backslash, user = text.rpartition("\\")
    if "\\" in domain:
        yield "runAsUserName cannot contain more than one backslash"
        return
    if backslash:
        if len(domain) >= _DOMAIN_MAX:
            yield "runAsUserName's Domain length must be under 256 characters"
        if not (_NET_BIOS.fullmatch(domain) or _DOMAIN.fullmatch(domain)):
            yield "runAsUserName's Domain doesn't match the NetBios nor the DNS format"
    if not user:
        yield "runAsUserName's User cannot be empty"
    elif len(user) > _USER_MAX:
        yield "runAsUserName's User length must not be longer than 104 characters"
    if user and not user.strip(". "):
        yield "runAsUserName's User cannot contain only periods or spaces"
    if _BAD_IN_USERS.search(user):
        yield r'runAsUserName\'s User cannot contain the following characters: "/\:;|=,+*?<>@[]'.replace("\\'", "'")

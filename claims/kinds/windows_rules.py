"""Rules of Windows: what a pod for it may not have, and what only it may.

Source: pkg/apis/core/validation/validation.go (validateLinux, validateWindows, validateWindowsHostProcessPod,
validateWindowsSecurityContextOptions) of Kubernetes 1.36.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from claims.kinds.containers import Container, WindowsSecurityContextOptions
from claims.kinds.pods import PodSpec
from manciple.wire.errors import FieldError, forbidden, invalid, not_supported, required
from manciple.wire.validation import SPEC, Path, check_dns_subdomain, each

Errors = list[FieldError]

SYSTEMS = ("linux", "windows")

_CREDENTIAL_MAX = 64 * 1024
_DOMAIN_MAX, _USER_MAX = 256, 104
_NET_BIOS = re.compile(r'[^\\/:*?"<>|.]{1}[^\\/:*?"<>|]{0,14}')
_DOMAIN = re.compile(r"(?i:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?)*)")
_BAD_IN_USERS = re.compile(r'["/\\:;|=,+*?<>@\[\]]')

#: name in JSON, attribute: what a pod for Windows has not, of the pod itself, its rights and those of containers
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
    """Which system the pod's images are for, and what that system has not."""
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
    """All containers, in the order in which the reference visits them."""
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
    """Of a pod of processes of the host, all containers are such, and so is its network."""
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


# Options --------------------------------------------------------------------------------------------------------------


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

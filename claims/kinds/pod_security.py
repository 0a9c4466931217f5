"""Security of pods: the rules of security contexts, and the Pod Security Standards that a namespace demands. PURE.

The first part validates the fields and the annotations that they replaced, and which of them only Linux or Windows pods
may set. Source: pkg/apis/core/validation/validation.go (validatePodSpecSecurityContext, ValidateSecurityContext,
validateHostUsers, the seccomp and AppArmor fields and annotations, validateLinux, validateWindows,
validateWindowsHostProcessPod, validateWindowsSecurityContextOptions) of Kubernetes 1.36.

The second part has the levels that a namespace's labels name, and the checks of each level. `privileged` allows
everything, `baseline` forbids known ways out of a container, `restricted` also demands that a pod gives up what it does
not need. The labels name a level for each of three modes (enforce, audit, warn) and the version of the checks:
`latest`, or `v1.N` for those of Kubernetes 1.N. `violations` runs all checks of a level, baseline's first, in the order
of their names. `is_plain` is a shortcut for most pods, which set nothing that baseline checks. Source:
k8s.io/pod-security-admission (api/, policy/) of Kubernetes 1.36: a check has the name that it has there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from typing import Literal, NamedTuple

import msgspec

from claims.kinds.containers import (
    AppArmorProfile,
    Container,
    LifecycleHandler,
    PodSecurityContext,
    Probe,
    SeccompProfile,
    SecurityContext,
    Sysctl,
    WindowsSecurityContextOptions,
)
from claims.kinds.pods import Pod, PodSpec
from claims.kinds.volume_rules import validate_local_path
from claims.kinds.volumes import Volume
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

# Security contexts of pods --------------------------------------------------------------------------------------------


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


# Security contexts of containers --------------------------------------------------------------------------------------


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


# Levels of the Pod Security Standards ---------------------------------------------------------------------------------


Level = Literal["privileged", "baseline", "restricted"]
Mode = Literal["enforce", "audit", "warn"]

#: By increasing strictness.
LEVELS: tuple[Level, ...] = ("privileged", "baseline", "restricted")
MODES: tuple[Mode, ...] = ("enforce", "audit", "warn")
PREFIX = "pod-security.kubernetes.io/"
#: N of v1.N of the newest checks, which later versions use as well.
NEWEST = 36
#: The version `latest`.
LATEST = -1

_VERSION = re.compile(r"v1\.(0|[1-9][0-9]{0,8})")


class LevelVersion(NamedTuple):
    """minor: N of v1.N, or LATEST."""

    level: Level = "privileged"
    minor: int = LATEST

    def __str__(self) -> str:
        return f"{self.level}:{'latest' if self.minor == LATEST else f'v1.{self.minor}'}"

    @property
    def strictness(self) -> int:
        return LEVELS.index(self.level)


class PodSecurityPolicy(NamedTuple):
    """The levels above which a pod is refused, noted in the audit log, or answered with a warning."""

    enforce: LevelVersion = LevelVersion()
    audit: LevelVersion = LevelVersion()
    warn: LevelVersion = LevelVersion()

    @property
    def allows_everything(self) -> bool:
        return all(one.level == "privileged" for one in self)


def parse_policy(text: str) -> PodSecurityPolicy:
    """`enforce=baseline,warn=restricted:v1.30` -> a policy. Raises: ValueError."""
    policy = PodSecurityPolicy()
    for part in filter(None, (one.strip() for one in text.split(","))):
        mode, _, value = part.partition("=")
        level, _, version = value.partition(":")
        parsed = _level(level), _minor(version or "latest")
        if mode not in MODES or parsed[0] is None or parsed[1] is None:
            raise ValueError(f"{part!r} is not MODE=LEVEL or MODE=LEVEL:VERSION, such as enforce=baseline:v1.36")
        policy = policy._replace(**{mode: LevelVersion(parsed[0], parsed[1])})
    return policy


def policy_of(labels: Mapping[str, str], default: PodSecurityPolicy) -> tuple[PodSecurityPolicy, list[FieldError]]:
    """The policy of a namespace with `labels`, and the errors in the labels.

    An invalid level counts as `restricted` for enforce and as `privileged` for audit and warn, an invalid version as
    the latest.
    """
    given = tuple((name, labels[PREFIX + name]) for name in _LABELS if PREFIX + name in labels)
    policy, wrong = _policy(given, default) if given else (default, ())
    return policy, [invalid(f"metadata.labels[{PREFIX}{name}]", value, detail) for name, value, detail in wrong]


_LABELS = tuple(name for mode in MODES for name in (mode, f"{mode}-version"))


@lru_cache(maxsize=1024)
def _policy(
    given: tuple[tuple[str, str], ...], default: PodSecurityPolicy
) -> tuple[PodSecurityPolicy, tuple[tuple[str, str, str], ...]]:
    """(the policy, (label without prefix, value, error) of each invalid label)"""
    labels, policy = dict(given), default
    wrong: list[tuple[str, str, str]] = []
    for mode in MODES:
        level, minor = getattr(policy, mode)
        if mode in labels:
            read_level = _level(labels[mode])
            level = read_level or ("restricted" if mode == "enforce" else "privileged")
            if read_level is None:
                wrong.append((mode, labels[mode], f"must be one of {', '.join(LEVELS)}"))
        if (name := f"{mode}-version") in labels:
            read_minor = _minor(labels[name])
            minor = LATEST if read_minor is None else read_minor
            if read_minor is None:
                wrong.append((name, labels[name], 'must be "latest" or "v1.x"'))
        policy = policy._replace(**{mode: LevelVersion(level, minor)})
    return _warning_of_enforced(policy, labels), tuple(wrong)


def _warning_of_enforced(policy: PodSecurityPolicy, labels: Mapping[str, str]) -> PodSecurityPolicy:
    """If no label says otherwise, `warn` is at least as strict as `enforce`."""
    enforce, warn = policy.enforce, policy.warn
    if "warn" in labels or _level(labels.get("enforce", "")) is None or enforce.strictness <= warn.strictness:
        return policy
    minor = warn.minor if "warn-version" in labels else enforce.minor
    return policy._replace(warn=LevelVersion(enforce.level, minor))


def _level(text: str) -> Level | None:
    return text if text in LEVELS else None


def _minor(text: str) -> int | None:
    if text == "latest":
        return LATEST
    match = _VERSION.fullmatch(text)
    return int(match[1]) if match else None


# Checks ---------------------------------------------------------------------------------------------------------------


class Violation(NamedTuple):
    """reason: in a few words. detail: which field of which container; "" if the reason says all."""

    reason: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.reason} ({self.detail})" if self.detail else self.reason


Check = Callable[[Pod], Violation | None]


def describe(found: Iterable[Violation]) -> str:
    return ", ".join(map(str, found))


def reasons(found: Iterable[Violation]) -> str:
    return ", ".join(one.reason for one in found)


#: The security context that defaulting gives every pod.
_NOTHING_ASKED = PodSecurityContext()


def is_plain(pod: Pod) -> bool:
    """True if the pod sets nothing that any baseline check reads. False does not mean a violation."""
    spec = pod.spec
    if spec.host_network or spec.host_pid or spec.host_ipc:
        return False
    if spec.security_context is not None and spec.security_context != _NOTHING_ASKED:
        return False
    if pod.metadata.annotations or spec.ephemeral_containers:
        return False
    for volume in spec.volumes:
        if volume.host_path is not None:
            return False
    return all(map(_is_plain_container, spec.containers)) and all(map(_is_plain_container, spec.init_containers))


def _is_plain_container(one: Container) -> bool:
    return (
        one.security_context is None
        and not one.ports
        and one.lifecycle is None
        and one.liveness_probe is None
        and one.readiness_probe is None
        and one.startup_probe is None
    )


def is_significant_update(new: PodSpec, old: PodSpec) -> bool:
    """Whether an update is checked again: containers were added, removed, or have another image."""
    if new.containers == old.containers and new.init_containers == old.init_containers:
        known: dict[str, str] = {one.name: one.image for one in old.ephemeral_containers}
        return any(known.get(one.name) != one.image for one in new.ephemeral_containers)
    return _images(new) != _images(old)


def _images(spec: PodSpec) -> tuple[tuple[str, ...], ...]:
    return (
        tuple(one.image for one in spec.containers),
        tuple(one.image for one in spec.init_containers),
        tuple(one.image for one in spec.ephemeral_containers),
    )


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _containers(pod: Pod) -> Iterator[Container]:
    yield from pod.spec.init_containers
    yield from pod.spec.containers
    yield from pod.spec.ephemeral_containers


def _contexts(pod: Pod) -> Iterator[tuple[str, SecurityContext]]:
    """(name, security context) of the containers that have one."""
    return ((one.name, one.security_context) for one in _containers(pod) if one.security_context is not None)


def _named(noun: str, names: Sequence[str]) -> str:
    """`container "a"`, `containers "a", "b"`."""
    return f"{_plural(noun, names)} {_quoted(names)}"


def _plural(noun: str, of: Sequence[str]) -> str:
    return noun if len(of) == 1 else f"{noun}s"


def _quoted(texts: Iterable[str]) -> str:
    return ", ".join(f'"{text}"' for text in texts)


def _setters(*, pod: bool, containers: Sequence[str]) -> list[str]:
    return [*(["pod"] if pod else []), *([_named("container", containers)] if containers else [])]


# Baseline -------------------------------------------------------------------------------------------------------------


_CONFINED = ("RuntimeDefault", "Localhost")


def _app_armor(pod: Pod) -> Violation | None:
    values: set[str] = set()
    of_pod = pod.spec.security_context
    bad_pod = bool(of_pod and of_pod.app_armor_profile and of_pod.app_armor_profile.type not in _CONFINED)
    if bad_pod and of_pod and of_pod.app_armor_profile:
        values.add(of_pod.app_armor_profile.type)
    bad = [(n, c.app_armor_profile.type) for n, c in _contexts(pod) if c.app_armor_profile]
    bad = [(name, type_) for name, type_ in bad if type_ not in _CONFINED]
    setters = _setters(pod=bad_pod, containers=[name for name, _ in bad])
    annotated = sorted(
        f"{key}={json.dumps(value, ensure_ascii=False)}"
        for key, value in pod.metadata.annotations.items()
        if key.startswith(_APP_ARMOR) and value not in ("", "runtime/default") and not value.startswith("localhost/")
    )
    named = [*sorted(values | {type_ for _, type_ in bad}), *annotated]
    if annotated:
        setters.append(_plural("annotation", annotated))
    if not setters:
        return None
    detail = f"{' and '.join(setters)} must not set AppArmor profile type to {_quoted(named)}"
    return Violation(_plural("forbidden AppArmor profile", named), detail)


#: Capabilities that a container has by default, or that are as harmless.
BASELINE_CAPABILITIES = _words(
    "AUDIT_WRITE CHOWN DAC_OVERRIDE FOWNER FSETID KILL MKNOD NET_BIND_SERVICE SETFCAP SETGID SETPCAP SETUID SYS_CHROOT"
)


def _adding(pod: Pod, allowed: frozenset[str]) -> tuple[list[str], set[str]]:
    """(the containers that add other capabilities than `allowed`, these)"""
    bad, added = [], set()
    for name, context in _contexts(pod):
        beyond = set(context.capabilities.add) - allowed if context.capabilities else set()
        if beyond:
            bad.append(name)
            added |= beyond
    return bad, added


def _must_not_include(bad: Sequence[str], added: Iterable[str]) -> str:
    return f"{_named('container', bad)} must not include {_quoted(sorted(added))} in securityContext.capabilities.add"


def _capabilities(pod: Pod) -> Violation | None:
    bad, added = _adding(pod, BASELINE_CAPABILITIES)
    return Violation("non-default capabilities", _must_not_include(bad, added)) if bad else None


def _host_namespaces(pod: Pod) -> Violation | None:
    spec = pod.spec
    asked = {"hostNetwork": spec.host_network, "hostPID": spec.host_pid, "hostIPC": spec.host_ipc}
    shared = [f"{name}=true" for name, wanted in asked.items() if wanted]
    return Violation("host namespaces", ", ".join(shared)) if shared else None


def _host_paths(pod: Pod) -> Violation | None:
    bad = [volume.name for volume in pod.spec.volumes if volume.host_path is not None]
    return Violation("hostPath volumes", _named("volume", bad)) if bad else None


def _host_ports(pod: Pod) -> Violation | None:
    bad = [one.name for one in _containers(pod) if any(port.host_port for port in one.ports)]
    taken = {str(port.host_port) for one in _containers(pod) for port in one.ports if port.host_port}
    if not bad:
        return None
    uses = "uses" if len(bad) == 1 else "use"
    return Violation(
        "hostPort", f"{_named('container', bad)} {uses} {_plural('hostPort', [*taken])} {', '.join(sorted(taken))}"
    )


def _hosts(handlers: Iterable[Probe | LifecycleHandler | None]) -> Iterator[str]:
    """The hosts that probes and lifecycle hooks connect to."""
    for handler in handlers:
        if handler is not None and handler.http_get is not None and handler.http_get.host:
            yield handler.http_get.host
        if handler is not None and handler.tcp_socket is not None and handler.tcp_socket.host:
            yield handler.tcp_socket.host


def _probed_hosts(pod: Pod) -> Violation | None:
    hosts: dict[str, set[str]] = {}
    for one in _containers(pod):
        hooks = (one.lifecycle.post_start, one.lifecycle.pre_stop) if one.lifecycle else ()
        for host in _hosts((one.liveness_probe, one.readiness_probe, one.startup_probe, *hooks)):
            hosts.setdefault(one.name, set()).add(host)
    if not hosts:
        return None
    named = sorted(set().union(*hosts.values()))
    uses, noun = "uses" if len(hosts) == 1 else "use", _plural("probe or lifecycle host", named)
    return Violation("probe or lifecycle host", f"{_named('container', sorted(hosts))} {uses} {noun} {_quoted(named)}")


def _privileged(pod: Pod) -> Violation | None:
    bad = [name for name, context in _contexts(pod) if context.privileged]
    return (
        Violation("privileged", f"{_named('container', bad)} must not set securityContext.privileged=true")
        if bad
        else None
    )


def _proc_mount(pod: Pod) -> Violation | None:
    bad = {n: c.proc_mount for n, c in _contexts(pod) if c.proc_mount is not None and c.proc_mount != "Default"}
    if not bad:
        return None
    types = _quoted(sorted(set(bad.values())))
    return Violation("procMount", f"{_named('container', [*bad])} must not set securityContext.procMount to {types}")


def _unless_in_user_namespace(check: Check) -> Check:
    """The root of a user namespace is nobody outside of it."""
    return lambda pod: None if pod.spec.host_users is False else check(pod)


def _unless_windows(check: Check) -> Check:
    return lambda pod: None if pod.spec.os is not None and pod.spec.os.name == "windows" else check(pod)


_SE_LINUX_TYPES = frozenset({"", "container_t", "container_init_t", "container_kvm_t"})


def _se_linux(allowed: frozenset[str]) -> Check:
    def check(pod: Pod) -> Violation | None:
        of_pod = pod.spec.security_context.se_linux_options if pod.spec.security_context else None
        options = [(n, c.se_linux_options) for n, c in _contexts(pod) if c.se_linux_options is not None]
        bad = [(name, one) for name, one in options if one.type not in allowed or one.user or one.role]
        bad_pod = of_pod is not None and bool(of_pod.type not in allowed or of_pod.user or of_pod.role)
        wrong = [*([of_pod] if bad_pod and of_pod is not None else []), *(one for _, one in bad)]
        if not wrong:
            return None
        types = sorted({one.type for one in wrong} - allowed)
        details = [_named("type", types)] if types else []
        details += ["user may not be set"] if any(one.user for one in wrong) else []
        details += ["role may not be set"] if any(one.role for one in wrong) else []
        setters = " and ".join(_setters(pod=bad_pod, containers=[name for name, _ in bad]))
        detail = f"{setters} set forbidden securityContext.seLinuxOptions: {'; '.join(details)}"
        return Violation("seLinuxOptions", detail)

    return check


def _seccomp_annotations(pod: Pod) -> Violation | None:
    """Before 1.19."""
    keys = [_SECCOMP_POD, *(f"{_SECCOMP_CONTAINER}{one.name}" for one in _containers(pod))]
    found = {key: pod.metadata.annotations[key] for key in keys if key in pod.metadata.annotations}
    bad = sorted(
        f"{key}={json.dumps(value, ensure_ascii=False)}"
        for key, value in found.items()
        if value not in ("runtime/default", "docker/default") and not value.startswith("localhost/")
    )
    return Violation("seccompProfile", f"forbidden {_plural('annotation', bad)} {', '.join(bad)}") if bad else None


def _seccomp(pod: Pod) -> Violation | None:
    of_pod = pod.spec.security_context.seccomp_profile if pod.spec.security_context else None
    bad = [(n, c.seccomp_profile.type) for n, c in _contexts(pod) if c.seccomp_profile is not None]
    bad = [(name, type_) for name, type_ in bad if type_ not in _CONFINED]
    bad_pod = of_pod is not None and of_pod.type not in _CONFINED
    setters = _setters(pod=bad_pod, containers=[name for name, _ in bad])
    if not setters:
        return None
    types = {type_ for _, type_ in bad} | ({of_pod.type} if bad_pod and of_pod is not None else set())
    detail = f"{' and '.join(setters)} must not set securityContext.seccompProfile.type to {_quoted(sorted(types))}"
    return Violation("seccompProfile", detail)


_SYSCTLS = (
    (0, "kernel.shm_rmid_forced net.ipv4.ip_local_port_range net.ipv4.tcp_syncookies net.ipv4.ping_group_range"),
    (0, "net.ipv4.ip_unprivileged_port_start"),
    (27, "net.ipv4.ip_local_reserved_ports"),
    (29, "net.ipv4.tcp_keepalive_time net.ipv4.tcp_fin_timeout net.ipv4.tcp_keepalive_intvl"),
    (29, "net.ipv4.tcp_keepalive_probes"),
    (32, "net.ipv4.tcp_rmem net.ipv4.tcp_wmem"),
)


def safe_sysctls(minor: int = NEWEST) -> frozenset[str]:
    """Those that concern nobody but the pod."""
    return frozenset(name for since, names in _SYSCTLS if since <= minor for name in _words(names))


def _sysctls(minor: int) -> Check:
    allowed = safe_sysctls(minor)

    def check(pod: Pod) -> Violation | None:
        asked = pod.spec.security_context.sysctls if pod.spec.security_context else ()
        bad = [one.name for one in asked if one.name not in allowed]
        return Violation("forbidden sysctls", ", ".join(bad)) if bad else None

    return check


def _windows_host_process(pod: Pod) -> Violation | None:
    of_pod = pod.spec.security_context.windows_options if pod.spec.security_context else None
    bad = [n for n, c in _contexts(pod) if c.windows_options is not None and c.windows_options.host_process]
    setters = _setters(pod=bool(of_pod and of_pod.host_process), containers=bad)
    if not setters:
        return None
    return Violation(
        "hostProcess", f"{' and '.join(setters)} must not set securityContext.windowsOptions.hostProcess=true"
    )


# Restricted -----------------------------------------------------------------------------------------------------------


def _escalation(pod: Pod) -> Violation | None:
    bad = [
        one.name
        for one in _containers(pod)
        if one.security_context is None or one.security_context.allow_privilege_escalation is not False
    ]
    if not bad:
        return None
    return Violation(
        "allowPrivilegeEscalation != false",
        f"{_named('container', bad)} must set securityContext.allowPrivilegeEscalation=false",
    )


def _all_capabilities_dropped(pod: Pod) -> Violation | None:
    keeping = [one.name for one in _containers(pod) if "ALL" not in _dropped(one)]
    bad, added = _adding(pod, frozenset({"NET_BIND_SERVICE"}))
    details = [
        *([f'{_named("container", keeping)} must set securityContext.capabilities.drop=["ALL"]'] if keeping else []),
        *([_must_not_include(bad, added)] if bad else []),
    ]
    return Violation("unrestricted capabilities", "; ".join(details)) if details else None


def _dropped(one: Container) -> Sequence[str]:
    context = one.security_context
    return context.capabilities.drop if context is not None and context.capabilities is not None else ()


_RESTRICTED_VOLUMES = _words(
    "configMap csi downwardAPI emptyDir ephemeral image persistentVolumeClaim projected secret"
)
#: What a volume's source is called where it is said to be restricted; others are "unknown".
_NAMED_VOLUMES = _words(
    "hostPath gcePersistentDisk awsElasticBlockStore gitRepo nfs iscsi glusterfs rbd flexVolume cinder cephfs flocker "
    "fc azureFile vsphereVolume quobyte azureDisk photonPersistentDisk portworxVolume scaleIO storageos"
)


def _volumes(pod: Pod) -> Violation | None:
    bad = [volume for volume in pod.spec.volumes if not _RESTRICTED_VOLUMES & _sources(volume)]
    if not bad:
        return None
    names = [volume.name for volume in bad]
    types = sorted({min(_NAMED_VOLUMES & _sources(one), default="unknown") for one in bad})
    uses, noun = "uses" if len(bad) == 1 else "use", _plural("restricted volume type", types)
    return Violation("restricted volume types", f"{_named('volume', names)} {uses} {noun} {_quoted(types)}")


def _sources(volume: Volume) -> set[str]:
    """The sources that a volume has, as the API names them."""
    return {named for field, named in _source_fields() if getattr(volume, field) is not None}


@cache
def _source_fields() -> Sequence[tuple[str, str]]:
    """(field, its name in the API). Cached, because msgspec computes them on every call."""
    return [(one.name, one.encode_name) for one in msgspec.structs.fields(Volume) if one.name != "name"]


def _non_root(pod: Pod) -> Violation | None:
    of_pod = pod.spec.security_context.run_as_non_root if pod.spec.security_context else None
    own = {one.name: one.security_context.run_as_non_root if one.security_context else None for one in _containers(pod)}
    refusing = _setters(pod=of_pod is False, containers=[name for name, value in own.items() if value is False])
    silent = [name for name, value in own.items() if value is None]
    if refusing:
        detail = f"{' and '.join(refusing)} must not set securityContext.runAsNonRoot=false"
    elif silent and not of_pod:
        detail = f"pod or {_named('container', silent)} must set securityContext.runAsNonRoot=true"
    else:
        return None
    return Violation("runAsNonRoot != true", detail)


def _user(pod: Pod) -> Violation | None:
    of_pod = pod.spec.security_context.run_as_user if pod.spec.security_context else None
    setters = _setters(
        pod=of_pod == 0, containers=[name for name, context in _contexts(pod) if context.run_as_user == 0]
    )
    return Violation("runAsUser=0", f"{' and '.join(setters)} must not set runAsUser=0") if setters else None


def _seccomp_demanded(pod: Pod) -> Violation | None:
    of_pod = pod.spec.security_context.seccomp_profile if pod.spec.security_context else None
    silent = [
        one.name for one in _containers(pod) if not (one.security_context and one.security_context.seccomp_profile)
    ]
    if (wrong := _seccomp(pod)) is not None or of_pod is not None or not silent:
        return wrong
    must = 'must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost"'
    return Violation("seccompProfile", f"pod or {_named('container', silent)} {must}")


# All checks -----------------------------------------------------------------------------------------------------------


class _Known(NamedTuple):
    """revisions: (the first version, N of v1.N, that it belongs to, the check), oldest first.

    overrides: the check of baseline in whose place it stands.
    """

    name: str
    level: Level
    revisions: Sequence[tuple[int, Check]]
    overrides: str = ""


_KNOWN = (
    _Known("appArmorProfile", "baseline", [(0, _app_armor)]),
    _Known("capabilities_baseline", "baseline", [(0, _capabilities)]),
    _Known("hostNamespaces", "baseline", [(0, _host_namespaces)]),
    _Known("hostPathVolumes", "baseline", [(0, _host_paths)]),
    _Known("hostPorts", "baseline", [(0, _host_ports)]),
    _Known("hostProbesAndHostLifecycle", "baseline", [(34, _probed_hosts)]),
    _Known("privileged", "baseline", [(0, _privileged)]),
    _Known("procMount", "baseline", [(0, _proc_mount), (35, _unless_in_user_namespace(_proc_mount))]),
    _Known(
        "seLinuxOptions",
        "baseline",
        [(0, _se_linux(_SE_LINUX_TYPES)), (31, _se_linux(_SE_LINUX_TYPES | {"container_engine_t"}))],
    ),
    _Known("seccompProfile_baseline", "baseline", [(0, _seccomp_annotations), (19, _seccomp)]),
    _Known("sysctls", "baseline", [(since, _sysctls(since)) for since in (0, 27, 29, 32)]),
    _Known("windowsHostProcess", "baseline", [(0, _windows_host_process)]),
    _Known("allowPrivilegeEscalation", "restricted", [(8, _escalation), (25, _unless_windows(_escalation))]),
    _Known(
        "capabilities_restricted",
        "restricted",
        [(22, _all_capabilities_dropped), (25, _unless_windows(_all_capabilities_dropped))],
        overrides="capabilities_baseline",
    ),
    _Known("procMount_restricted", "restricted", [(35, _proc_mount)], overrides="procMount"),
    _Known("restrictedVolumes", "restricted", [(0, _volumes)], overrides="hostPathVolumes"),
    _Known("runAsNonRoot", "restricted", [(0, _non_root), (35, _unless_in_user_namespace(_non_root))]),
    _Known("runAsUser", "restricted", [(23, _user), (35, _unless_in_user_namespace(_user))]),
    _Known(
        "seccompProfile_restricted",
        "restricted",
        [(19, _seccomp_demanded), (25, _unless_windows(_seccomp_demanded))],
        overrides="seccompProfile_baseline",
    ),
)


def violations(asked: LevelVersion, pod: Pod) -> tuple[Violation, ...]:
    """The checks of the level that `pod` fails."""
    if asked.level == "privileged" or (asked.level == "baseline" and is_plain(pod)):
        return ()
    minor = NEWEST if asked.minor == LATEST else min(asked.minor, NEWEST)
    return tuple(found for check in _checks(asked.level, minor) if (found := check(pod)) is not None)


@cache
def _checks(level: Level, minor: int) -> tuple[Check, ...]:
    """Of a level, as v1.`minor` had them."""
    asked = [known for known in _KNOWN if level == "restricted" or known.level == "baseline"]
    present = [known for known in asked if known.revisions[0][0] <= minor]
    overridden = {known.overrides for known in present}
    return tuple(
        [check for since, check in known.revisions if since <= minor][-1]
        for known in present
        if known.name not in overridden
    )

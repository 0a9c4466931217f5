"""Pod Security Standards: the levels that a namespace's labels name, and the checks of each level. PURE.

`privileged` allows everything, `baseline` forbids known ways out of a container, `restricted` also demands that a pod
gives up what it does not need. The labels of a namespace name a level for each of three modes (enforce, audit, warn)
and the version of the checks: `latest`, or `v1.N` for those of Kubernetes 1.N.

`violations` runs all checks of a level, baseline's first, in the order of their names. `is_plain` is a shortcut for
most pods, which set nothing that baseline checks.
Source: k8s.io/pod-security-admission (api/, policy/) of Kubernetes 1.36: a check has the name that it has there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from typing import Literal, NamedTuple

import msgspec

from claims.kinds.containers import Container, LifecycleHandler, PodSecurityContext, Probe, SecurityContext
from claims.kinds.pods import Pod, PodSpec
from claims.kinds.volumes import Volume
from manciple.wire.errors import FieldError, invalid

# Levels ---------------------------------------------------------------------------------------------------------------


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


_APP_ARMOR = "container.apparmor.security.beta.kubernetes.io/"
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


_SECCOMP_POD = "seccomp.security.alpha.kubernetes.io/pod"
_SECCOMP_CONTAINER = "container.seccomp.security.alpha.kubernetes.io/"


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
    fields = (one for one in msgspec.structs.fields(volume) if one.name != "name")
    return {one.encode_name for one in fields if getattr(volume, one.name) is not None}


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

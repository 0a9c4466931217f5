"""The interface of container runtimes: requests to start containers, built from manifests, and containers' states.

Containers outlive the agent, and the runtime keeps their state. The agent reads it, compares it with the pod, and acts;
it keeps no state of its own.

`container_request` builds the request for a container from its pod's manifest: variables, security context, mounts,
probes. Pure. `ContainerRequest.unserved` lists what a manifest asks for and this node cannot give: the container is
then not started. Where a manifest says nothing, a container gets less than Kubernetes gives it: no new privileges (a
setuid program gains nothing) unless `allowPrivilegeEscalation` is true, and the runtime's seccomp profile. Errors about
missing ConfigMaps and Secrets (`MissingSource`) have the kubelet's words; a `PodSource` reads and caches these objects.

Source: core/v1 EnvVarSource; kubernetes pkg/kubelet/kubelet_pods.go (makeEnvironmentVariables), pkg/fieldpath,
pkg/securitycontext/util.go, pkg/kubelet/kuberuntime/security_context.go, pkg/kubelet/sysctl.
"""

from __future__ import annotations

import base64
import json
import re
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

import msgspec

from claims.kinds.containers import (
    AppArmorProfile,
    Container,
    EnvFromSource,
    EnvVarSource,
    EphemeralContainer,
    LifecycleHandler,
    PodSecurityContext,
    Probe,
    ProbeHandler,
    ResourceFieldSelector,
    SeccompProfile,
    SecurityContext,
    SELinuxOptions,
    VolumeMount,
)
from claims.kinds.pod_streams import StreamOptions
from claims.kinds.pods import Pod
from claims.kinds.resource_usage import (
    is_sidecar,
    limits_of,
    qos_class,
    requests_of,
    requests_of_containers,
    resources_of,
)
from claims.kinds.volumes import Volume
from manciple.access.kinds.secrets import ConfigMap, Secret
from manciple.wire.base import EMPTY, Value
from manciple.wire.quantity import Quantity
from manciple.wire.validation import check_environment_name
from nodeagent.config import machine_cpus, machine_memory
from nodeagent.failures import AgentError, ContainerFailed, LogsUnavailable
from nodeagent.runtimes.api_access import ApiAccess
from nodeagent.runtimes.conversations import Conversation
from nodeagent.runtimes.image_keys import PullKeys, no_keys
from nodeagent.runtimes.logs import LogQuery

# Requests and states of containers ------------------------------------------------------------------------------------

# A request has everything that the start of one container needs. The runtime keeps it while the container exists, and
# stops and probes the container by it, also after a restart of the agent.

#: An init container runs to its end before the next starts; a sidecar runs beside the others and keeps no pod running.
Role = Literal["init", "sidecar", "main"]


class Action(Value):
    """The action of a probe or a hook.

    The first of these that is set applies. command: run it inside the container. port: connect to it at `host` from
    inside the pod's network, and GET `path` if it is not empty, over TLS or not, or ask a gRPC server for the health of
    `service` if that is not None. unknown_port: a name that none of the container's ports has. seconds: wait.
    """

    command: tuple[str, ...] = ()
    host: str = ""
    port: int = 0
    path: str = ""
    tls: bool = False
    headers: tuple[tuple[str, str], ...] = ()
    service: str | None = None
    unknown_port: str = ""
    seconds: int = 0


class ProbeRequest(Value):
    """A check of a running container. Times in seconds, thresholds in consecutive results."""

    action: Action
    initial_delay: int = 0
    timeout: int = 1
    period: int = 10
    successes: int = 1
    failures: int = 3
    grace_seconds: int | None = None  # for a container killed by it; None: the pod's


class Probes(Value):
    """The probes of one container."""

    startup: ProbeRequest | None = None
    readiness: ProbeRequest | None = None
    liveness: ProbeRequest | None = None


class MountRequest(Value):
    """A volume in a container.

    kind: of the volume; "files": made by the agent (`Runtime.files_folder`). path: on the node, for hostPath.
    host_type: the type that hostPath must have. size: limit in bytes of an emptyDir in memory, 0 for none. sub_path:
    below the volume's root.
    """

    volume: str
    kind: Literal["hostPath", "emptyDir", "memory", "files"]
    target: str
    path: str = ""
    host_type: str = ""
    size: int = 0
    sub_path: str = ""
    read_only: bool = False
    propagation: str = ""


class ConfinementProfile(Value):
    """A seccomp or AppArmor profile. kind: RuntimeDefault, Unconfined, Localhost or "" for the default; name: of it."""

    kind: str = ""
    name: str = ""


class Security(Value):
    """User, groups and privileges of a container's process. None: the default of the image or the runtime.

    groups: supplementary, including fs_group. fs_group: the group of volumes. se_linux: parts of a label by name.
    """

    user: int | None = None
    group: int | None = None
    groups: tuple[int, ...] = ()
    fs_group: int | None = None
    non_root: bool = False
    privileged: bool = False
    read_only_root: bool = False
    no_new_privileges: bool = True
    add: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    seccomp: ConfinementProfile = ConfinementProfile()
    app_armor: ConfinementProfile = ConfinementProfile()
    se_linux: tuple[tuple[str, str], ...] = ()


class Limits(Value):
    """Of a container, or of a pod's containers together; 0 for none.

    cpu_millis, memory_bytes: at most. cpu_request_millis: the share when others want the processors too.
    """

    cpu_millis: int = 0
    cpu_request_millis: int = 0
    memory_bytes: int = 0


class ResolverRequest(Value):
    """A pod's resolv.conf. from_node: added to what the node's own says. options: "" for the value of one without."""

    from_node: bool
    nameservers: tuple[str, ...] = ()
    searches: tuple[str, ...] = ()
    options: tuple[tuple[str, str], ...] = ()


class ContainerRequest(Value):
    """One container to start. attempt: counts from 0. environment: without variables of CDI devices.

    streak: how many restarts came one after the other, without a long run between them: the back-off grows with it.

    oom_score: how soon it has to go when the machine lacks memory, from -1000 (never) to 1000 (first).

    command, args: in Kubernetes' sense, instead of the image's entrypoint and its arguments. pod_limits: None for a pod
    whose containers have all the limits that there are. confidential: variables with a value from a Secret, which are
    neither shown to other users nor written to a disk. unserved: messages to the pod's owner about unsupported
    settings; a runtime whose containers really run must not start such a container.
    """

    pod_uid: str
    namespace: str
    pod: str
    name: str
    role: Role
    attempt: int
    image: str
    command: tuple[str, ...]
    args: tuple[str, ...]
    environment: dict[str, str]
    cdi_devices: tuple[str, ...]
    claims: tuple[str, ...]  # the uids of the devices' claims
    annotations: dict[str, str]  # of the pod
    streak: int = 0
    pull_policy: str = "IfNotPresent"
    working_dir: str = ""
    hostname: str = ""  # the node's for ""
    full_name: str = ""  # with the domain, if the pod has one
    address: str = ""  # of the pod
    host_aliases: tuple[tuple[str, tuple[str, ...]], ...] = ()
    resolver: ResolverRequest | None = None  # None: the node's resolv.conf
    host_network: bool = False
    host_pid: bool = False
    host_ipc: bool = False
    share_processes: bool = False  # with the pod's other containers
    target: str = ""  # the container whose processes it sees
    stdin: bool = False
    stdin_once: bool = False  # it ends with that of the first session
    tty: bool = False
    limits: Limits = Limits()
    pod_limits: Limits | None = None
    memory_request_bytes: int = 0
    oom_score: int = 0
    mounts: tuple[MountRequest, ...] = ()
    security: Security = Security()
    sysctls: tuple[tuple[str, str], ...] = ()
    probes: Probes = Probes()
    post_start: Action | None = None
    pre_stop: Action | None = None
    stop_signal: str = ""
    grace_seconds: int = 30  # of the pod, for a container that a failing probe stops
    message_path: str = ""
    message_from_log: bool = False  # where the container failed and wrote no message
    confidential: tuple[str, ...] = ()
    unserved: tuple[str, ...] = ()

    @property
    def recorded_environment(self) -> dict[str, str]:
        """The environment without confidential values."""
        return {name: "" if name in self.confidential else value for name, value in self.environment.items()}


class EndedRun(Value):
    """An attempt that has ended. Times in POSIX seconds. reason: "" for Completed or Error, by the exit code."""

    container_id: str
    started_at: float
    finished_at: float
    exit_code: int
    reason: str = ""
    message: str = ""


class ContainerRun(Value):
    """The latest attempt to run one container, running or ended. Times in POSIX seconds.

    reason, message: of an ended run, as in `EndedRun`. started, ready: the results of the probes of a running one.
    streak: as in `ContainerRequest`. stop_signal: the manifest's, the image's or the runtime's; "" if it is not known.
    """

    name: str
    role: Role
    attempt: int
    container_id: str  # "<runtime>://<id>"
    image: str
    cdi_devices: tuple[str, ...]
    environment: dict[str, str]  # as the container's process sees it, CDI's part included
    claims: tuple[str, ...]
    started_at: float
    finished_at: float | None = None
    exit_code: int = 0  # of an ended run
    reason: str = ""
    message: str = ""
    image_id: str = ""  # "" if the runtime has no other than `image`
    started: bool = True
    ready: bool = True
    streak: int = 0
    stop_signal: str = ""
    previous: EndedRun | None = None

    @property
    def running(self) -> bool:
        return self.finished_at is None

    def ended(self) -> EndedRun | None:
        """Its end; None while it runs."""
        if self.finished_at is None:
            return None
        return EndedRun(
            container_id=self.container_id,
            started_at=self.started_at,
            finished_at=self.finished_at,
            exit_code=self.exit_code,
            reason=self.reason,
            message=self.message,
        )


@dataclass(frozen=True, slots=True)
class Happening:
    """Something that a runtime did with a container, or found out about it, in the words of a kubelet's event."""

    container: str
    reason: str
    message: str
    is_warning: bool = False


#: The reason of the happening before an image is pulled, which the pod's own thread tells.
PULLING = "Pulling"


def killing(container: str, probe: str) -> Happening:
    """The end of a container whose startup or liveness probe fails."""
    return Happening(container, "Killing", f"Container {container} failed {probe} probe, will be restarted")


class ContainerUsage(Value):
    """What one running container, or the machine, has used so far. Times in POSIX seconds.

    cpu_nanos: processor time since its start, in nanoseconds. memory_bytes: without what the kernel may drop at once.
    """

    at: float
    started_at: float
    cpu_nanos: int
    memory_bytes: int


class PodStorage(Value):
    """Disk use of a pod in bytes. containers: their logs and writable layers."""

    volumes: dict[str, int] = {}
    containers: dict[str, int] = {}


def logged_run(runs: Mapping[str, ContainerRun], pod_uid: str, container: str, query: LogQuery) -> ContainerRun:
    """The run of `container` for a query of its log, or of its predecessor's. Raises: LogsUnavailable."""
    run = runs.get(container)
    if run is None:
        raise LogsUnavailable(f"container {container} of pod {pod_uid} has not been started")
    if query.previous and run.previous is None:
        raise LogsUnavailable(f"previous terminated container {container} of pod {pod_uid} not found")
    return run


class Runtime(Protocol):
    """Starts and stops containers. Thread-safe; one thread at a time works on one pod."""

    #: whether containers see files of the node
    has_files: bool

    @property
    def version(self) -> str:
        """As a node reports it: "<runtime>://<version>"."""

    @property
    def api(self) -> ApiAccess | None:
        """How its containers reach the API; None for one whose containers do not run."""

    def start(self, request: ContainerRequest, keys: PullKeys = no_keys) -> None:
        """Start a container, unless this attempt has been started already. keys: to pull its image with.

        Raises: ContainerFailed.
        """

    def resize(self, pod_uid: str, container: str, limits: Limits) -> None:
        """Change the limits of a running container. Raises: ContainerFailed; then they are unchanged."""

    def resize_pod(self, pod_uid: str, limits: Limits) -> None:
        """Change the limits of a running pod that has some of its own. Raises: ContainerFailed."""

    def end(self, pod_uid: str, container: str, *, grace_seconds: int) -> None:
        """Stop one container, and return when it has ended. Raises: ContainerFailed."""

    def files_folder(self, pod_uid: str, volume: str) -> Path | None:
        """The directory for the files of a volume that the agent makes; None for a runtime without files.

        It is in memory, and empty when created: after a restart of the machine. Raises: OSError.
        """

    def runs(self, pod_uid: str) -> Mapping[str, ContainerRun]:
        """The pod's containers by name, in their current state. Raises: ContainerFailed."""

    @property
    def counts_evenly(self) -> bool:
        """Whether the use of its containers never changes, so that no sample of it need be kept."""

    def usage(self, pod_uid: str) -> Mapping[str, ContainerUsage]:
        """What the pod's running containers have used, by name; one that cannot be measured is left out."""

    def machine_usage(self) -> ContainerUsage | None:
        """What the whole node has used since it started; None where it cannot be measured."""

    def storage(self, pod_uid: str, volumes: Collection[str], *, layers: bool) -> PodStorage:
        """The disk use now, of `volumes` and containers; layers: with writable layers. Raises: ContainerFailed."""

    def next_change(self, pod_uid: str) -> float | None:
        """The time (POSIX seconds) of the next change without a notification; None for none."""

    def subscribe(self, changed: Callable[[str], None]) -> None:
        """Call `changed` with a pod's uid, from any thread, when a container of it has ended or become ready or not."""

    def listen(self, happened: Callable[[str, Happening], None]) -> None:
        """Call `happened` with a pod's uid, from any thread, for whatever its owner should know."""

    def stop(self, pod_uid: str, *, grace_seconds: int) -> float | None:
        """Stop the pod's containers; call again until none runs.

        Returns None once none runs, else the seconds until the next call. Containers still running `grace_seconds`
        after the first call are killed; a later call may shorten that. Raises: ContainerFailed.
        """

    def remove(self, pod_uid: str) -> None:
        """Forget a stopped pod."""

    def pod_uids(self) -> frozenset[str]:
        """Every pod with a container."""

    def logs(self, pod_uid: str, container: str, query: LogQuery, *, stop: threading.Event) -> Iterator[bytes]:
        """A container's log, in pieces of any size.

        With `query.follow` more pieces follow until the container has ended or `stop` is set (polled several times a
        second). Raises, before the first piece: LogsUnavailable if there is no such run.
        """

    def execute(self, pod_uid: str, container: str, options: StreamOptions) -> Conversation:
        """Run a command in a running container. Raises: StreamFailed, StreamRefused, ContainerFailed."""

    def attach(self, pod_uid: str, container: str, options: StreamOptions) -> Conversation:
        """The streams of a container's own process, from now on. Raises: as `execute`."""

    def connect(self, pod_uid: str, port: int) -> Conversation:
        """A connection to a port on the pod's loopback address. Raises: as `execute`."""


# The ConfigMaps, Secrets and tokens that a request reads --------------------------------------------------------------


class MissingSource(AgentError):
    """A ConfigMap, a Secret, one of its keys or a token that a pod needs cannot be read.

    absent: it does not exist. Otherwise it may, and a reference to it fails even if it is optional.
    """

    def __init__(self, message: str, *, absent: bool = True) -> None:
        super().__init__(message)
        self.absent = absent


class PodSource(Protocol):
    """Reads Secrets and ConfigMaps. Raises: MissingSource, also if one cannot be read."""

    def secret(self, namespace: str, name: str) -> Secret: ...

    def config_map(self, namespace: str, name: str) -> ConfigMap: ...


# Variables ------------------------------------------------------------------------------------------------------------

# `$(NAME)` in commands, arguments and values of variables. `$$` is a dollar sign; a reference to an unknown name stays
# unexpanded. Source: kubernetes third_party/forked/golang/expansion.

_TERM = re.compile(r"\$(?:\$|\((?P<name>[^)]*)\))")


def expanded(text: str, variables: Mapping[str, str]) -> str:
    """`text` with its references replaced by the values of `variables`."""

    def value(match: re.Match[str]) -> str:
        name = match["name"]
        return "$" if name is None else variables.get(name, match[0])

    return _TERM.sub(value, text)


@dataclass(frozen=True, slots=True)
class Addresses:
    """Of the node and of the pod."""

    host: str
    pod: str


@dataclass(slots=True)
class ContainerEnvironment:
    """variables: by name, in the manifest's order. confidential: those with a value from a Secret.

    unserved: messages about what this node cannot give the container.
    """

    variables: dict[str, str] = field(default_factory=dict)
    confidential: set[str] = field(default_factory=set)
    unserved: list[str] = field(default_factory=list)

    def add(self, name: str, value: str, *, confidential: bool) -> None:
        self.variables[name] = value
        (self.confidential.add if confidential else self.confidential.discard)(name)


def environment_of(
    pod: Pod, container: Container, addresses: Addresses, source: PodSource, *, given: Mapping[str, str] = EMPTY
) -> ContainerEnvironment:
    """The container's variables. A value may refer to variables before it; missing optional values are left out.

    given: what it has anyway. Raises: MissingSource.
    """
    environment = ContainerEnvironment(dict(given))
    for origin in container.env_from:
        _add_all_keys(environment, pod, origin, source)
    for variable in container.env:
        if variable.value_from is None:
            referred = {match["name"] for match in _TERM.finditer(variable.value)}
            value = expanded(variable.value, environment.variables)
            environment.add(variable.name, value, confidential=bool(referred & environment.confidential))
        elif (key := _key(pod, variable.value_from, source)) is not None:
            value, confidential = key
            environment.add(variable.name, value, confidential=confidential)
        else:
            value_or_none, trouble = _downward(pod, container, variable.value_from, addresses)
            if value_or_none is not None:
                environment.add(variable.name, value_or_none, confidential=False)
            elif trouble:
                environment.unserved.append(f"env {variable.name}: {trouble}")
    return environment


def _add_all_keys(environment: ContainerEnvironment, pod: Pod, origin: EnvFromSource, source: PodSource) -> None:
    """Those keys of a ConfigMap or Secret that are valid names of variables; later ones win."""
    reference = origin.config_map_ref or origin.secret_ref
    if reference is None:
        return
    confidential = origin.config_map_ref is None
    try:
        values = _texts(pod.metadata.namespace, reference.name, source, confidential=confidential)
    except MissingSource as missing:
        if reference.optional and missing.absent:
            return
        raise
    for key, text in sorted(values.items()):
        if not check_environment_name(name := f"{origin.prefix}{key}"):
            environment.add(name, text, confidential=confidential)


def _texts(namespace: str, name: str, source: PodSource, *, confidential: bool) -> Mapping[str, str]:
    if not confidential:
        return source.config_map(namespace, name).data
    data = source.secret(namespace, name).data
    return {key: base64.b64decode(value).decode(errors="replace") for key, value in data.items()}


def _key(pod: Pod, chosen: EnvVarSource, source: PodSource) -> tuple[str, bool] | None:
    """(value, whether it is from a Secret) of a key; None if no key is referenced, or an optional one is missing."""
    reference = chosen.config_map_key_ref or chosen.secret_key_ref
    if reference is None:
        return None
    confidential, namespace = chosen.config_map_key_ref is None, pod.metadata.namespace
    try:
        values = _texts(namespace, reference.name, source, confidential=confidential)
    except MissingSource as missing:
        if reference.optional and missing.absent:
            return None
        raise
    if reference.key in values:
        return values[reference.key], confidential
    if reference.optional:
        return None
    kind = "Secret" if confidential else "ConfigMap"
    raise MissingSource(f"couldn't find key {reference.key} in {kind} {namespace}/{reference.name}")


def _downward(pod: Pod, container: Container, source: EnvVarSource, at: Addresses) -> tuple[str | None, str]:
    """(value of a field of the pod or of a resource, "") or (None, why there is none); no reason if it is optional."""
    if source.field_ref is not None:
        path = source.field_ref.field_path
        return field_value(pod, path, at), f"the field {path} cannot be exposed to a container"
    if source.resource_field_ref is not None:
        return resource_value(pod, source.resource_field_ref, container)
    if source.file_key_ref is not None:
        optional = source.file_key_ref.optional
        return None, "" if optional else "a value from a file cannot be read: this agent does not serve it"
    return None, ""


# The downward API -----------------------------------------------------------------------------------------------------

_SUBSCRIPT = re.compile(r"metadata\.(?P<map>labels|annotations)\['(?P<key>[^']+)'\]")


def field_value(pod: Pod, path: str, addresses: Addresses) -> str | None:
    """A field of `pod` in the downward API; None for any other."""
    meta = pod.metadata
    if match := _SUBSCRIPT.fullmatch(path):
        return (meta.labels if match["map"] == "labels" else meta.annotations).get(match["key"], "")
    fields: Mapping[str, Callable[[], str]] = {
        "metadata.name": lambda: meta.name,
        "metadata.namespace": lambda: meta.namespace,
        "metadata.uid": lambda: meta.uid,
        "metadata.labels": lambda: _lines(meta.labels),
        "metadata.annotations": lambda: _lines(meta.annotations),
        "spec.nodeName": lambda: pod.spec.node_name,
        "spec.serviceAccountName": lambda: pod.spec.service_account_name,
        "status.hostIP": lambda: addresses.host,
        "status.hostIPs": lambda: addresses.host,
        "status.podIP": lambda: addresses.pod,
        "status.podIPs": lambda: addresses.pod,
    }
    return fields[path]() if path in fields else None


def _lines(values: Mapping[str, str]) -> str:
    return "\n".join(f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in sorted(values.items()))


def resource_value(pod: Pod, source: ResourceFieldSelector, own: Container | None) -> tuple[str | None, str]:
    """A limit or request in units of the divisor, rounded up; without a limit, the pod's, or what the node has of it.

    own: the container if the selector names none. Returns (value, "") or (None, why there is none).
    """
    containers = {one.name: one for one in (*pod.spec.init_containers, *pod.spec.containers)}
    container = containers.get(source.container_name, own)
    kind, _, resource = source.resource.partition(".")
    amounts = None
    if container is not None:
        amounts = {"limits": container.resources.limits, "requests": container.resources.requests}.get(kind)
    whole, level = {"cpu": machine_cpus(), "memory": machine_memory()}, resources_of(pod.spec)
    is_known = resource in {*whole, "ephemeral-storage"} or resource.startswith("hugepages-")
    if amounts is None or not is_known:
        return None, f"the resource {source.resource} cannot be exposed to a container"
    of_pod = level.limits.get(resource) if level is not None else None
    text = amounts.get(resource) or (of_pod or whole.get(resource, "0") if kind == "limits" else "0")
    divisor = Quantity.parse(source.divisor or "1").nanos or Quantity.of(1).nanos
    return str(-(-Quantity.parse(text).nanos // divisor)), ""


# Security context -----------------------------------------------------------------------------------------------------


def security_of(pod: Pod, container: Container) -> Security:
    """The container's settings override the pod's."""
    of_pod, own = pod.spec.security_context or PodSecurityContext(), container.security_context or SecurityContext()
    capabilities = own.capabilities
    se_linux = own.se_linux_options or of_pod.se_linux_options or SELinuxOptions()
    labels = {"user": se_linux.user, "role": se_linux.role, "type": se_linux.type, "level": se_linux.level}
    groups = (*of_pod.supplemental_groups, *(() if of_pod.fs_group is None else (of_pod.fs_group,)))
    return Security(
        user=of_pod.run_as_user if own.run_as_user is None else own.run_as_user,
        group=of_pod.run_as_group if own.run_as_group is None else own.run_as_group,
        groups=groups,
        fs_group=of_pod.fs_group,
        non_root=bool(of_pod.run_as_non_root if own.run_as_non_root is None else own.run_as_non_root),
        privileged=bool(own.privileged),
        read_only_root=bool(own.read_only_root_filesystem),
        # A privileged container, and one with SYS_ADMIN, can escalate anyway.
        no_new_privileges=not (
            own.privileged
            or own.allow_privilege_escalation
            or not {"SYS_ADMIN", "CAP_SYS_ADMIN", "ALL"}.isdisjoint(capabilities.add if capabilities else ())
        ),
        add=capabilities.add if capabilities else (),
        drop=capabilities.drop if capabilities else (),
        seccomp=_profile(own.seccomp_profile or of_pod.seccomp_profile),
        app_armor=_profile(own.app_armor_profile or of_pod.app_armor_profile),
        se_linux=tuple((name, value) for name, value in labels.items() if value),
    )


def _profile(given: SeccompProfile | AppArmorProfile | None) -> ConfinementProfile:
    if given is None:
        return ConfinementProfile()
    return ConfinementProfile(kind=given.type, name=given.localhost_profile or "")


def ungranted(pod: Pod, container: Container) -> Iterator[str]:
    """Messages to the pod's owner about settings that this node's runtimes cannot grant or enforce."""
    spec, of_pod = pod.spec, pod.spec.security_context or PodSecurityContext()
    if spec.host_users is False:
        yield "hostUsers: false: this node's containers have no user namespaces of their own"
    if spec.runtime_class_name:
        yield f'runtimeClassName: RuntimeClass "{spec.runtime_class_name}" is not known here'
    if spec.os is not None and spec.os.name not in ("", "linux"):
        yield f"os: this node runs linux, not {spec.os.name}"
    if of_pod.supplemental_groups_policy not in (None, "", "Merge"):
        yield f"supplementalGroupsPolicy: only Merge is served here, not {of_pod.supplemental_groups_policy}"
    own = container.security_context or SecurityContext()
    if own.proc_mount not in (None, "", "Default"):
        yield f"procMount: only Default is served here, not {own.proc_mount}"
    for context in (of_pod, own):
        if context.windows_options is not None and context.windows_options.host_process:
            yield "windowsOptions: this node runs linux"


# The request ----------------------------------------------------------------------------------------------------------


#: The default of a pod's termination grace period.
GRACE_SECONDS = 30


def container_request(
    pod: Pod,
    container: Container,
    *,
    role: Role,
    attempt: int,
    streak: int = 0,
    cdi_devices: tuple[str, ...],
    claims: tuple[str, ...],
    addresses: Addresses,
    source: PodSource,
    api: ApiAccess | None = None,
) -> ContainerRequest:
    """Attempt `attempt` at `container` with `cdi_devices`, which belong to the claims with the uids `claims`.

    api: how it finds the API, which its manifest may overrule.

    Raises: ContainerFailed if a Secret or ConfigMap for its variables is missing.
    """
    try:
        given = {} if api is None else api.variables(host_network=pod.spec.host_network)
        environment = environment_of(pod, container, addresses, source, given=given)
    except MissingSource as missing:
        raise ContainerFailed(str(missing), reason="CreateContainerConfigError") from missing
    variables, spec = environment.variables, pod.spec
    hostname, full_name = _names(pod, environment)
    aliases = tuple((alias.ip, alias.hostnames) for alias in spec.host_aliases)
    if api is not None:
        aliases = aliases if spec.host_network else (*api.host_aliases(), *aliases)
    return ContainerRequest(
        pod_uid=pod.metadata.uid,
        namespace=pod.metadata.namespace,
        pod=pod.metadata.name,
        name=container.name,
        role=role,
        attempt=attempt,
        image=container.image,
        command=tuple(expanded(word, variables) for word in container.command),
        args=tuple(expanded(word, variables) for word in container.args),
        environment=variables,
        cdi_devices=cdi_devices,
        claims=claims,
        annotations=pod.metadata.annotations,
        streak=streak,
        pull_policy=container.image_pull_policy or "IfNotPresent",
        working_dir=container.working_dir,
        hostname=hostname,
        full_name=full_name,
        address=addresses.pod,
        host_aliases=aliases,
        resolver=_resolver(pod),
        host_network=spec.host_network,
        host_pid=spec.host_pid,
        host_ipc=spec.host_ipc,
        share_processes=bool(spec.share_process_namespace),
        target=container.target_container_name if isinstance(container, EphemeralContainer) else "",
        stdin=container.stdin,
        stdin_once=container.stdin_once,
        tty=container.tty,
        limits=container_limits(pod, container),
        pod_limits=pod_limits(pod),
        memory_request_bytes=_amount(container.resources.requests.get("memory")).as_int64_ceil(),
        oom_score=oom_score_of(pod, container),
        mounts=tuple(_mounts(pod, container, environment)),
        security=security_of(pod, container),
        sysctls=tuple((s.name, s.value) for s in spec.security_context.sysctls) if spec.security_context else (),
        probes=Probes(
            startup=_probe(container, container.startup_probe, addresses.pod),
            readiness=_probe(container, container.readiness_probe, addresses.pod),
            liveness=_probe(container, container.liveness_probe, addresses.pod),
        ),
        post_start=_hook(container, container.lifecycle.post_start if container.lifecycle else None, addresses.pod),
        pre_stop=_hook(container, container.lifecycle.pre_stop if container.lifecycle else None, addresses.pod),
        stop_signal=(container.lifecycle.stop_signal or "") if container.lifecycle else "",
        grace_seconds=GRACE_SECONDS if (grace := spec.termination_grace_period_seconds) is None else grace,
        message_path=container.termination_message_path,
        message_from_log=container.termination_message_policy == "FallbackToLogsOnError",
        confidential=tuple(sorted(environment.confidential)),
        unserved=(*environment.unserved, *ungranted(pod, container)),
    )


#: Of Services, which give pods with a subdomain their names in full.
CLUSTER_DOMAIN = "cluster.local"
#: Characters that the kernel takes for a hostname.
HOSTNAME_LENGTH = 64


def _names(pod: Pod, environment: ContainerEnvironment) -> tuple[str, str]:
    """(hostname, its name in full or "").

    Source: kubernetes pkg/kubelet/kubelet_pods.go (GeneratePodHostNameAndDomain, truncatePodHostnameIfNeeded).
    """
    spec = pod.spec
    if spec.host_network:
        return "", ""
    if spec.hostname_override:
        return spec.hostname_override, ""
    name = (spec.hostname or pod.metadata.name)[:63].rstrip("-.")
    if not spec.subdomain:
        return name, ""
    full = f"{name}.{spec.subdomain}.{pod.metadata.namespace}.svc.{CLUSTER_DOMAIN}"
    if spec.set_hostname_as_fqdn and len(full) > HOSTNAME_LENGTH:
        limit = f"{HOSTNAME_LENGTH} characters is the max, {len(full)} characters requested"
        environment.unserved.append(f"failed to construct FQDN from pod hostname, FQDN {full} is too long ({limit})")
    return (full if spec.set_hostname_as_fqdn else name), full


def _resolver(pod: Pod) -> ResolverRequest | None:
    """Source: kubernetes pkg/kubelet/network/dns/dns.go (GetPodDNS). Without a DNS of the cluster, ClusterFirst is
    Default.
    """
    config, from_node = pod.spec.dns_config, pod.spec.dns_policy != "None"
    if config is None:
        return None if from_node else ResolverRequest(from_node=False)
    return ResolverRequest(
        from_node=from_node,
        nameservers=config.nameservers,
        searches=config.searches,
        options=tuple((option.name, option.value or "") for option in config.options),
    )


#: Of containers of Guaranteed and of BestEffort pods.
_LAST_TO_GO, _FIRST_TO_GO = -997, 1000


def oom_score_of(pod: Pod, container: Container) -> int:
    """Containers share what the pod requests beyond their own requests; a sidecar outlives the containers that it is
    for. Source: kubernetes pkg/kubelet/qos/policy.go (GetContainerOOMScoreAdjust).
    """
    spec, quality, level = pod.spec, qos_class(pod.spec), resources_of(pod.spec)
    if quality in ("Guaranteed", "BestEffort"):
        return _LAST_TO_GO if quality == "Guaranteed" else _FIRST_TO_GO
    request = _memory_request(container)
    if is_sidecar(container):
        request = max(request, min(map(_memory_request, spec.containers)))
    if level is not None and "memory" in level.requests:
        together = Quantity(requests_of_containers(spec).get("memory", 0)).as_int64_ceil()
        spare = _amount(level.requests["memory"]).as_int64_ceil() - together
        request += max(0, spare) // len((*spec.containers, *spec.init_containers))
    share = 1000 * request // max(1, _amount(machine_memory()).as_int64_ceil())
    return min(max(_FIRST_TO_GO - share, 1000 + _LAST_TO_GO), _FIRST_TO_GO - 1)


def _memory_request(container: Container) -> int:
    return _amount(container.resources.requests.get("memory")).as_int64_ceil()


def container_limits(pod: Pod, container: Container) -> Limits:
    """A container without a limit has the pod's."""
    level, own = resources_of(pod.spec), container.resources
    of_pod = level.limits if level is not None else EMPTY
    return Limits(
        cpu_millis=_amount(own.limits.get("cpu") or of_pod.get("cpu")).milli_value(),
        cpu_request_millis=_amount(own.requests.get("cpu")).milli_value(),
        memory_bytes=_amount(own.limits.get("memory") or of_pod.get("memory")).as_int64_ceil(),
    )


def pod_limits(pod: Pod) -> Limits | None:
    """Of the containers together; None for a pod without resources of its own.

    Source: kubernetes pkg/kubelet/cm/helpers_linux.go (ResourceConfigForPod).
    """
    level = resources_of(pod.spec)
    if level is None or not (level.limits or level.requests):
        return None
    replace = msgspec.structs.replace
    desired = replace(pod, status=replace(pod.status, container_statuses=()))
    limits, requests = limits_of(desired), requests_of(desired)
    return Limits(
        cpu_millis=Quantity(limits.get("cpu", 0)).milli_value() if "cpu" in level.limits else 0,
        cpu_request_millis=Quantity(requests.get("cpu", 0)).milli_value(),
        memory_bytes=Quantity(limits.get("memory", 0)).as_int64_ceil() if "memory" in level.limits else 0,
    )


def _amount(text: str | None) -> Quantity:
    return Quantity.parse(text or "0")


# Mounts ---------------------------------------------------------------------------------------------------------------


def is_made_of_files(volume: Volume) -> bool:
    """Whether the agent makes the volume's files from API objects."""
    sources = (volume.secret, volume.config_map, volume.downward_api, volume.projected)
    return any(source is not None for source in sources)


def unserved_projection(volume: Volume) -> str:
    """The name of a projected source that the agent does not serve; "" for none."""
    for source in volume.projected.sources if volume.projected is not None else ():
        if source.cluster_trust_bundle is not None or source.pod_certificate is not None:
            return "clusterTrustBundle" if source.cluster_trust_bundle is not None else "podCertificate"
    return ""


def _mounts(pod: Pod, container: Container, environment: ContainerEnvironment) -> Iterator[MountRequest]:
    volumes = {volume.name: volume for volume in pod.spec.volumes}
    for mount in container.volume_mounts:
        volume = volumes.get(mount.name)
        if volume is None:
            environment.unserved.append(f"the pod has no volume {mount.name}")
        elif request := _mount(volume, mount, expanded(mount.sub_path_expr, environment.variables) or mount.sub_path):
            yield request
        else:
            environment.unserved.append(f"volume {volume.name}: this agent does not serve {_kind(volume)}")
    for device in container.volume_devices:
        environment.unserved.append(f"volume {device.name}: this agent does not serve raw block volumes")


def _mount(volume: Volume, mount: VolumeMount, sub_path: str) -> MountRequest | None:
    """None for an unserved kind of volume."""
    request = MountRequest(
        volume=volume.name,
        kind="emptyDir",
        target=mount.mount_path,
        sub_path=sub_path,
        read_only=mount.read_only,
        propagation=mount.mount_propagation or "",
    )
    if volume.host_path is not None:
        path, type_ = volume.host_path.path, volume.host_path.type or ""
        return msgspec.structs.replace(request, kind="hostPath", path=path, host_type=type_)
    if is_made_of_files(volume) and not unserved_projection(volume):
        return msgspec.structs.replace(request, kind="files", read_only=True)
    if volume.empty_dir is None or volume.empty_dir.medium not in ("", "Memory"):
        return None
    if volume.empty_dir.medium == "Memory":
        size = _amount(volume.empty_dir.size_limit).as_int64_ceil()
        return msgspec.structs.replace(request, kind="memory", size=size)
    return request


def _kind(volume: Volume) -> str:
    """The name of the volume's source."""
    if volume.empty_dir is not None:
        return f"emptyDir of medium {volume.empty_dir.medium}"
    if projection := unserved_projection(volume):
        return f"a projected {projection}"
    fields = (one for one in msgspec.structs.fields(volume) if one.name != "name")
    return next((one.encode_name for one in fields if getattr(volume, one.name) is not None), "a volume without source")


# Probes and hooks; `address`: the pod's -------------------------------------------------------------------------------


def _probe(container: Container, probe: Probe | None, address: str) -> ProbeRequest | None:
    action = _action(container, probe, address) if probe is not None else None
    if probe is None or action is None:
        return None
    return ProbeRequest(
        action=action,
        initial_delay=probe.initial_delay_seconds,
        timeout=probe.timeout_seconds or 1,
        period=probe.period_seconds or 10,
        successes=probe.success_threshold or 1,
        failures=probe.failure_threshold or 3,
        grace_seconds=probe.termination_grace_period_seconds,
    )


def _hook(container: Container, handler: LifecycleHandler | None, address: str) -> Action | None:
    if handler is None:
        return None
    if handler.sleep is not None:
        return Action(seconds=handler.sleep.seconds)
    return _action(container, handler, address)


def _action(container: Container, handler: ProbeHandler | LifecycleHandler, address: str) -> Action | None:
    if handler.exec is not None:
        return Action(command=handler.exec.command)
    if handler.http_get is not None:
        get = handler.http_get
        port = _port(container, get.port)
        return Action(
            host=get.host or address,
            port=port,
            unknown_port="" if port else str(get.port),
            path=get.path if get.path.startswith("/") else f"/{get.path}",
            tls=get.scheme.upper() == "HTTPS",
            headers=tuple((header.name, header.value) for header in get.http_headers),
        )
    if handler.tcp_socket is not None:
        tcp = handler.tcp_socket
        port = _port(container, tcp.port)
        return Action(host=tcp.host or address, port=port, unknown_port="" if port else str(tcp.port))
    if isinstance(handler, ProbeHandler) and handler.grpc is not None:
        return Action(host=address, port=handler.grpc.port, service=handler.grpc.service or "")
    return None


def _port(container: Container, port: int | str) -> int:
    """A port by number or by its name in the container; 0 for an unknown name."""
    if isinstance(port, int):
        return port
    named = (one.container_port for one in container.ports if one.name == port)
    return next(named, int(port) if port.isdigit() else 0)

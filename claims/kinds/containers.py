"""core/v1 Container and what it is made of: references, security, ports, environment, resources, mounts, probes.

Source: k8s.io/api/core/v1.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated, ClassVar

import msgspec

from inventory.kinds import gates
from manciple.wire.base import Int32, Int64, LocalObjectReference, QuantityText, Value, always, pb

# References -----------------------------------------------------------------------------------------------------------


PACKAGE = "io.k8s.api.core.v1"


class TypedLocalObjectReference(Value):
    """An object of the same namespace, of any kind. No `api_group` means core.

    api_group: the API group of the object's kind; empty for core. kind: the kind of the object. name: the name of the
    object.
    """

    ATOMIC: ClassVar = True

    api_group: Annotated[str | None, pb(1)] = None
    kind: Annotated[str, pb(2)] = ""
    name: Annotated[str, pb(3)] = ""


class TypedObjectReference(TypedLocalObjectReference):
    """An object of any kind in any namespace.

    namespace: the namespace of the object; the referring one's by default.
    """

    namespace: Annotated[str | None, pb(4)] = None


class ConfigMapEnvSource(LocalObjectReference):
    """A ConfigMap that may be missing when `optional` is true.

    optional: whether the ConfigMap may be missing.
    """

    EMBEDS: ClassVar = (LocalObjectReference, 1)

    optional: Annotated[bool | None, pb(2)] = None


class SecretEnvSource(LocalObjectReference):
    """A Secret that may be missing when `optional` is true.

    optional: whether the Secret may be missing.
    """

    EMBEDS: ClassVar = (LocalObjectReference, 1)

    optional: Annotated[bool | None, pb(2)] = None


class ConfigMapKeySelector(LocalObjectReference):
    """One key of a ConfigMap.

    key: which one. optional: whether the ConfigMap or the key may be missing.
    """

    EMBEDS: ClassVar = (LocalObjectReference, 1)
    ATOMIC: ClassVar = True

    key: Annotated[str, pb(2)] = ""
    optional: Annotated[bool | None, pb(3)] = None


class SecretKeySelector(LocalObjectReference):
    """One key of a Secret.

    key: which one. optional: whether the Secret or the key may be missing.
    """

    EMBEDS: ClassVar = (LocalObjectReference, 1)
    ATOMIC: ClassVar = True

    key: Annotated[str, pb(2)] = ""
    optional: Annotated[bool | None, pb(3)] = None


class FileKeySelector(Value):
    """One key of a file with environment variables that lies in a volume.

    volume_name: the name of the pod's volume. path: the path of the file in the volume. key: the variable in the file.
    optional: whether the file or the key may be missing.
    """

    ATOMIC: ClassVar = True

    volume_name: Annotated[str, pb(1)] = ""
    path: Annotated[str, pb(2)] = ""
    key: Annotated[str, pb(3)] = ""
    optional: Annotated[bool | None, pb(4)] = None


class ObjectFieldSelector(Value):
    """A field of the pod itself: metadata.name, status.podIP, ...

    api_version: of the schema of the path; v1. field_path: the path of the field, such as metadata.labels['app'].
    """

    ATOMIC: ClassVar = True

    api_version: Annotated[str, pb(1)] = ""
    field_path: Annotated[str, pb(2)] = ""


class ResourceFieldSelector(Value):
    """A resource amount of a container: limits.cpu, requests.memory, ...; in units of `divisor`.

    container_name: the container of a volume's item; a variable is about its own container. resource: which amount,
    such as limits.memory. divisor: the unit; 1 by default.
    """

    ATOMIC: ClassVar = True

    container_name: Annotated[str, pb(1)] = ""
    resource: Annotated[str, pb(2)] = ""
    divisor: Annotated[QuantityText | None, pb(3, encoding="quantity")] = None


class KeyToPath(Value):
    """Which key becomes which file. `mode`: permission bits; `user`: owner of the file.

    key: the key in the ConfigMap or Secret. path: the path of the file, relative to the volume, without `..`.
    """

    key: Annotated[str, pb(1)] = ""
    path: Annotated[str, pb(2)] = ""
    mode: Annotated[Int32 | None, pb(3)] = None
    user: Annotated[Int64 | None, pb(4)] = None


# Security -------------------------------------------------------------------------------------------------------------


class Capabilities(Value):
    """POSIX capabilities given and taken.

    add: given beyond what the runtime gives. drop: taken away; ALL for each of them.
    """

    add: Annotated[tuple[str, ...], pb(1)] = ()
    drop: Annotated[tuple[str, ...], pb(2)] = ()


class SELinuxOptions(Value):
    """An SELinux label.

    user: its user. role: its role. type: its type. level: its level.
    """

    user: Annotated[str, pb(1)] = ""
    role: Annotated[str, pb(2)] = ""
    type: Annotated[str, pb(3)] = ""
    level: Annotated[str, pb(4)] = ""


class WindowsSecurityContextOptions(Value):
    """What holds only on Windows.

    gmsa_credential_spec_name: the object that holds the credential spec. gmsa_credential_spec: the group-managed
    account's credential spec itself. run_as_user_name: the user that runs the command. host_process: whether the
    container runs as a process of the node.
    """

    gmsa_credential_spec_name: Annotated[str | None, pb(1)] = None
    gmsa_credential_spec: Annotated[str | None, pb(2)] = None
    run_as_user_name: Annotated[str | None, pb(3)] = None
    host_process: Annotated[bool | None, pb(4)] = None


class SeccompProfile(Value):
    """A seccomp profile. `type`: Localhost (then with a profile's path), RuntimeDefault or Unconfined.

    localhost_profile: the profile's path below the agent's seccomp folder, for Localhost.
    """

    type: Annotated[str, pb(1)] = ""
    localhost_profile: Annotated[str | None, pb(2)] = None


class AppArmorProfile(Value):
    """An AppArmor profile. `type`: Localhost (then with a profile's name), RuntimeDefault or Unconfined.

    localhost_profile: the profile's name on the node, for Localhost.
    """

    type: Annotated[str, pb(1)] = ""
    localhost_profile: Annotated[str | None, pb(2)] = None


class SecurityContext(Value):
    """The rights of one container; they win over the pod's.

    privileged: whether its processes have the rights of root on the node. run_as_user: id of the user that runs the
    command; the image's by default. run_as_group: id of that user's primary group. run_as_non_root: whether a container
    that would run as root is refused. read_only_root_filesystem: whether nothing may be written outside volumes.
    allow_privilege_escalation: whether a setuid program may gain rights; false here unless it is set. proc_mount: how
    /proc is shown, Default or Unmasked.
    """

    capabilities: Annotated[Capabilities | None, pb(1)] = None
    privileged: Annotated[bool | None, pb(2)] = None
    se_linux_options: Annotated[SELinuxOptions | None, pb(3)] = None
    windows_options: Annotated[WindowsSecurityContextOptions | None, pb(10)] = None
    run_as_user: Annotated[Int64 | None, pb(4)] = None
    run_as_group: Annotated[Int64 | None, pb(8)] = None
    run_as_non_root: Annotated[bool | None, pb(5)] = None
    read_only_root_filesystem: Annotated[bool | None, pb(6)] = None
    allow_privilege_escalation: Annotated[bool | None, pb(7)] = None
    proc_mount: Annotated[str | None, pb(9)] = None
    seccomp_profile: Annotated[SeccompProfile | None, pb(11)] = None
    app_armor_profile: Annotated[AppArmorProfile | None, pb(12)] = None


class Sysctl(Value):
    """A kernel parameter.

    name: the name of the parameter, such as net.core.somaxconn. value: to set.
    """

    name: Annotated[str, pb(1)] = always("")
    value: Annotated[str, pb(2)] = always("")


class PodSecurityContext(Value):
    """The rights of all containers of a pod.

    run_as_user: id of the user that runs the commands; the images' by default. run_as_group: id of that user's primary
    group. run_as_non_root: whether containers that would run as root are refused. supplemental_groups: ids of further
    groups of the processes. supplemental_groups_policy: Merge adds the image's groups to these, Strict does not.
    fs_group: id of the group that owns the pod's volumes. fs_group_change_policy: Always changes the owner of all files
    when a volume is mounted, OnRootMismatch only where its root has another. se_linux_change_policy: how volumes get
    the SELinux label, Recursive or MountOption.
    """

    se_linux_options: Annotated[SELinuxOptions | None, pb(1)] = None
    windows_options: Annotated[WindowsSecurityContextOptions | None, pb(8)] = None
    run_as_user: Annotated[Int64 | None, pb(2)] = None
    run_as_group: Annotated[Int64 | None, pb(6)] = None
    run_as_non_root: Annotated[bool | None, pb(3)] = None
    supplemental_groups: Annotated[tuple[Int64, ...], pb(4)] = ()
    supplemental_groups_policy: Annotated[str | None, pb(12)] = None
    fs_group: Annotated[Int64 | None, pb(5)] = None
    sysctls: Annotated[tuple[Sysctl, ...], pb(7)] = ()
    fs_group_change_policy: Annotated[str | None, pb(9)] = None
    seccomp_profile: Annotated[SeccompProfile | None, pb(10)] = None
    app_armor_profile: Annotated[AppArmorProfile | None, pb(11)] = None
    se_linux_change_policy: Annotated[str | None, pb(13)] = None


# Containers -----------------------------------------------------------------------------------------------------------


class ContainerPort(Value):
    """A port that the container listens on.

    name: for probes and Services; unique in the pod. host_port: the port of the node that leads to it. container_port:
    the number, 1 to 65535. protocol: TCP, UDP or SCTP. host_ip: the node's address that the host port belongs to.
    """

    name: Annotated[str, pb(1)] = ""
    host_port: Annotated[Int32, pb(2)] = 0
    container_port: Annotated[Int32, pb(3)] = always(0)
    protocol: Annotated[str, pb(4)] = ""
    host_ip: Annotated[str, pb(5)] = msgspec.field(default="", name="hostIP")


class EnvFromSource(Value):
    """All keys of a ConfigMap or Secret as variables, behind `prefix`.

    prefix: what comes before the name of each variable.
    """

    prefix: Annotated[str, pb(1)] = ""
    config_map_ref: Annotated[ConfigMapEnvSource | None, pb(2)] = None
    secret_ref: Annotated[SecretEnvSource | None, pb(3)] = None


class EnvVarSource(Value):
    """Where a variable's value comes from. Exactly one field is set."""

    field_ref: Annotated[ObjectFieldSelector | None, pb(1)] = None
    resource_field_ref: Annotated[ResourceFieldSelector | None, pb(2)] = None
    config_map_key_ref: Annotated[ConfigMapKeySelector | None, pb(3)] = None
    secret_key_ref: Annotated[SecretKeySelector | None, pb(4)] = None
    file_key_ref: Annotated[FileKeySelector | None, pb(5)] = None


class EnvVar(Value):
    """An environment variable.

    name: the name of the variable. value: with $(NAME) for the variables before it.
    """

    name: Annotated[str, pb(1)] = ""
    value: Annotated[str, pb(2)] = ""
    value_from: Annotated[EnvVarSource | None, pb(3)] = None


class ContainerResourceClaim(Value):
    """One of the pod's claims that a container uses, or one request of it (all when empty).

    name: the name of the entry in the pod's resourceClaims. request: a request of that claim; empty for all of its
    devices.
    """

    SCHEMA: ClassVar = "io.k8s.api.core.v1.ResourceClaim"

    name: Annotated[str, pb(1)] = ""
    request: Annotated[str, pb(2)] = ""


class ResourceRequirements(Value):
    """Amounts by resource name, and the claims whose devices are wanted inside the container.

    limits: the most that may be used. requests: what a node sets aside; the limits by default.
    """

    limits: Annotated[dict[str, QuantityText], pb(1, encoding="quantity")] = {}
    requests: Annotated[dict[str, QuantityText], pb(2, encoding="quantity")] = {}
    claims: Annotated[tuple[ContainerResourceClaim, ...], pb(3, list_keys="name")] = ()


class ContainerResizePolicy(Value):
    """What happens to the container when a resource of it is resized.

    resource_name: cpu or memory. restart_policy: NotRequired resizes the running container, RestartContainer restarts
    it.
    """

    resource_name: Annotated[str, pb(1)] = ""
    restart_policy: Annotated[str, pb(2)] = ""


class ContainerRestartRuleOnExitCodes(Value):
    """Exit codes. `operator`: In or NotIn. `values`: at most 255."""

    operator: Annotated[str, pb(1)] = ""
    values: Annotated[tuple[Int32, ...], pb(2)] = ()


class ContainerRestartRule(Value):
    """What to do when the container exits in this way. `action`: Restart or RestartAllContainers."""

    action: Annotated[str, pb(1)] = ""
    exit_codes: Annotated[ContainerRestartRuleOnExitCodes | None, pb(2)] = None


class VolumeMount(Value):
    """Where a volume of the pod appears in the container.

    name: the name of the pod's volume. read_only: whether the container may not write to it. recursive_read_only:
    whether that holds for mounts below it too; Disabled, IfPossible or Enabled. mount_path: the path in the container,
    without a colon. sub_path: the path in the volume; its root by default. mount_propagation: whether mounts made later
    are seen on the other side; None, HostToContainer or Bidirectional. sub_path_expr: as subPath, with $(NAME) for
    variables. bind_mount_options: further options of the mount.
    """

    name: Annotated[str, pb(1)] = ""
    read_only: Annotated[bool, pb(2)] = False
    recursive_read_only: Annotated[str | None, pb(7)] = None
    mount_path: Annotated[str, pb(3)] = ""
    sub_path: Annotated[str, pb(4)] = ""
    mount_propagation: Annotated[str | None, pb(5)] = None
    sub_path_expr: Annotated[str, pb(6)] = ""
    bind_mount_options: Annotated[tuple[str, ...], pb(8)] = ()


class VolumeDevice(Value):
    """Where a raw block volume of the pod appears in the container.

    name: the name of the pod's volume. device_path: the path of the device in the container.
    """

    name: Annotated[str, pb(1)] = ""
    device_path: Annotated[str, pb(2)] = ""


class ExecAction(Value):
    """A command to run inside the container; not through a shell.

    command: the program and its arguments.
    """

    command: Annotated[tuple[str, ...], pb(1)] = ()


class HTTPHeader(Value):
    """A header of a probe's request.

    name: the name of the header. value: the value of the header.
    """

    name: Annotated[str, pb(1)] = always("")
    value: Annotated[str, pb(2)] = always("")


class HTTPGetAction(Value):
    """A GET request. `port`: a number or the name of a container port.

    path: the path of the URL. host: the pod's address by default. scheme: HTTP or HTTPS. protocol: the version of HTTP.
    """

    path: Annotated[str, pb(1)] = ""
    port: Annotated[int | str, pb(2, encoding="intOrString")] = always(0)
    host: Annotated[str, pb(3)] = ""
    scheme: Annotated[str, pb(4)] = ""
    http_headers: Annotated[tuple[HTTPHeader, ...], pb(5)] = ()
    protocol: Annotated[str | None, pb(6)] = None


class TCPSocketAction(Value):
    """Opening a connection. `port`: a number or the name of a container port.

    host: the pod's address by default.
    """

    port: Annotated[int | str, pb(1, encoding="intOrString")] = always(0)
    host: Annotated[str, pb(2)] = ""


class GRPCAction(Value):
    """A gRPC health check.

    port: its number. service: the service whose health is asked for; the whole server's by default. mode: how the
    connection is made.
    """

    port: Annotated[Int32, pb(1)] = always(0)
    service: Annotated[str | None, pb(2)] = None
    mode: Annotated[str | None, pb(3)] = None


class ProbeHandler(Value):
    """The action of a probe. Exactly one field is set."""

    exec: Annotated[ExecAction | None, pb(1)] = None
    http_get: Annotated[HTTPGetAction | None, pb(2)] = None
    tcp_socket: Annotated[TCPSocketAction | None, pb(3)] = None
    grpc: Annotated[GRPCAction | None, pb(4)] = None


class Probe(ProbeHandler):
    """A periodic check of a container. Times in seconds, thresholds in consecutive probes.

    initial_delay_seconds: after the container's start. timeout_seconds: for one answer; 1 by default. period_seconds:
    between two probes; 10 by default. success_threshold: successes in a row after which it has passed; 1 by default.
    failure_threshold: failures in a row after which it has failed; 3 by default. termination_grace_period_seconds: for
    a container that this probe ends; the pod's by default.
    """

    EMBEDS: ClassVar = (ProbeHandler, 1)

    initial_delay_seconds: Annotated[Int32, pb(2)] = 0
    timeout_seconds: Annotated[Int32, pb(3)] = 0
    period_seconds: Annotated[Int32, pb(4)] = 0
    success_threshold: Annotated[Int32, pb(5)] = 0
    failure_threshold: Annotated[Int32, pb(6)] = 0
    termination_grace_period_seconds: Annotated[Int64 | None, pb(7)] = None


class SleepAction(Value):
    """Waiting so many seconds.

    seconds: within the pod's grace period.
    """

    seconds: Annotated[Int64, pb(1)] = always(0)


class LifecycleHandler(Value):
    """What runs after a container starts or before it stops. Exactly one field is set."""

    exec: Annotated[ExecAction | None, pb(1)] = None
    http_get: Annotated[HTTPGetAction | None, pb(2)] = None
    tcp_socket: Annotated[TCPSocketAction | None, pb(3)] = None
    sleep: Annotated[SleepAction | None, pb(4)] = None


class Lifecycle(Value):
    """What runs after a container started and before it stops, and the signal that stops it.

    stop_signal: such as SIGUSR1; spec.os.name must be set. The image's by default, else SIGTERM.
    """

    post_start: Annotated[LifecycleHandler | None, pb(1)] = None
    pre_stop: Annotated[LifecycleHandler | None, pb(2)] = None
    stop_signal: Annotated[str | None, pb(3)] = None


def is_draft_off() -> bool:
    """kubectl computes no patch of fields that OpenAPI does not describe."""
    return not gates.enabled(gates.CLAIMS_DRAFT)


class Container(Value):
    """One container of a pod.

    pod_resources: the entries of the pod's `resources`, as KEP-3063's first draft has them, that the container uses.

    name: unique in the pod, a DNS label. image: reference of the image to run. command: what runs instead of the
    image's entrypoint; not a shell. args: what it is given instead of the image's CMD. working_dir: where the command
    runs; the image's by default. restart_policy: the policy of this container alone; Always makes an init container a
    sidecar. termination_message_path: the file whose text the status shows when the container has ended.
    termination_message_policy: File reads that file alone, FallbackToLogsOnError the end of the log where the file is
    empty and the container failed. image_pull_policy: Always, IfNotPresent or Never; Always by default for the tag
    latest. stdin: whether it gets a standard input. stdin_once: whether that ends with the first session. tty: whether
    it gets a terminal.
    """

    name: Annotated[str, pb(1)] = ""
    image: Annotated[str, pb(2)] = ""
    command: Annotated[tuple[str, ...], pb(3)] = ()
    args: Annotated[tuple[str, ...], pb(4)] = ()
    working_dir: Annotated[str, pb(5)] = ""
    ports: Annotated[
        tuple[ContainerPort, ...], pb(6, merge_key="containerPort", list_keys="containerPort,protocol")
    ] = ()
    env_from: Annotated[tuple[EnvFromSource, ...], pb(19)] = ()
    env: Annotated[tuple[EnvVar, ...], pb(7, merge_key="name")] = ()
    resources: Annotated[ResourceRequirements, pb(8)] = always(ResourceRequirements())
    resize_policy: Annotated[tuple[ContainerResizePolicy, ...], pb(23)] = ()
    restart_policy: Annotated[str | None, pb(24)] = None
    restart_policy_rules: Annotated[tuple[ContainerRestartRule, ...], pb(25)] = ()
    volume_mounts: Annotated[tuple[VolumeMount, ...], pb(9, merge_key="mountPath")] = ()
    volume_devices: Annotated[tuple[VolumeDevice, ...], pb(21, merge_key="devicePath")] = ()
    liveness_probe: Annotated[Probe | None, pb(10)] = None
    readiness_probe: Annotated[Probe | None, pb(11)] = None
    startup_probe: Annotated[Probe | None, pb(22)] = None
    lifecycle: Annotated[Lifecycle | None, pb(12)] = None
    termination_message_path: Annotated[str, pb(13)] = ""
    termination_message_policy: Annotated[str, pb(20)] = ""
    image_pull_policy: Annotated[str, pb(14)] = ""
    security_context: Annotated[SecurityContext | None, pb(15)] = None
    stdin: Annotated[bool, pb(16)] = False
    stdin_once: Annotated[bool, pb(17)] = False
    tty: Annotated[bool, pb(18)] = False
    #: names of the entries of spec.resources that it uses, of a pod of KEP-3063's draft (`claims.drafts.cdi`), whose
    #: types have strings here, and whose example has objects
    pod_resources: Annotated[
        tuple[str, ...],
        pb(3063, encoding="name", undocumented=is_draft_off, known=partial(gates.enabled, gates.CLAIMS_DRAFT)),
    ] = ()


class EphemeralContainer(Container):
    """A container that is added to a running pod for debugging, in the namespaces of `target_container_name`.

    target_container_name: the container whose processes it sees.
    """

    EMBEDS: ClassVar = (Container, 1)

    target_container_name: Annotated[str, pb(2)] = ""

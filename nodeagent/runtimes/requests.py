"""From the manifest of a pod to the request of one of its containers, variables resolved. Pure.

What a manifest may ask for and a node of this kind does not have is told in `ContainerRequest.unserved`.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from claims.kinds.containers import (
    Container,
    HTTPGetAction,
    LifecycleHandler,
    Probe,
    ProbeHandler,
    VolumeMount,
)
from claims.kinds.pods import Pod
from claims.kinds.volumes import Volume
from manciple.wire.quantity import Quantity
from nodeagent.failures import ContainerFailed
from nodeagent.runtimes.protocol import Action, ContainerRequest, MountRequest, ProbeRequest, Probes, Role
from nodeagent.runtimes.security import security_of, ungranted
from nodeagent.runtimes.sources import (
    Addresses,
    ContainerEnvironment,
    MissingSource,
    PodSource,
    environment_of,
    expanded,
    is_made_of_files,
    unserved_projection,
)

#: Of a pod that does not say.
GRACE_SECONDS = 30


def container_request(
    pod: Pod,
    container: Container,
    *,
    role: Role,
    attempt: int,
    cdi_devices: tuple[str, ...],
    claims: tuple[str, ...],
    addresses: Addresses,
    source: PodSource,
) -> ContainerRequest:
    """Attempt `attempt` at `container` with `cdi_devices`, which belong to the claims with the uids `claims`.

    Raises: ContainerFailed where a Secret or ConfigMap that its variables need is missing.
    """
    try:
        found = environment_of(pod, container, addresses, source)
    except MissingSource as missing:
        raise ContainerFailed(str(missing), reason="CreateContainerConfigError") from missing
    variables, spec = found.variables, pod.spec
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
        pull_policy=container.image_pull_policy or "IfNotPresent",
        working_dir=container.working_dir,
        hostname=(spec.hostname or pod.metadata.name)[:63].rstrip("-."),
        address=addresses.pod,
        host_aliases=tuple((alias.ip, alias.hostnames) for alias in spec.host_aliases),
        host_network=spec.host_network,
        host_pid=spec.host_pid,
        host_ipc=spec.host_ipc,
        stdin=container.stdin,
        tty=container.tty,
        cpu_millis=_amount(container.resources.limits.get("cpu")).milli_value(),
        cpu_request_millis=_amount(container.resources.requests.get("cpu")).milli_value(),
        memory_bytes=_amount(container.resources.limits.get("memory")).as_int64_ceil(),
        mounts=tuple(_mounts(pod, container, found)),
        security=security_of(pod, container),
        sysctls=tuple((s.name, s.value) for s in spec.security_context.sysctls) if spec.security_context else (),
        probes=_probes(container, addresses.pod),
        post_start=_hook(container, container.lifecycle.post_start if container.lifecycle else None, addresses.pod),
        pre_stop=_hook(container, container.lifecycle.pre_stop if container.lifecycle else None, addresses.pod),
        stop_signal=(container.lifecycle.stop_signal or "") if container.lifecycle else "",
        grace_seconds=GRACE_SECONDS if (grace := spec.termination_grace_period_seconds) is None else grace,
        message_path=container.termination_message_path,
        message_from_log=container.termination_message_policy == "FallbackToLogsOnError",
        confidential=tuple(sorted(found.confidential)),
        unserved=(*found.unserved, *ungranted(pod, container)),
    )


def _amount(text: str | None) -> Quantity:
    return Quantity.parse(text or "0")


# Volumes.
def _mounts(pod: Pod, container: Container, found: ContainerEnvironment) -> Iterator[MountRequest]:
    volumes = {volume.name: volume for volume in pod.spec.volumes}
    for mount in container.volume_mounts:
        volume = volumes.get(mount.name)
        if volume is None:
            found.unserved.append(f"the pod has no volume {mount.name}")
        elif request := _mount(volume, mount, expanded(mount.sub_path_expr, found.variables) or mount.sub_path):
            yield request
        else:
            kind = _kind(volume)
            found.unserved.append(f"volume {volume.name}: this agent does not serve {kind}")
    for device in container.volume_devices:
        found.unserved.append(f"volume {device.name}: this agent does not serve raw block volumes")


def _mount(volume: Volume, mount: VolumeMount, sub_path: str) -> MountRequest | None:
    """None for a kind of volume that is not served."""
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
    """The name of the source that a volume has."""
    if volume.empty_dir is not None:
        return f"emptyDir of medium {volume.empty_dir.medium}"
    if projection := unserved_projection(volume):
        return f"a projected {projection}"
    fields = (one for one in msgspec.structs.fields(volume) if one.name != "name")
    return next((one.encode_name for one in fields if getattr(volume, one.name) is not None), "a volume without source")


# Probes and hooks; `address`: of the pod.
def _probes(container: Container, address: str) -> Probes:
    return Probes(
        startup=_probe(container, container.startup_probe, address),
        readiness=_probe(container, container.readiness_probe, address),
        liveness=_probe(container, container.liveness_probe, address),
    )


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
    """None for gRPC, which is not spoken here: such a check has no effect."""
    if handler.exec is not None:
        return Action(command=handler.exec.command)
    if handler.http_get is not None:
        return _get(container, handler.http_get, address)
    if handler.tcp_socket is not None:
        return Action(host=handler.tcp_socket.host or address, port=_port(container, handler.tcp_socket.port))
    return None


def _get(container: Container, get: HTTPGetAction, address: str) -> Action:
    return Action(
        host=get.host or address,
        port=_port(container, get.port),
        path=get.path if get.path.startswith("/") else f"/{get.path}",
        tls=get.scheme.upper() == "HTTPS",
        headers=tuple((header.name, header.value) for header in get.http_headers),
    )


def _port(container: Container, port: int | str) -> int:
    """A port by number, or by the name that the container gives it; 0, which nothing answers, for an unknown name."""
    if isinstance(port, int):
        return port
    named = (one.container_port for one in container.ports if one.name == port)
    return next(named, int(port) if port.isdigit() else 0)

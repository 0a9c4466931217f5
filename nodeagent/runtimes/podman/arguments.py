"""From a request to the arguments of `podman run`. Pure, but for the limits of this machine."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from nodeagent.failures import ContainerFailed
from nodeagent.runtimes.request import ContainerRequest, Security

#: An image that is a directory of this machine: "rootfs:/path". Containers see it through an overlay of their own.
ROOTFS = "rootfs:"
#: A log is cut when it reaches this size.
LOG_SIZE = "10mb"
PULL = {"Always": "always", "IfNotPresent": "missing", "Never": "never"}
SHARES_PER_CPU, LEAST_SHARES = 1024, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A container's name in podman and its files on this machine. network: None for the host's."""

    name: str
    labels: dict[str, str]
    log_file: Path
    message_file: Path
    hosts_file: Path
    network: Path | None
    volumes: tuple[str, ...] = ()
    limits: tuple[str, ...] = ()


def run_arguments(request: ContainerRequest, place: Place) -> list[str]:
    """Raises: ContainerFailed for what cannot be started."""
    return ["run", "--detach", *_fixed(place), *_own(request, place), *_image_and_command(request)]


def _fixed(place: Place) -> Iterator[str]:
    """What is the same for all containers. What podman adds by itself and Kubernetes does not is turned off."""
    yield from ("--name", place.name, "--replace")
    for name, value in place.labels.items():
        yield from ("--label", f"{name}={value}")
    yield from ("--log-driver", "k8s-file", "--log-opt", f"path={place.log_file}", "--log-opt", f"max-size={LOG_SIZE}")
    yield from ("--http-proxy=false", "--systemd=false", "--sdnotify=ignore", "--unsetenv", "container")
    yield from ("--no-hosts", "--volume", f"{place.hosts_file}:/etc/hosts:rw")
    yield from ("--network", "host" if place.network is None else f"ns:{place.network}")
    yield from (*place.volumes, *place.limits)


def _own(request: ContainerRequest, place: Place) -> Iterator[str]:
    for name, value in request.environment.items():
        yield from ("--env", f"{name}={value}")
    for device in request.cdi_devices:
        yield from ("--device", device)
    if not (request.tty or "TERM" in request.environment):
        yield from ("--unsetenv", "TERM")
    if request.message_path:
        yield from ("--volume", f"{place.message_file}:{request.message_path}:rw")
    yield from _options(
        {
            "--hostname": request.hostname,
            "--workdir": request.working_dir,
            "--stop-signal": request.stop_signal,
            "--pid": "host" if request.host_pid else "",
            "--ipc": "host" if request.host_ipc else "",
        }
    )
    yield from ("--tty",) if request.tty else ()
    yield from ("--interactive",) if request.stdin else ()
    yield from _resources(request)
    yield from _security(request.security)
    for name, value in request.sysctls:
        yield from ("--sysctl", f"{name}={value}")


def _options(values: dict[str, str]) -> Iterable[str]:
    return [word for name, value in values.items() if value for word in (name, value)]


def _resources(request: ContainerRequest) -> Iterator[str]:
    if request.cpu_millis:
        yield from ("--cpus", f"{request.cpu_millis / 1000:g}")
    if request.cpu_request_millis:
        yield from ("--cpu-shares", str(max(LEAST_SHARES, request.cpu_request_millis * SHARES_PER_CPU // 1000)))
    if request.memory_bytes:
        # As much memory with swap as without: none is swapped.
        yield from ("--memory", f"{request.memory_bytes}b", "--memory-swap", f"{request.memory_bytes}b")


def _security(security: Security) -> Iterator[str]:
    if security.user is not None or security.group is not None:
        user = 0 if security.user is None else security.user
        yield from ("--user", str(user) if security.group is None else f"{user}:{security.group}")
    for group in security.groups:
        yield from ("--group-add", str(group))
    yield from ("--privileged",) if security.privileged else ()
    yield from ("--read-only", "--read-only-tmpfs=false") if security.read_only_root else ()
    yield from ("--security-opt", "no-new-privileges") if security.no_new_privileges else ()
    for option, names in (("--cap-add", security.add), ("--cap-drop", security.drop)):
        for name in names:
            yield from (option, name)


def _image_and_command(request: ContainerRequest) -> list[str]:
    if not request.image.startswith(ROOTFS):
        entry = ["--entrypoint", json.dumps(request.command)] if request.command else []
        return ["--pull", PULL.get(request.pull_policy, "missing"), *entry, request.image, *request.args]
    folder = request.image.removeprefix(ROOTFS)
    if not Path(folder).is_absolute():
        raise ContainerFailed(
            f"image {request.image}: give the directory's full path, as in rootfs:/srv/busybox",
            reason="InvalidImageName",
        )
    words = [*request.command, *request.args]
    if not words:
        raise ContainerFailed(f"image {request.image} has no command of its own; give the container a command")
    return ["--rootfs", f"{folder}:O", *words]

"""Starts a container: the arguments of `podman run`, CDI files where podman reads them, confidential variables, errors.

Words of the manifest follow an option of the agent, or `--`: none of them is parsed as an option itself.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from nodeagent.cdi import FILE_MODE, SUFFIXES, SpecFile, SpecFiles, minimum_version, parse_newer, qualified_name
from nodeagent.failures import ContainerFailed
from nodeagent.runtimes.image_keys import PullKey
from nodeagent.runtimes.podman.folder import Backoff
from nodeagent.runtimes.podman.groups import shares
from nodeagent.runtimes.podman.program import Podman, PodmanFailed
from nodeagent.runtimes.protocol import ContainerRequest, Limits
from nodeagent.storage import Disk, make_public

#: A log is cut when it reaches this size.
LOG_SIZE = "10mb"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A container's name in podman and its files on this machine.

    network: None for the host's. processes: the namespace of those that it sees, None for its own. group: the control
    group around the container's, "" for podman's own. user: "" for the image's. folder: the image, where it is a
    directory. resolver_file: None for the node's. confinement: further options.
    """

    name: str
    labels: dict[str, str]
    log_file: Path
    message_file: Path
    hosts_file: Path
    network: Path | None
    processes: Path | None = None
    group: str = ""
    user: str = ""
    folder: Path | None = None
    resolver_file: Path | None = None
    volumes: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()  # the confidential ones
    limits: tuple[str, ...] = ()
    least_oom_score: int = 0  # that the agent may give
    confinement: tuple[str, ...] = ()


def run_arguments(request: ContainerRequest, place: Place) -> list[str]:
    """Raises: ContainerFailed for what cannot be started."""
    return ["run", "--detach", *_fixed(place), *_own(request, place), *_image_and_command(request, place)]


def _fixed(place: Place) -> Iterator[str]:
    """What is the same for all containers. What podman adds by itself and Kubernetes does not is turned off."""
    yield from ("--name", place.name, "--replace")
    for name, value in place.labels.items():
        yield from ("--label", f"{name}={value}")
    yield from ("--log-driver", "k8s-file", "--log-opt", f"path={place.log_file}", "--log-opt", f"max-size={LOG_SIZE}")
    yield from ("--http-proxy=false", "--systemd=false", "--sdnotify=ignore", "--unsetenv", "container")
    yield from ("--no-hosts", "--volume", f"{place.hosts_file}:/etc/hosts:rw")
    if place.resolver_file is not None:
        yield from ("--volume", f"{place.resolver_file}:/etc/resolv.conf:rw")
    yield from ("--network", "host" if place.network is None else f"ns:{place.network}")
    yield from (*place.volumes, *place.variables, *place.limits, *place.confinement)


def _own(request: ContainerRequest, place: Place) -> Iterator[str]:
    for name, value in request.environment.items():
        if name not in request.confidential:
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
            "--user": place.user,
            "--pid": "host" if request.host_pid else f"ns:{place.processes}" if place.processes else "",
            "--ipc": "host" if request.host_ipc else "",
            "--cgroup-parent": place.group,
        }
    )
    yield from ("--tty",) if request.tty else ()
    yield from ("--interactive",) if request.stdin else ()
    yield from resource_options(request.limits)
    if request.oom_score >= place.least_oom_score:
        yield from ("--oom-score-adj", str(request.oom_score))
    for name, value in request.sysctls:
        yield from ("--sysctl", f"{name}={value}")


def _options(values: dict[str, str]) -> Iterable[str]:
    return [word for name, value in values.items() if value for word in (name, value)]


def resource_options(limits: Limits) -> Iterator[str]:
    """Of `podman run` and `podman update`."""
    if limits.cpu_millis:
        yield from ("--cpus", f"{limits.cpu_millis / 1000:g}")
    if limits.cpu_request_millis:
        yield from ("--cpu-shares", str(shares(limits)))
    if limits.memory_bytes:
        # As much memory with swap as without: none is swapped.
        yield from ("--memory", f"{limits.memory_bytes}b", "--memory-swap", f"{limits.memory_bytes}b")


def _image_and_command(request: ContainerRequest, place: Place) -> list[str]:
    if place.folder is None:
        entry = ["--entrypoint", json.dumps(request.command)] if request.command else []
        return ["--pull", "never", *entry, "--", request.image, *request.args]
    words = [*request.command, *request.args]
    if not words:
        raise ContainerFailed(f"image {request.image} has no command of its own; give the container a command")
    return ["--rootfs", "--", f"{place.folder}:O", *words]


# Lets podman find the CDI files of an agent that keeps them elsewhere than where podman looks. podman (before 5.x,
# which has an option for it) reads /etc/cdi and /var/run/cdi only. For an agent with another directory, each file in it
# gets a link there under a name that carries the agent's mark: its own, and those of drivers behind sockets that were
# given the same directory. The link of a file that is gone is removed.
#
# podman passes over files whose cdiVersion it does not know, and drivers write the newest. Where it does not find a
# device in a file that needs no such version, it is given a copy with the version that the file needs (`lower`).

#: Where podman looks; links are made in the last one, which a reboot empties.
SEARCHED = (Path("/etc/cdi"), Path("/run/cdi"))
#: How the names of copies begin; agents of one machine share them.
LOWERED = "manciple-lowered-"
_UNRESOLVABLE = "unresolvable CDI devices"


def lacks_device(error: ContainerFailed) -> bool:
    """Whether podman knows no such CDI device."""
    return isinstance(error, PodmanFailed) and _UNRESOLVABLE in f"{error} {error.output}"


class CdiLinks:
    """`folder`: the agent's CDI directory. `mark`: of the agent."""

    def __init__(self, folder: Path, *, mark: str, searched: tuple[Path, ...] = SEARCHED) -> None:
        self._folder = folder
        self._prefix = f"manciple-{mark}-"
        self._target = searched[-1]
        self._searched = tuple(dict.fromkeys((folder.resolve(), *(path.resolve() for path in searched))))
        self._needed = folder.resolve() not in {path.resolve() for path in searched}

    def update(self) -> None:
        """Make the links what they should be. Raises: ContainerFailed."""
        try:
            self._forget_lowered()
            if self._needed:
                self._update()
        except OSError as error:
            raise ContainerFailed(f"CDI files cannot be shown to podman in {self._target}: {error}") from error

    def lower(self, devices: Iterable[str]) -> bool:
        """Copy the files that define these devices, with the lowest version that they need. A copy that is there is of
        no use and goes, since podman has not found the device in spite of it, or because of it. Returns whether there
        is a reason to try again. Raises: ContainerFailed.
        """
        changed = False
        try:
            for file in self._defining(devices):
                copy = self._target / f"{LOWERED}{file.path.stem}.json"
                if copy.exists():
                    copy.unlink(missing_ok=True)
                    changed = True
                elif file.spec is not None and (needed := minimum_version(file.spec)) != file.spec.cdi_version:
                    make_public(self._target)
                    lowered = msgspec.structs.replace(file.spec, cdi_version=needed)
                    Disk().write(copy, msgspec.json.encode(lowered), "rebuilt", mode=FILE_MODE)
                    changed = True
        except OSError as error:
            raise ContainerFailed(f"CDI files cannot be copied for podman to {self._target}: {error}") from error
        return changed

    def explanation(self, devices: Iterable[str]) -> str:
        """Why podman may not find these devices, as the end of a sentence."""
        whys = [
            f"{file.path} needs CDI {file.spec.cdi_version}, which this podman does not know"
            if file.spec is not None
            else f"{file.path} cannot be read: {file.problem}"
            for file in self._defining(devices)
            if file.spec is None or minimum_version(file.spec) == file.spec.cdi_version
        ]
        return "".join(f"; {why}" for why in whys)

    def _defining(self, devices: Iterable[str]) -> list[SpecFile]:
        """Files of drivers, not the agent's links and copies. Also those of a version that is newer than the agent."""
        wanted, found = set(devices), []
        for file in (file for folder in self._searched for file in SpecFiles(folder, _is_of_a_driver).read()):
            spec = file.spec
            if spec is not None:
                names = frozenset(qualified_name(spec.kind, device.name) for device in spec.devices)
            else:
                try:
                    spec, names = parse_newer(file.path.read_bytes(), suffix=file.path.suffix)
                except (OSError, ValueError):
                    continue
            if not wanted.isdisjoint(names):
                found.append(SpecFile(file.path, spec, file.problem))
        return found

    def _forget_lowered(self) -> None:
        """Remove the copies of files that are gone, or have been written since."""
        for copy in self._target.glob(f"{LOWERED}*"):
            stem = copy.stem.removeprefix(LOWERED)
            originals = [folder / f"{stem}{suffix}" for folder in self._searched for suffix in SUFFIXES]
            written = [_written(path) for path in originals]
            if not any(written) or max(written) > _written(copy):
                copy.unlink(missing_ok=True)

    def _update(self) -> None:
        files = (path for path in self._folder.glob("[!.]*") if path.suffix in SUFFIXES)
        wanted = {f"{self._prefix}{path.name}": path for path in files}
        make_public(self._target)
        present = {path.name for path in self._target.glob(f"{self._prefix}*")}
        for name in present - wanted.keys():
            (self._target / name).unlink(missing_ok=True)
        for name in wanted.keys() - present:
            try:
                (self._target / name).symlink_to(wanted[name])
            except FileExistsError:
                continue  # made by another thread at the same moment


def _written(path: Path) -> int:
    """When its content was last written, in nanoseconds; 0 where there is no such file."""
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def _is_of_a_driver(name: str) -> bool:
    return not name.startswith("manciple-")


# Why `podman run` failed, in the words of a kubelet. Source: kubernetes pkg/kubelet/images/types.go,
# pkg/kubelet/kuberuntime/kuberuntime_container.go; containerd reports a process that cannot be started as exit code
# 128, reason StartError.

#: The first and the longest wait between two attempts to fetch an image, in seconds.
FIRST_WAIT, LONGEST_WAIT = 10.0, 300.0

START_ERROR_EXIT = 128
#: What the low-level runtime says; its failures come after the container has been made.
_RUNTIME = re.compile(r"\bOCI\b|^(runc|crun): |: (runc|crun): ")


def is_start_error(error: ContainerFailed) -> bool:
    """Whether the container was made and its process could not be started: that is an attempt which ended."""
    return isinstance(error, PodmanFailed) and _RUNTIME.search(str(error)) is not None


def is_absent(error: ContainerFailed) -> bool:
    """Whether podman does not have the image."""
    return isinstance(error, PodmanFailed) and "image not known" in str(error)


def explained(error: ContainerFailed, request: ContainerRequest) -> ContainerFailed:
    """The same failure with the reason that a kubelet gives."""
    if not isinstance(error, PodmanFailed):
        return error
    if is_absent(error) and request.pull_policy == "Never":
        message = f'Container image "{request.image}" is not present with pull policy of Never'
        return ContainerFailed(message, reason="ErrImageNeverPull")
    if is_absent(error) or _INVALID in str(error):
        return not_pulled(error, request)
    return error


def not_pulled(error: ContainerFailed, request: ContainerRequest) -> ContainerFailed:
    """The failure of a pull with the reason that a kubelet gives."""
    image, text = request.image, str(error)
    if _INVALID in text:
        return ContainerFailed(f'Failed to apply default image tag "{image}": {text}', reason="InvalidImageName")
    return ContainerFailed(f'Failed to pull image "{image}": {text}', reason="ErrImagePull")


_INVALID = "invalid reference format"


def refusal(backoff: Backoff, request: ContainerRequest) -> ContainerFailed:
    text = f'Back-off pulling image "{request.image}": ErrImagePull: {backoff.message}'
    return ContainerFailed(text, reason="ImagePullBackOff")


def next_backoff(last: Backoff | None, message: str, *, now: float) -> Backoff:
    wait = FIRST_WAIT if last is None else min(last.wait * 2, LONGEST_WAIT)
    return Backoff(until=now + wait, wait=wait, message=message)


# Confidential variables -----------------------------------------------------------------------------------------------

# Variables with a value from a Secret must not show in the arguments of a process. Most are in a file that podman
# reads and the agent then removes. podman reads such files line by line and interprets quotes, so values that are not
# plain text in one line go through podman's store of secrets, and are removed from it afterwards. Keys of registries
# are files as well. All are in memory (/run), accessible to the owner only; the next start removes what a crash left.


#: What podman reads from a line as it stands there.
_PLAIN_NAME, _PLAIN_VALUE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*"), re.compile(r"[!#-&(-\[\]-_a-~]*")
LONGEST_LINE = 32 * 1024
_STORED = ".stored"


class ConfidentialVariables:
    """`folder`: where the files are, in memory. `mark`: of the agent, in the names of all that is its own."""

    def __init__(self, podman: Podman, folder: Path, *, mark: str) -> None:
        self._podman = podman
        self._folder = folder
        self._prefix = f"manciple-{mark}-"

    @contextmanager
    def given(self, request: ContainerRequest) -> Iterator[tuple[str, ...]]:
        """Options of `podman run`, good within. Raises: ContainerFailed."""
        if not request.confidential:
            yield ()
            return
        values = {name: request.environment[name] for name in request.confidential}
        plain = {name: value for name, value in values.items() if _is_plain(name, value)}
        made: list[Path] = []
        try:
            yield (*self._file(request, plain, made), *self._secrets(request, values.keys() - plain.keys(), made))
        except OSError as error:
            raise ContainerFailed(f"the variables of container {request.name} cannot be given: {error}") from error
        finally:
            for path in made:
                self._remove(path)

    @contextmanager
    def key(self, request: ContainerRequest, key: PullKey | None) -> Iterator[tuple[str, ...]]:
        """Options of `podman pull`, good within. Raises: ContainerFailed."""
        if key is None:
            yield ()
            return
        made: list[Path] = []
        try:
            path = self._write(self._name(request, ".key"), key.document(), made)
            yield ("--authfile", str(path))
        except OSError as error:
            raise ContainerFailed(f"the key of {key.registry} cannot be given to podman: {error}") from error
        finally:
            for path in made:
                self._remove(path)

    def recover(self) -> None:
        """Remove what an agent that was killed left behind."""
        for path in self._folder.glob(f"{self._prefix}*"):
            self._remove(path)

    def _file(self, request: ContainerRequest, values: dict[str, str], made: list[Path]) -> Iterator[str]:
        if values:
            text = "".join(f"{name}={value}\n" for name, value in values.items())
            yield from ("--env-file", str(self._write(self._name(request, ""), text.encode(), made)))

    def _secrets(self, request: ContainerRequest, names: set[str], made: list[Path]) -> Iterator[str]:
        for variable in sorted(names):
            name = self._name(request, variable)
            path = self._write(f"{name}{_STORED}", request.environment[variable].encode(), made)
            self._podman("secret", "create", "--", name, str(path))
            yield from ("--secret", f"{name},type=env,target={variable}")

    def _name(self, request: ContainerRequest, variable: str) -> str:
        """At most 64 characters, as podman wants it."""
        identity = f"{request.pod_uid}/{request.name}/{request.attempt}/{variable}"
        return self._prefix + hashlib.sha256(identity.encode()).hexdigest()[:32]

    def _write(self, name: str, content: bytes, made: list[Path]) -> Path:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._folder / name
        path.unlink(missing_ok=True)
        made.append(path)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as stream:
            stream.write(content)
        return path

    def _remove(self, path: Path) -> None:
        if path.name.endswith(_STORED):
            with suppress(ContainerFailed):  # it may never have been made
                self._podman("secret", "rm", "--", path.name.removesuffix(_STORED))
        path.unlink(missing_ok=True)


def _is_plain(name: str, value: str) -> bool:
    return (
        _PLAIN_NAME.fullmatch(name) is not None
        and _PLAIN_VALUE.fullmatch(value) is not None
        and len(value) <= LONGEST_LINE
    )

"""What an agent is told: which server, as whom, which node, where to keep things, how much the node has."""

from __future__ import annotations

import argparse
import base64
import os
import platform
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from manciple.wire.identity import check_node_name
from nodeagent.drivers.protocol import UnhealthyEffect

HIGHEST_PORT = 65535


def node_name(text: str) -> str:
    """The type of `--node-name`: it becomes part of paths, so it must be valid before anything is written."""
    try:
        check_node_name(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return text


def machine_cpus() -> str:
    """The CPUs of this machine, as a quantity."""
    return str(os.cpu_count() or 1)


def machine_memory() -> str:
    """The memory of this machine, as a quantity."""
    return f"{os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') // 1024}Ki"


def go_architecture() -> str:
    """The machine's architecture under the name that Kubernetes uses."""
    machine = platform.machine()
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)


def machine_boot() -> str:
    """The id of this boot of the machine, "" where it has none. Source: random(4), /proc/sys/kernel/random/boot_id."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ""


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """ADDRESS:PORT to listen on; port 0 means any free one."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> ListenAddress:
        """Raises: ValueError when `text` is not ADDRESS:PORT (an IPv6 address stands in brackets)."""
        host, colon, port = text.rpartition(":")
        if not colon or not host or not port.isdecimal() or int(port) > HIGHEST_PORT:
            raise ValueError(f"{text!r} is not ADDRESS:PORT, for example 127.0.0.1:10250")
        return cls(host.strip("[]"), int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


#: The directories of the specification: what is installed with a device, and what comes and goes with its users.
CDI_DIRS = (Path("/etc/cdi"), Path("/var/run/cdi"))


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentConfig:
    """Everything an agent is told. Directories are the agent's own; two agents never share one."""

    server: str  # https://host:port
    token: Token | None = field(repr=False)  # None for one that comes by a certificate
    certificate: ClientFiles | None = None
    node_name: str
    state_dir: Path
    cdi_dir: Path
    more_cdi_dirs: tuple[Path, ...] = ()  # of others, the lowest precedence first; `cdi_dir` has the last word
    plugin_dir: Path | None = None  # where drivers behind sockets register (plugins_registry/); none are sought if None
    plugin_call_seconds: float = 45.0  # that a call to a driver behind a socket may take, as for the kubelet
    unhealthy_effect: UnhealthyEffect = "NoSchedule"  # of the taint on devices that their drivers call unhealthy
    taint_unhealthy_plugins: bool = False  # by DeviceTaintRules, where drivers behind sockets publish them themselves
    plugin_grace_seconds: float = 30.0  # that such a driver may be away before its ResourceSlices are removed
    ca_file: Path | None = None  # the CA that signed the server's certificate; the system's where None
    node_ip: str = "127.0.0.1"
    listen: ListenAddress | None = None  # where health, metrics and logs are served; nowhere if None
    labels: Mapping[str, str] = field(default_factory=dict)  # besides the well-known ones
    cpu: str = field(default_factory=machine_cpus)
    memory: str = field(default_factory=machine_memory)
    pods: int = 110
    rootfs_dirs: tuple[Path, ...] = ()  # below which a directory may be a container's image
    pids_limit: int = 2048  # processes of one container
    unsafe_sysctls: tuple[str, ...] = ()  # that pods may set besides the safe ones
    boot: str = field(default_factory=machine_boot)  # what was prepared before this boot is prepared anew
    workers: int = 4  # pods worked on at once
    lease_seconds: float = 10.0  # between renewals of the lease
    status_seconds: float = 300.0  # between reports of an unchanged node
    resync_seconds: float = 60.0  # between looks at everything though nothing was reported
    meter_seconds: float = 180.0  # between reports of what the devices' meters read


@dataclass(frozen=True, slots=True)
class ClientFiles:
    """A client's certificate and its key, PEM."""

    certificate: Path
    key: Path

    @property
    def in_one(self) -> bool:
        """Whether both stand in one file, as the agent keeps what it renews."""
        return self.certificate == self.key


@dataclass(frozen=True, slots=True)
class Access:
    """A server and an identity: a token, or a certificate. `ca_file`: the CA to trust, None for the system's."""

    server: str
    token: Token | None
    ca_file: Path | None
    certificate: ClientFiles | None = None


def read_kubeconfig(path: Path, *, ca_target: Path) -> Access:
    """The access of the current context. An inline CA is written to `ca_target`.

    Raises: ValueError naming what is missing in the file; OSError.
    """
    document = yaml.safe_load(path.read_text())
    if not isinstance(document, dict):
        raise TypeError(f"{path} is not a kubeconfig")
    context = _named(document, "contexts", str(document.get("current-context", "")), path)["context"]
    cluster = _named(document, "clusters", str(context.get("cluster", "")), path)["cluster"]
    user = _named(document, "users", str(context.get("user", "")), path)["user"]
    # As client-go has it: the file counts, where there are both, and stands beside the kubeconfig.
    token: Token | None = None
    if user.get("tokenFile"):
        token = TokenFile((path.parent / str(user["tokenFile"])).resolve())
    elif user.get("token"):
        token = str(user["token"])
    certificate = _client_files(user, path, ca_target.parent)
    if token is None and certificate is None:
        raise ValueError(f"{path}: user {context.get('user')} has no token and no certificate")
    return Access(str(cluster["server"]), token, _ca_file(cluster, path, ca_target), certificate)


#: What a container has of its pod's service account.
ACCOUNT_DIR = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def access_of_pod(environment: Mapping[str, str], folder: Path = ACCOUNT_DIR) -> Access | None:
    """That of a program in a container, as client-go finds it; None outside of one. Raises: ValueError, OSError."""
    host, port = environment.get("KUBERNETES_SERVICE_HOST"), environment.get("KUBERNETES_SERVICE_PORT")
    if not host or not port or not (folder / "token").exists():
        return None
    return Access(
        f"https://{f'[{host}]' if ':' in host else host}:{port}", TokenFile(folder / "token"), folder / "ca.crt"
    )


def _named(document: dict[str, Any], section: str, name: str, path: Path) -> dict[str, Any]:
    found = next((entry for entry in document.get(section) or () if entry.get("name") == name), None)
    if found is None:
        raise ValueError(f'{path}: "{name}" is not among its {section}')
    return dict(found)


def _client_files(user: dict[str, Any], path: Path, folder: Path) -> ClientFiles | None:
    """What is inline is written into `folder`. Raises: ValueError for a certificate without its key; OSError."""
    files = {}
    for name in ("client-certificate", "client-key"):
        if inline := user.get(f"{name}-data"):
            files[name] = folder / f"{name}.pem"
            _keep(files[name], base64.b64decode(inline))
        elif named := user.get(name):
            files[name] = (path.parent / str(named)).resolve()
    if len(files) == 1:
        raise ValueError(f"{path}: {next(iter(files))} is given alone; a certificate and its key belong together")
    return ClientFiles(files["client-certificate"], files["client-key"]) if files else None


def _keep(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Written only where it is not there yet: the agent starts on a full disk, too. Whole, or not at all."""
    if path.is_file() and path.read_bytes() == content:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.draft")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)
    draft.replace(path)


def _ca_file(cluster: dict[str, Any], path: Path, target: Path) -> Path | None:
    if inline := cluster.get("certificate-authority-data"):
        _keep(target, base64.b64decode(inline), 0o644)
        return target
    named = cluster.get("certificate-authority")
    return (path.parent / str(named)).resolve() if named else None


# Bearer tokens. One in a file may be renewed: in a pod of Kubernetes kubelet does so before the token's hour is over.
# Source: client-go transport/token_source.go.

#: A token, or what gives it anew for each request.
Token = str | Callable[[], str]


class TokenFile:
    """Called, it is the token as the file has it now. Thread-safe."""

    def __init__(self, path: Path) -> None:
        """Raises: OSError; ValueError for a file without a token."""
        self._path = path
        self._last = path.read_text().strip()
        if not self._last:
            raise ValueError(f"{path} holds no token")

    def __call__(self) -> str:
        """A file that is away, or empty, leaves what it said last: it may be written just now."""
        with suppress(OSError, UnicodeDecodeError):
            self._last = self._path.read_text().strip() or self._last
        return self._last

"""What an agent is told: which server, which node, where to keep things, how much the node has."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from nodeagent.tokens import Token

HIGHEST_PORT = 65535


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
    token: Token = field(repr=False)
    node_name: str
    state_dir: Path
    cdi_dir: Path
    more_cdi_dirs: tuple[Path, ...] = ()  # of others, the lowest precedence first; `cdi_dir` has the last word
    plugin_dir: Path | None = None  # where drivers behind sockets register (plugins_registry/); none are sought if None
    plugin_call_seconds: float = 45.0  # that a call to a driver behind a socket may take, as for the kubelet
    plugin_grace_seconds: float = 30.0  # that such a driver may be away before its ResourceSlices are removed
    ca_file: Path | None = None  # the CA that signed the server's certificate; the system's where None
    node_ip: str = "127.0.0.1"
    listen: ListenAddress | None = None  # where health, metrics and logs are served; nowhere if None
    labels: Mapping[str, str] = field(default_factory=dict)  # besides the well-known ones
    cpu: str = field(default_factory=machine_cpus)
    memory: str = field(default_factory=machine_memory)
    pods: int = 110
    boot: str = field(default_factory=machine_boot)  # what was prepared before this boot is prepared anew
    workers: int = 4  # pods worked on at once
    lease_seconds: float = 10.0  # between renewals of the lease
    status_seconds: float = 300.0  # between reports of an unchanged node
    resync_seconds: float = 60.0  # between looks at everything though nothing was reported

"""The command lines of the agent and of served drivers: their options, and the configuration that follows from them."""

from __future__ import annotations

import argparse
import os
import signal
import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from inventory.kinds import gates
from inventory.kinds.node_rules import AGENT_LABELS, AGENT_PREFIXES, agent_may_label
from manciple import layout
from manciple.telemetry import logs
from nodeagent.config import (
    CDI_DIRS,
    Access,
    AgentConfig,
    ListenAddress,
    TokenFile,
    access_of_pod,
    machine_cpus,
    machine_memory,
    node_name,
    read_kubeconfig,
)
from nodeagent.drivers.protocol import UNHEALTHY_EFFECTS
from nodeagent.drivers.simulated import DEFAULT_COUNT, DEFAULT_NAME
from nodeagent.node.catalog import MODULES, RUNTIMES, DriverEntry, read_drivers_file

#: As --driver: no driver of this process, only those behind sockets.
NO_DRIVER = "none"


def parser() -> argparse.ArgumentParser:
    """The agent's command line, documented by `--help`."""
    command = argparse.ArgumentParser(
        prog=f"{layout.NODE_COMMAND} run",
        description="Runs the agent of one node.",
        epilog=f"`{layout.NODE_COMMAND} join URL --token TOKEN` makes this machine a node: see its --help.",
    )
    command.add_argument(
        "--node-name", type=node_name, required=True, metavar="NAME", help="the node that this agent runs"
    )
    add_server(command)
    _add_node(command.add_argument_group("the node"))
    _add_devices(command.add_argument_group("devices"))
    command.add_argument(
        "--feature-gates",
        type=feature_gates,
        default=None,
        metavar="NAME=BOOL,...",
        help="as MANCIPLE_FEATURE_GATES of the control plane; the agent heeds DynamicResourceAllocation",
    )
    command.add_argument("--log-level", default="INFO", help="DEBUG, INFO, WARNING or ERROR (default: %(default)s)")
    where = "where traces of pods are sent, OTLP over HTTP; needs the packages of the extra traces"
    command.add_argument("--traces", default="", metavar="URL", help=f"{where} (default: nowhere)")
    part = "for which fraction of pods, 0 to 1; the same for all processes (default: %(default)g)"
    command.add_argument("--traces-part", type=float, default=1.0, metavar="PART", help=part)
    lines = "lines of text, or of JSON with the object of each (default: %(default)s)"
    command.add_argument("--log-format", choices=logs.FORMATS, default="text", help=lines)
    return command


def feature_gates(text: str) -> dict[str, bool]:
    """The type of `--feature-gates`."""
    try:
        return gates.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def add_server(command: argparse.ArgumentParser) -> None:
    """Options for the address of the API server and the credentials."""
    server = command.add_argument_group(
        "the API server: a kubeconfig, or its address and a token (in a pod: its service account)"
    )
    file = partial(server.add_argument, type=Path, metavar="FILE")
    file("--kubeconfig", help="take server, CA and token or certificate from its current context")
    server.add_argument("--server", metavar="URL", help="https://host:port")
    file("--token-file", help="holds the bearer token, read again for each request")
    file("--ca-file", help="the CA that signed the server's certificate (PEM)")


def access(options: argparse.Namespace, *, ca_folder: Path) -> Access:
    """What the options of `add_server` say. Raises: ValueError, OSError with what to correct."""
    if options.kubeconfig is not None:
        return read_kubeconfig(options.kubeconfig, ca_target=ca_folder / "ca.crt")
    if options.server is None and options.token_file is None and (found := access_of_pod(os.environ)) is not None:
        return found
    if options.server is None or options.token_file is None:
        raise ValueError("give --kubeconfig, or --server and --token-file")
    return Access(options.server, TokenFile(options.token_file.resolve()), options.ca_file)


def _add_node(node: argparse._ArgumentGroup) -> None:
    add, folder = node.add_argument, partial(node.add_argument, type=Path, metavar="DIR")
    searched = " and ".join(map(str, CDI_DIRS))
    looks = "more CDI directories for the simulated runtime, lowest precedence first; repeatable"
    served = "where health, metrics, logs and sessions of containers are served, '' for nowhere"
    folder("--state-dir", help="checkpoint and containers (default: var/nodes/NAME)")
    folder("--cdi-dir", help="where CDI files are written (default: var/cdi/NAME)")
    folder("--more-cdi-dir", action="append", help=f"{looks} (default: {searched})")
    add("--node-ip", default="127.0.0.1", metavar="IP", help="the address it reports (default: %(default)s)")
    add("--listen", metavar="ADDRESS:PORT", help=f"{served} (default: the node's address, any free port)")
    add("--cpu", default=machine_cpus(), help="CPU capacity of the node (default: the machine's)")
    add("--memory", default=machine_memory(), help="memory capacity of the node (default: the machine's)")
    add("--pods", type=int, default=110, help="pods to accept (default: %(default)s)")
    renewals = "seconds between renewals of the node's Lease (default: %(default)g)"
    add("--lease-seconds", type=float, default=10.0, metavar="S", help=renewals)
    add("--label", action="append", default=[], metavar="KEY=VALUE", help="a label of the Node; repeatable")
    _add_runtime(node)


def _add_runtime(node: argparse._ArgumentGroup) -> None:
    add, names = node.add_argument, sorted(RUNTIMES)
    add("--runtime", choices=names, default="simulated", help="what runs containers (default: %(default)s)")
    images = "a directory whose subdirectories may be images (rootfs:/DIR/...); repeatable (default: none)"
    add("--rootfs-dir", action="append", default=[], type=Path, metavar="DIR", help=images)
    add("--pids-limit", type=int, default=2048, metavar="N", help="processes of a container (default: %(default)s)")
    unsafe = "a kernel parameter that pods may set in addition to the safe ones; repeatable"
    add("--allow-unsafe-sysctl", action="append", default=[], metavar="NAME", help=unsafe)


def _add_devices(devices: argparse._ArgumentGroup) -> None:
    add, seconds = devices.add_argument, partial(devices.add_argument, type=float, metavar="S")
    which = f"a driver to run, one of {', '.join(MODULES)}, or module:Class; none runs none; repeatable"
    add("--driver", action="append", metavar="NAME", help=f"{which} (default: sim; none where --plugin-dir is given)")
    add("--drivers-file", type=Path, metavar="FILE", help="more drivers, with their settings (YAML)")
    add("--gpus", type=int, default=DEFAULT_COUNT, help="GPUs of the sim driver (default: %(default)s)")
    add("--driver-name", default=DEFAULT_NAME, metavar="NAME", help="of the sim driver (default: %(default)s)")
    ill = "the effect of the taint on unhealthy devices (default: %(default)s)"
    add("--unhealthy-effect", choices=UNHEALTHY_EFFECTS, default="NoSchedule", help=ill)
    others = "taint those of drivers behind sockets too, by DeviceTaintRules (nodes need the right)"
    add("--taint-unhealthy-plugins", action="store_true", help=others)
    meet = "where drivers behind sockets register, in plugins_registry/"
    add("--plugin-dir", type=Path, metavar="DIR", help=f"{meet} (default: nowhere)")
    call = "the timeout of a call to such a driver (default: %(default)g)"
    seconds("--plugin-call-seconds", default=45.0, help=call)
    meters = "seconds between reports of utilization, memory, temperature and power, at least 15 (default: %(default)g)"
    seconds("--meter-seconds", default=180.0, help=meters)
    grace = "seconds without such a driver until its ResourceSlices are removed (default: %(default)g)"
    seconds("--plugin-grace-seconds", default=30.0, help=grace)


def configuration(options: argparse.Namespace) -> AgentConfig:
    """What the options say. Raises: ValueError, OSError with what to correct."""
    state_dir = options.state_dir or Path("var/nodes") / options.node_name
    api = access(options, ca_folder=state_dir)
    return AgentConfig(
        server=api.server,
        token=api.token,
        certificate=api.certificate,
        ca_file=api.ca_file,
        node_name=options.node_name,
        state_dir=state_dir.resolve(),
        cdi_dir=(options.cdi_dir or Path("var/cdi") / options.node_name).resolve(),
        more_cdi_dirs=tuple(options.more_cdi_dir or CDI_DIRS),
        node_ip=options.node_ip,
        listen=_listen(options),
        labels=_labels(options.label),
        cpu=options.cpu,
        memory=options.memory,
        pods=options.pods,
        lease_seconds=options.lease_seconds,
        rootfs_dirs=tuple(folder.resolve() for folder in options.rootfs_dir),
        pids_limit=options.pids_limit,
        unsafe_sysctls=tuple(options.allow_unsafe_sysctl),
        plugin_dir=options.plugin_dir.resolve() if options.plugin_dir else None,
        meter_seconds=max(options.meter_seconds, 15.0),
        plugin_call_seconds=options.plugin_call_seconds,
        plugin_grace_seconds=options.plugin_grace_seconds,
        unhealthy_effect=options.unhealthy_effect,
        taint_unhealthy_plugins=options.taint_unhealthy_plugins,
    )


def _labels(given: Sequence[str]) -> dict[str, str]:
    """Raises: ValueError for labels that no API server lets an agent set."""
    labels = dict(label.partition("=")[::2] for label in given)
    if refused := sorted(key for key in labels if not agent_may_label(key)):
        raise ValueError(
            f"--label: an agent may not set {', '.join(refused)}; of those below kubernetes.io and k8s.io it may set "
            f"{', '.join(sorted(AGENT_LABELS))} and any below {' and '.join(AGENT_PREFIXES)}; others: kubectl label"
        )
    return labels


def driver_entries(options: argparse.Namespace) -> list[DriverEntry]:
    """The drivers to run. Raises: ValueError, OSError with what to correct."""
    named = dict.fromkeys(options.driver or ())
    entries = [_entry(name, options) for name in named if name != NO_DRIVER]
    if options.drivers_file is not None:
        entries += read_drivers_file(options.drivers_file)
    elif not named and options.plugin_dir is None:
        entries = [_entry("sim", options)]
    return entries


def _entry(name: str, options: argparse.Namespace) -> DriverEntry:
    settings = {"name": options.driver_name, "gpus": options.gpus} if name == "sim" else {}
    return DriverEntry(driver=name, settings=settings)


def _listen(options: argparse.Namespace) -> ListenAddress | None:
    if options.listen is None:
        return ListenAddress(options.node_ip, 0)
    return ListenAddress.parse(options.listen) if options.listen else None


# Turns SIGINT and SIGTERM into an event, from wherever the process is at. A Python signal handler runs in the main
# thread between two of its steps, and that thread may just then hold the lock inside the very event that it waits for:
# a handler that sets the event would wait for itself for ever. So the handler does nothing; the signal's number goes
# down a pipe (written by the interpreter's own C handler), and a thread that reads the pipe sets the event.

NUMBERS = (signal.SIGINT, signal.SIGTERM)


def stop_on_signals() -> threading.Event:
    """An event that is set by SIGINT and SIGTERM. Call once, in the main thread."""
    stop = threading.Event()
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    for number in NUMBERS:
        signal.signal(number, lambda *_: None)
    threading.Thread(target=_wait, args=(reading, stop), name="signals", daemon=True).start()
    return stop


def _wait(reading: int, stop: threading.Event) -> None:
    """Other signals that Python handles come down the pipe, too."""
    while not set(NUMBERS) & set(os.read(reading, 64)):
        pass
    stop.set()

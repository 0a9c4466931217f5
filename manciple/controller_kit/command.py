"""`python -m manciple.controller_kit MODULE:CLASS`: runs the controller of a driver until SIGINT or SIGTERM."""

from __future__ import annotations

import argparse
import importlib
import os
import socket
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from manciple.controller_kit.controller import DriverController
from manciple.controller_kit.driver import ControllerDriver
from manciple.controller_kit.forms import FORMS
from manciple.controller_kit.leader import LeaderElector
from manciple.controller_kit.metrics import ControllerMetrics
from manciple.telemetry import logs
from manciple.telemetry.bounded_server import serve_metrics
from nodeagent.api.client import Client
from nodeagent.config import ListenAddress
from nodeagent.options import access, add_server, stop_on_signals


def parser() -> argparse.ArgumentParser:
    """The command line, documented by `--help`."""
    command = argparse.ArgumentParser(
        prog="python -m manciple.controller_kit", description="Runs the controller of a driver."
    )
    add = command.add_argument
    add("driver", metavar="MODULE:CLASS", help="a ControllerDriver; it is called with the client")
    add_server(command)
    only = "of resource.k8s.io whose claims it allocates; repeatable (default: all)"
    add("--version", action="append", choices=tuple(FORMS), help=only)
    add("--workers", type=int, default=1, metavar="N", help="threads that call the driver (default: %(default)s)")
    alone = "work only while holding the Lease that is named after the driver, in --namespace"
    add("--leader-elect", action="store_true", help=alone)
    add("--namespace", default="default", metavar="NAME", help="of the Lease (default: %(default)s)")
    add("--listen", metavar="ADDRESS:PORT", help="where /metrics is served (default: nowhere)")
    add("--log-level", default="INFO", help="DEBUG, INFO, WARNING or ERROR (default: %(default)s)")
    add(
        "--log-format",
        choices=logs.FORMATS,
        default="text",
        help="lines of text, or of JSON with the object of each (default: %(default)s)",
    )
    return command


def create_driver(name: str, client: Client) -> ControllerDriver:
    """Raises: ValueError saying what to correct."""
    module, colon, attribute = name.partition(":")
    try:
        made = getattr(importlib.import_module(module), attribute)(client) if colon else None
    except (ImportError, AttributeError) as error:
        raise ValueError(f"{name}: {error}") from error
    if not isinstance(made, ControllerDriver):
        raise ValueError(f"{name}: give MODULE:CLASS of a ControllerDriver")  # noqa: TRY004 - every mistake is the same kind here
    return made


def run(options: argparse.Namespace, stop: threading.Event) -> None:
    """Until `stop` is set. Raises: ValueError, OSError saying what to correct."""
    with tempfile.TemporaryDirectory() as folder:
        told = access(options, ca_folder=Path(folder))
        counting: list[ControllerMetrics] = []
        client = Client(
            told.server,
            token=told.token,
            certificate=told.certificate,
            ca_file=told.ca_file,
            user_agent="manciple-driver-controller",
            requested=lambda method, code: counting[0].requested(method, code) if counting else None,
        )
    driver = create_driver(options.driver, client)
    metrics = ControllerMetrics(driver.name, host=urlsplit(told.server).netloc)
    counting.append(metrics)
    if options.listen:
        address = ListenAddress.parse(options.listen)
        serve_metrics(address.host, address.port, metrics.registry)
    versions = tuple(options.version or FORMS)
    controller = DriverController(driver, client, versions=versions, workers=options.workers, metrics=metrics)
    try:
        _elected(controller, client, driver.name, options, stop)
    finally:
        client.close()


def _elected(
    controller: DriverController, client: Client, name: str, options: argparse.Namespace, stop: threading.Event
) -> None:
    def lead(over: threading.Event) -> None:
        controller.metrics.leads(now=True)
        try:
            controller.run(over)
        finally:
            controller.metrics.leads(now=False)

    if not options.leader_elect:
        lead(stop)
        return
    identity = f"{socket.gethostname()}_{os.getpid()}"
    LeaderElector(client, namespace=options.namespace, name=name, identity=identity).run(lead, stop)


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    logs.begin(level=options.log_level, format_=options.log_format)
    try:
        run(options, stop_on_signals())
    except (ValueError, TypeError, OSError) as error:
        print(f"manciple.controller_kit: {error}", file=sys.stderr)
        return 2
    return 0

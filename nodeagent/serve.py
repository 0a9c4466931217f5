"""`manciple-agent driver serve`, `python -m nodeagent.serve`: serves a driver written in Python to a kubelet, or to any
agent that speaks its plugin protocol, until SIGINT or SIGTERM."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    # Python's own handler raises KeyboardInterrupt wherever an import is at, and some places there swallow it.
    signal.signal(signal.SIGINT, signal.SIG_DFL)

import yaml

from manciple import layout
from manciple.telemetry import logs
from nodeagent.api.client import Client
from nodeagent.config import node_name
from nodeagent.drivers.protocol import UNHEALTHY_EFFECTS
from nodeagent.node.catalog import MODULES, DriverEntry, close_drivers, create_driver
from nodeagent.options import access, add_server, stop_on_signals
from nodeagent.serving.plugin import PluginConfig, ServedPlugin
from nodeagent.serving.sockets import CDI_DIR, PLUGINS_DIR, REGISTRAR_DIR


def parser() -> argparse.ArgumentParser:
    """The command line, documented by `--help`."""
    command = argparse.ArgumentParser(
        prog=f"{layout.NODE_COMMAND} driver serve", description="Serves a driver to the kubelet of this node."
    )
    add = command.add_argument
    shipped = ", ".join(MODULES)
    add("driver", metavar="MODULE:CLASS", help=f"the driver, or one of those that ship: {shipped}")
    add("--node-name", type=node_name, required=True, metavar="NAME", help="the node whose devices it publishes")
    add("--settings", type=Path, metavar="FILE", help="the driver's settings (YAML)")
    add_server(command)
    directories = command.add_argument_group("the node's directories")
    folder = partial(directories.add_argument, type=Path, metavar="DIR")
    folder("--registrar-dir", default=REGISTRAR_DIR, help="where the kubelet looks for drivers (default: %(default)s)")
    folder("--plugin-dir", help=f"the driver's own (default: {PLUGINS_DIR}/DRIVER)")
    folder("--cdi-dir", default=CDI_DIR, help="where CDI files go (default: %(default)s)")
    rolling = "of the pod that it runs in: a second instance may take over while this one runs (Kubernetes 1.33)"
    add("--rolling-update", default="", metavar="UID", help=rolling)
    parallel = "call the driver for several pods at once (default: one after another)"
    add("--parallel", action="store_true", help=parallel)
    ill = "the effect of the taint on devices that the driver reports unhealthy (default: %(default)s)"
    add("--unhealthy-effect", choices=UNHEALTHY_EFFECTS, default="NoSchedule", help=ill)
    add("--log-level", default="INFO", help="DEBUG, INFO, WARNING or ERROR (default: %(default)s)")
    add(
        "--log-format",
        choices=logs.FORMATS,
        default="text",
        help="lines of text, or of JSON with the object of each (default: %(default)s)",
    )
    return command


def read_settings(path: Path | None) -> dict[str, Any]:
    """Raises: ValueError, OSError saying what to correct."""
    if path is None:
        return {}
    try:
        settings = yaml.safe_load(path.read_text())
    except yaml.YAMLError as error:
        raise ValueError(f"{path}: {error}") from error
    if not isinstance(settings, dict):
        raise ValueError(f"{path}: must be a map of settings")  # noqa: TRY004 - every mistake is the same kind here
    return settings


def configuration(options: argparse.Namespace) -> PluginConfig:
    """What the options say; paths absolute, since the kubelet reads them too."""
    return PluginConfig(
        node_name=options.node_name,
        registrar_dir=options.registrar_dir.resolve(),
        plugin_dir=options.plugin_dir.resolve() if options.plugin_dir else None,
        cdi_dir=options.cdi_dir.resolve(),
        rolling_update=options.rolling_update,
        serialize=not options.parallel,
        unhealthy_effect=options.unhealthy_effect,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    os.umask(0o077)
    options = parser().parse_args(arguments)
    logs.begin(level=options.log_level, format_=options.log_format)
    stop = stop_on_signals()
    try:
        driver = create_driver(
            DriverEntry(driver=options.driver, settings=read_settings(options.settings)), node_name=options.node_name
        )
        with tempfile.TemporaryDirectory() as folder:
            told = access(options, ca_folder=Path(folder))
            client = Client(
                told.server,
                token=told.token,
                certificate=told.certificate,
                ca_file=told.ca_file,
                user_agent="manciple-driver",
            )
        try:
            ServedPlugin(driver, configuration(options), client).run(stop)
        finally:
            close_drivers([driver])
    except (ValueError, TypeError, OSError) as error:
        print(f"nodeagent.serve: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""`manciple devices`: the devices of a cluster that a kubeconfig leads to, who holds them, and what is free."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence

from manciple.mirror import command
from manciple.mirror.sources import DEVICES


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="manciple devices",
        description="The devices of a Kubernetes cluster, their holders, and what is free by class and model.",
    )
    made.add_argument("--class", dest="device_class", default="", metavar="NAME", help="only this class")
    made.add_argument("--node", default="", metavar="NAME", help="only this node")
    made.add_argument("--no-headers", action="store_true", help="only lines of devices")
    command.add_options(made, formats=("wide", "json"))
    return made


def main(arguments: Sequence[str]) -> int:
    options = parser().parse_args(arguments)

    def answer() -> str:
        access = command.access_of(options)
        namespace = options.namespace or access.namespace
        found = command.read(access, DEVICES, namespace=namespace, timeout=options.request_timeout)
        from manciple.mirror import device_table  # noqa: PLC0415 - Django is set up by now

        table = device_table.read(found, device_class=options.device_class, node=options.node)
        if options.output == "json":
            return json.dumps(table.document(), indent=2)
        return "\n".join(table.lines(wide=options.output == "wide", headers=not options.no_headers))

    return command.run(answer, options)

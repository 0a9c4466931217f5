"""Runs the agent of one node until SIGINT or SIGTERM."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from inventory.kinds import gates
from manciple.telemetry import logs, traces
from nodeagent.agent import Agent
from nodeagent.failures import ListenFailed
from nodeagent.node.catalog import close_drivers, create_drivers, create_runtime
from nodeagent.options import configuration, driver_entries, parser, stop_on_signals


def main(arguments: Sequence[str]) -> int:
    options = parser().parse_args(arguments)
    if options.feature_gates is not None:
        gates.use(options.feature_gates)
    logs.begin(level=options.log_level, format_=options.log_format)
    try:
        if options.traces:
            traces.begin("manciple-agent", options.traces, part=options.traces_part)
        config = configuration(options)
        drivers = create_drivers(driver_entries(options), node_name=config.node_name)
        runtime = create_runtime(options.runtime, config)
    except (ValueError, TypeError, OSError, traces.SdkMissing) as error:
        print(f"nodeagent: {error}", file=sys.stderr)
        return 2
    try:
        Agent(config, drivers, runtime=runtime).run(stop_on_signals())
    except ListenFailed as error:
        print(f"nodeagent: {error}", file=sys.stderr)
        return 2
    finally:
        close_drivers(drivers)
        traces.end()
    return 0

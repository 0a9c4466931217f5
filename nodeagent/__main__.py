"""`python -m nodeagent`: runs the agent of one node until SIGINT or SIGTERM; with `join`, makes the machine a node."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence

if __name__ == "__main__":
    # Python's own handler raises KeyboardInterrupt wherever an import is at, and some places there swallow it.
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from inventory.kinds import gates
from manciple.telemetry import logs, traces
from nodeagent.agent import Agent
from nodeagent.failures import ListenFailed
from nodeagent.node import joining
from nodeagent.node.catalog import close_drivers, create_drivers, create_runtime
from nodeagent.options import configuration, driver_entries, parser, stop_on_signals


def main(arguments: Sequence[str] | None = None) -> int:
    os.umask(0o077)  # what drivers, runtimes and containers read gets its mode where it is written
    given = sys.argv[1:] if arguments is None else list(arguments)
    if given[:1] == ["join"]:
        return joining.main(given[1:])
    options = parser().parse_args(given)
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


if __name__ == "__main__":
    sys.exit(main())

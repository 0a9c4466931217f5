"""How steering is started, as options of `manciple mirror`."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from datetime import timedelta

from manciple.mirror.command import seconds
from manciple.mirror.steering.names import GATE, LABEL, LABEL_VALUE, TIME_LIMIT


@dataclass(frozen=True, slots=True)
class SteeringOptions:
    """limit: how long a pod waits for a node, from its creation."""

    is_on: bool
    limit: timedelta

    @classmethod
    def of(cls, options: argparse.Namespace) -> SteeringOptions:
        return cls(options.steer, timedelta(seconds=options.steer_limit))


def add_options(command: argparse.ArgumentParser) -> None:
    steering = command.add_argument_group("steering")
    steering.add_argument(
        "--steer",
        action="store_true",
        help=f"choose nodes for pods with the label {LABEL}={LABEL_VALUE} and the gate {GATE}",
    )
    steering.add_argument(
        "--steer-limit",
        type=seconds,
        default=TIME_LIMIT,
        metavar="SECONDS",
        help=f"age of a pod that loses the gate without a node (default: {TIME_LIMIT:.0f})",
    )

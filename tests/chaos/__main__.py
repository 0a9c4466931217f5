"""`python -m tests.chaos --minutes 2 --seed 1`: one storm over an installation of its own; exits with 1 on a violation.

The seed draws which fault begins when and how long it lasts, and what each client wishes; when requests meet whom is
the machine's doing. `--without delete,skew` leaves faults out by their first word, `--only kill` all others: to find
out which one it was.
"""

from __future__ import annotations

import argparse
import os
import resource
import signal
import sys
import tempfile
from pathlib import Path
from typing import NoReturn

from tests.chaos import embedded
from tests.chaos import field as production
from tests.chaos.faults import Faults
from tests.chaos.field import Field
from tests.chaos.verdict import Plan, Verdict, Weather, keep
from tests.e2e.nursery import NURSERY


def main() -> int:
    """See the module's docstring."""
    options = _options()
    signal.signal(signal.SIGTERM, _interrupt)
    plan = Plan(options.seed, options.minutes * 60, options.pause, limits=options.limits)
    prepared = embedded.prepared if options.mode == "embedded" else production.prepared
    with tempfile.TemporaryDirectory(prefix="manciple-chaos-") as home:
        try:
            with prepared(Path(home)) as field:
                field.faults = _wanted(field.faults, options)
                verdict = Weather(field, plan, (lambda _: None) if options.quiet else _say).pass_over()
                if verdict.violations and options.keep:
                    keep(field, options.keep / f"seed-{options.seed}")
        finally:
            NURSERY.end()
    _tell(verdict, field, plan)
    return 1 if verdict.violations else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--mode", choices=("production", "embedded"), default="production")
    parser.add_argument(
        "--limits", action="store_true", help="people run into limits, and an oracle adds everything up"
    )
    parser.add_argument("--pause", type=float, default=1.0, help="seconds from one fault to the next, in the mean")
    parser.add_argument("--only", default="", help="first words of the faults that may happen, separated by commas")
    parser.add_argument("--without", default="", help="first words of faults that may not")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="where logs are put after a violation")
    parser.add_argument("--quiet", action="store_true", help="only what is found")
    return parser.parse_args()


def _interrupt(*_signal: object) -> NoReturn:
    raise KeyboardInterrupt


def _wanted(faults: Faults, options: argparse.Namespace) -> Faults:
    """Exits where no fault is left, as after a slip of the pen: a storm without faults would find nothing."""
    words = {name: name.split(maxsplit=1)[0] for name in faults}
    only = set(options.only.split(",") if options.only else words.values())
    without = set(options.without.split(","))
    found = {name: one for name, one in faults.items() if words[name] in only and words[name] not in without}
    if not found:
        sys.exit(f"no fault is left; they begin with {', '.join(sorted(set(words.values())))}")
    return found


def _say(line: str) -> None:
    print(line, flush=True)


def _tell(verdict: Verdict, field: Field, plan: Plan) -> None:
    used = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime + resource.getrusage(resource.RUSAGE_SELF).ru_utime
    print(f"-- seed {plan.seed}, {plan.seconds:.0f} s, load average {os.getloadavg()[0]:.1f}, {used:.0f} s of CPU")
    for name, figure in verdict.figures.items():
        print(f"{name}: {figure}")
    for line in field.missing:
        print(f"not tried: {line}")
    for sentence in verdict.violations:
        print(f"VIOLATED {sentence}")
    print("no violation" if not verdict.violations else f"{len(verdict.violations)} violations")


if __name__ == "__main__":
    sys.exit(main())

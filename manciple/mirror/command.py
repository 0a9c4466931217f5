"""What `manciple why`, `devices` and `mirror` have in common: kubectl's options, reading the cluster, failures.

The lists are read by threads while Django is set up, and stored as they come: the first is waiting, the others work.
"""

from __future__ import annotations

import argparse
import math
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus

from manciple.mirror import credentials, kubeconfig, listing, throwaway
from manciple.mirror.client import PARALLEL, READ_TIMEOUT, Remote
from manciple.mirror.failures import RemoteFailure
from manciple.mirror.kubeconfig import Access, Choice
from manciple.mirror.listing import Found, Wanted
from manciple.mirror.sources import Source

#: Exit status of what could not be answered.
FAILED = 1


def add_options(command: argparse.ArgumentParser, *, formats: Sequence[str] = ()) -> None:
    """As kubectl has them; it documents them. formats: of what is printed."""
    kubectl = command.add_argument_group("kubectl's options")
    for option in ("--kubeconfig", "--context", "--cluster", "--user"):
        kubectl.add_argument(option, default="")
    kubectl.add_argument("-n", "--namespace", default="")
    kubectl.add_argument("--as", dest="acting_as", default="", metavar="USER")
    kubectl.add_argument("--as-group", dest="acting_groups", action="append", default=[], metavar="GROUP")
    kubectl.add_argument("--request-timeout", type=seconds, default=READ_TIMEOUT, metavar="SECONDS")
    if formats:
        command.add_argument("-o", "--output", choices=formats, default="")


def seconds(text: str) -> float:
    """`5`, `5s`: as kubectl takes them. Raises: ArgumentTypeError."""
    try:
        value = float(text.removesuffix("s"))
    except ValueError:
        value = 0.0
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f'"{text}" is not a positive number of seconds, such as 5 or 5s')
    return value


def choice_of(options: argparse.Namespace) -> Choice:
    return Choice(
        kubeconfig=options.kubeconfig,
        context=options.context,
        cluster=options.cluster,
        user=options.user,
        acting_as=options.acting_as,
        acting_groups=tuple(options.acting_groups),
    )


def access_of(options: argparse.Namespace) -> Access:
    """Raises: RemoteFailure."""
    return kubeconfig.read(choice_of(options))


def read(
    access: Access, sources: Sequence[Source], *, namespace: str, timeout: float, wanted: Wanted | None = None
) -> Found:
    """Afterwards Django is set up, and the store of this process has what was found. Raises: RemoteFailure."""
    remote = Remote(credentials.complete(access), timeout=timeout)
    try:
        with ThreadPoolExecutor(PARALLEL, thread_name_prefix="list") as pool:
            beginning = pool.submit(listing.begin, pool, remote, sources, namespace=namespace, wanted=wanted)
            throwaway.prepare()
            found = beginning.result()
            throwaway.fill(found)
            return found
    finally:
        remote.close()


def run(answer: Callable[[], str], options: argparse.Namespace) -> int:
    """Prints the answer; returns the exit status. Whoever reads it may stop before its end, as `head` does."""
    status = 0
    try:
        print(printable(answer()), flush=True)
    except RemoteFailure as failure:
        tell(failure, options)
        status = FAILED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes it once more
    throwaway.end(status)
    return status


def tell(failure: RemoteFailure, options: argparse.Namespace, *, whatever: bool = False) -> None:
    """On stderr; where the server is out of reach, does not know the user, or for whatever reason, also how to find out
    whether it is so for kubectl.
    """
    print(f"error: {printable(str(failure))}", file=sys.stderr)
    if whatever or failure.unreachable or failure.code == HTTPStatus.UNAUTHORIZED:
        chosen = "".join(
            f" --{name} {shlex.quote(value)}" for name in ("kubeconfig", "context") if (value := getattr(options, name))
        )
        print(f"Manciple reads what kubectl reads: try `kubectl{chosen} get nodes`", file=sys.stderr)


def printable(text: str) -> str:
    """Without what would control the terminal: messages and names are others'."""
    return "".join(one if one == "\n" or one.isprintable() else " " for one in text)

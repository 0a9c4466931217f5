"""`manciple why pod NS/NAME`: why a pod waits, in a cluster that a kubeconfig leads to. Nothing is kept."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence

from manciple.mirror import command
from manciple.mirror.failures import RemoteFailure
from manciple.mirror.listing import Wanted
from manciple.mirror.sources import CLAIM, POD, WHY, Source

_NAMES = {
    **dict.fromkeys(("pod", "pods", "po"), POD),
    **dict.fromkeys(("claim", "claims", "resourceclaim", "resourceclaims", CLAIM.resource), CLAIM),
}


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="manciple why",
        description="Why a pod or a ResourceClaim waits in a Kubernetes cluster, and what would start it.",
    )
    made.add_argument("object", nargs="+", metavar="pod|claim NAME", help="NAMESPACE/NAME, or NAME")
    command.add_options(made, formats=("json",))
    return made


def main(arguments: Sequence[str]) -> int:
    asked = parser()
    options = asked.parse_args(arguments)
    try:
        source, namespace, name = read_object(options.object)
    except ValueError as error:
        asked.error(str(error))

    def answer() -> str:
        access = command.access_of(options)
        wanted = Wanted(source, options.namespace or namespace or access.namespace, name)
        if namespace and options.namespace not in ("", namespace):
            raise RemoteFailure(f"the namespace is given twice: {namespace} and {options.namespace}")
        found = command.read(access, WHY, namespace=wanted.namespace, timeout=options.request_timeout, wanted=wanted)
        from manciple.mirror import explaining  # noqa: PLC0415 - Django is set up by now

        reply = explaining.explain(found, wanted)
        if options.output == "json":
            return json.dumps(explaining.document(reply), indent=2)
        return "\n".join(explaining.lines(reply))

    return command.run(answer, options)


def read_object(words: Sequence[str]) -> tuple[Source, str, str]:
    """(source, namespace or "", name) of `pod NAME`, `pod NAMESPACE/NAME`, `pod/NAME`. Raises: ValueError."""
    kind, slash, rest = words[0].partition("/")
    if kind not in _NAMES:
        raise ValueError(f'"{kind}" is neither pod nor claim: write `pod {words[-1]}` or `claim {words[-1]}`')
    named = [*([rest] if slash else []), *words[1:]]
    if len(named) != 1 or not named[0]:
        raise ValueError("name one object: pod NAMESPACE/NAME")
    namespace, _, name = named[0].rpartition("/")
    if not name or "/" in namespace:
        raise ValueError(f'"{named[0]}" is not NAMESPACE/NAME')
    return _NAMES[kind], namespace, name

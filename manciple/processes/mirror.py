"""`manciple mirror`: a copy of a cluster that a kubeconfig leads to, kept current, with the dashboard, on this machine.

The cluster is asked what it is while Django is set up, as by `manciple why`. A first start needs its answer; a later
one shows what was copied until the cluster answers again. Django's settings look into the folder of the mirror, so
nothing of Django may be imported before it is known: `mirror_system` has what runs then.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Final

from manciple import configuration
from manciple.declared_settings import HOME, read
from manciple.mirror import command, credentials, folders, kubeconfig, listing
from manciple.mirror.client import Remote
from manciple.mirror.failures import RemoteFailure
from manciple.mirror.folders import Folder, Mark
from manciple.mirror.kubeconfig import Access
from manciple.mirror.sources import COPIED, KindState, Reach
from manciple.processes import database_file, home

#: Answers of a server that knows the user, or does not: another start would be answered the same.
_REFUSED: Final = (401, 403)


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="manciple mirror",
        description="A copy of a Kubernetes cluster with the dashboard, on this machine and for you alone. It only "
        "reads, unless --act is given.",
    )
    made.add_argument(
        "--port",
        type=int,
        default=0,
        metavar="N",
        help="of the dashboard on 127.0.0.1 (default: the last one, or 8010)",
    )
    # --home DIR is taken before; it stands here for --help.
    made.add_argument("--home", metavar="DIR", help="where the copy is kept (default: a folder of yours per context)")
    made.add_argument(
        "--act",
        action="store_true",
        help="let the dashboard change devices, nodes, pods and claims in the cluster, with your rights there",
    )
    command.add_options(made)
    return made


def main(arguments: Sequence[str]) -> int:
    """Raises: StartRefused, ConfigurationRefused."""
    options = parser().parse_args(arguments)
    try:
        return _run(options)
    except RemoteFailure as failure:
        command.tell(failure, options)
        return command.FAILED


def _run(options: argparse.Namespace) -> int:
    choice = command.choice_of(options)

    def access_now() -> Access:
        return credentials.complete(kubeconfig.read(choice))

    access = kubeconfig.read(choice)
    context = folders.context_name(access)
    folder = Folder(read(HOME, default=folders.default(access, choice)))
    with folder.taken(context, access.cluster.server) as mark:
        remote = Remote(credentials.complete(access), timeout=options.request_timeout, renew=access_now)
        try:
            with ThreadPoolExecutor(1) as pool:
                asked = pool.submit(_features, remote)
                _set_up(folder.path, context)
                features = _answer(asked, mark)
            from manciple.processes.mirror_system import MirrorSystem  # noqa: PLC0415 - Django is set up by now

            namespace = options.namespace or access.namespace
            system = MirrorSystem(remote, folder, mark, namespace=namespace, port=options.port, acts=options.act)
            system.run(features)
        finally:
            remote.close()
    return 0


def _features(remote: Remote) -> tuple[str, Mapping[str, bool], tuple[KindState, ...]]:
    """What tells the cluster's feature gates: its version, those that it reports, what it serves.

    Raises: RemoteFailure.
    """
    served = listing.discovered(remote)
    states = tuple(KindState(one, Reach.EVERYWHERE if served(one) else Reach.ABSENT) for one in COPIED)
    return listing.software_version(remote), listing.reported_gates(remote), states


def _answer(asked: Future[tuple[str, Mapping[str, bool], tuple[KindState, ...]]], mark: Mark) -> Mapping[str, bool]:
    """Our feature gates as the cluster has them; none where it is away. Raises: RemoteFailure where this start needs
    its answer.
    """
    from manciple.mirror import copying  # noqa: PLC0415 - Django is set up by now

    try:
        return copying.gates_of(*asked.result(), extended=False)
    except RemoteFailure as failure:
        if failure.code in _REFUSED or not mark.copied:
            raise
        print(f"warning: {command.printable(str(failure))}; you see what was copied before", file=sys.stderr)
        return {}


def _set_up(path: Path, context: str) -> None:
    """Django, on the mirror's own folder, or on the PostgreSQL that the settings name. Raises: StartRefused."""
    os.environ |= {
        "MANCIPLE_HOME": str(path),
        "MANCIPLE_MIRROR_OF": context,
        "MANCIPLE_REDIS_URL": "",  # one process does it all
        "MANCIPLE_SECURE_COOKIES": "0",  # it listens on loopback alone, without TLS
    }
    os.environ.setdefault("MANCIPLE_LOG_LEVEL", "WARNING")  # the terminal is for what a person must know
    configuration.apply()
    made = home.prepare(path)
    for name, kept in (("SECRET_KEY", made.secret_key), ("ENCRYPTION_KEYS", made.encryption_keys)):
        os.environ.setdefault(f"MANCIPLE_{name}", ",".join(kept.read_text().split()))
    import django  # noqa: PLC0415 - the environment says by which settings

    from manciple.processes.command_line import settings_read  # noqa: PLC0415 - which imports this module's command

    with settings_read():
        django.setup()
    database_file.check_configured(whole=True)

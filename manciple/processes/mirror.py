"""`manciple mirror`: a copy of a cluster that a kubeconfig leads to, kept current, with the dashboard, on this machine;
with `--in-cluster` of the cluster that it runs in, for all users of that cluster.

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
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from manciple import configuration
from manciple.declared_settings import DATABASE_URL, HOME, PAGES_URL, read
from manciple.mirror import command, credentials, folders, kubeconfig, listing
from manciple.mirror.client import Remote
from manciple.mirror.failures import RemoteFailure
from manciple.mirror.folders import Folder, Mark
from manciple.mirror.guard import options as guard_options
from manciple.mirror.guard.options import GuardOptions
from manciple.mirror.kubeconfig import Access
from manciple.mirror.sources import COPIED, KindState, Reach
from manciple.mirror.steering import options as steering_options
from manciple.mirror.steering.options import SteeringOptions
from manciple.processes import database_file, home
from manciple.refusals import StartRefused

if TYPE_CHECKING:  # at runtime Django is not set up yet
    from manciple.processes.mirror_entrances import Entrance

#: What the cluster of a pod is called unless somebody says.
UNNAMED: Final = "kubernetes"
#: Answers of a server that knows the user, or does not: another start would be answered the same.
_REFUSED: Final = (401, 403)
#: Seconds that the guard waits for the cluster's answer: an API server waits for its own.
GUARD_TIMEOUT: Final = 1.0


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="manciple mirror",
        description="A copy of a Kubernetes cluster with the dashboard, on this machine and for you alone; or in the "
        "cluster, for its users. It only reads, unless --act or --steer is given.",
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
        help="let pages change devices, nodes, pods and claims in the cluster, with each user's rights there",
    )
    within = made.add_argument_group("in the cluster")
    within.add_argument(
        "--in-cluster",
        action="store_true",
        help="of the pod's cluster, for its users; --context names it",
    )
    within.add_argument("--listen", default="0.0.0.0:8080", metavar="HOST:PORT", help="pages and API (%(default)s)")
    within.add_argument("--tls-cert", type=Path, metavar="FILE", help="certificate chain (default: plain HTTP)")
    within.add_argument("--tls-key", type=Path, metavar="FILE", help="its key")
    within.add_argument(
        "--audience", action="append", default=[], metavar="NAME", help="of tokens (default: the API server's)"
    )
    guard_options.add_options(made)
    steering_options.add_options(made)
    command.add_options(made)
    return made


def main(arguments: Sequence[str]) -> int:
    """Raises: StartRefused, ConfigurationRefused."""
    options = parser().parse_args(arguments)
    try:
        return _run(options, arguments)
    except RemoteFailure as failure:
        if options.in_cluster:
            print(f"error: {command.printable(str(failure))}", file=sys.stderr)
        else:
            command.tell(failure, options, whatever=True)
        return command.FAILED


def access_found(options: argparse.Namespace) -> Access:
    """As the kubeconfig or the pod has it. Raises: RemoteFailure."""
    choice = command.choice_of(options)
    if options.in_cluster:
        return replace(kubeconfig.of_pod(choice), context=choice.context or UNNAMED)
    return kubeconfig.read(choice)


def access_now(options: argparse.Namespace) -> Access:
    """With what a credential plugin prints now. Raises: RemoteFailure."""
    return credentials.complete(access_found(options))


def _run(options: argparse.Namespace, arguments: Sequence[str]) -> int:
    if bool(options.tls_cert) != bool(options.tls_key):
        raise StartRefused("--tls-cert and --tls-key belong together")
    access = access_found(options)
    context = folders.context_name(access)
    folder = Folder(read(HOME, default=folders.default(access, command.choice_of(options))))
    with folder.taken(context, access.cluster.server) as mark:
        complete = credentials.complete(access)
        renew = partial(access_now, options)
        remote = Remote(complete, timeout=options.request_timeout, renew=renew)
        guard, for_guard = GuardOptions.of(options), Remote(complete, timeout=GUARD_TIMEOUT, renew=renew)
        try:
            with ThreadPoolExecutor(1) as pool:
                asked = pool.submit(_features, remote)
                _set_up(folder.path, context, in_cluster=options.in_cluster, tls=bool(options.tls_cert))
                features = _answer(asked, mark)
            from manciple.processes.mirror_system import MirrorSystem  # noqa: PLC0415 - Django is set up by now

            namespace = options.namespace or access.namespace
            system = MirrorSystem(
                remote, folder, mark, namespace=namespace, entrance=entrance(options, remote, context)
            )
            if guard.mode:
                system.guarded(guard, for_guard, arguments)
            if (steering := SteeringOptions.of(options)).is_on:
                system.steered(steering)
            system.run(features)
        finally:
            remote.close()
            for_guard.close()
    return 0


def entrance(options: argparse.Namespace, remote: Remote, context: str) -> Entrance:
    """Whom it lets in. Raises: StartRefused."""
    from django.conf import settings  # noqa: PLC0415 - Django is set up by now

    from manciple.mirror.reviews import Reviews  # noqa: PLC0415 - as above
    from manciple.processes.listeners import Address, Tls  # noqa: PLC0415 - as above
    from manciple.processes.mirror_entrances import InCluster, Laptop  # noqa: PLC0415 - as above

    if not options.in_cluster:
        return Laptop(port=options.port, acts=options.act)
    if settings.PROXY_USER_HEADER:
        raise StartRefused("--in-cluster does not trust users named in a header: unset MANCIPLE_PROXY_*")
    try:
        address = Address.parse(options.listen)
    except ValueError as error:
        raise StartRefused(f"--listen {error}") from error
    tls = Tls(certificate=options.tls_cert, key=options.tls_key) if options.tls_cert else None
    reviews = Reviews(remote, context=context, audiences=options.audience)
    return InCluster(address, reviews=reviews, tls=tls, acts=options.act)


def _features(remote: Remote) -> tuple[str, Mapping[str, bool], tuple[KindState, ...]]:
    """What tells the cluster's feature gates: its version, those that it reports, what it serves.

    Raises: RemoteFailure.
    """
    served = listing.discovered(remote)
    states = tuple(KindState(one, Reach.EVERYWHERE if served(one) else Reach.ABSENT) for one in COPIED)
    return listing.software_version(remote), listing.reported_gates(remote), states


def _answer(asked: Future[tuple[str, Mapping[str, bool], tuple[KindState, ...]]], mark: Mark) -> Mapping[str, bool]:
    """Our feature gates as the cluster has them; none where it is away. Raises: RemoteFailure where this start needs
    its answer: neither this folder nor the database has a copy.
    """
    from manciple.mirror import copying, standing  # noqa: PLC0415 - Django is set up by now

    try:
        return copying.gates_of(*asked.result(), extended=False)
    except RemoteFailure as failure:
        if failure.code in _REFUSED or not (mark.copied or standing.is_copied()):
            raise
        print(f"warning: {command.printable(str(failure))}; you see what was copied before", file=sys.stderr)
        return {}


def _set_up(path: Path, context: str, *, in_cluster: bool, tls: bool) -> None:
    """Django, on the mirror's own folder, or on the PostgreSQL that the settings name. Raises: StartRefused."""
    os.environ |= {
        "MANCIPLE_HOME": str(path),
        "MANCIPLE_MIRROR_OF": context,
    }
    os.environ.setdefault("MANCIPLE_LOG_LEVEL", "WARNING")  # the terminal is for what a person must know
    if not in_cluster:  # it listens on loopback alone, without TLS
        os.environ |= {"MANCIPLE_SECURE_COOKIES": "0"}
    configuration.apply()
    if not read(DATABASE_URL):
        os.environ |= {"MANCIPLE_REDIS_URL": ""}  # one process does it all
    behind_tls = tls or read(PAGES_URL, default="").startswith("https:")
    os.environ.setdefault("MANCIPLE_SECURE_COOKIES", "1" if behind_tls else "0")
    made = home.prepare(path)
    for name, kept in (("SECRET_KEY", made.secret_key), ("ENCRYPTION_KEYS", made.encryption_keys)):
        os.environ.setdefault(f"MANCIPLE_{name}", ",".join(kept.read_text().split()))
    import django  # noqa: PLC0415 - the environment says by which settings

    from manciple.processes.command_line import settings_read  # noqa: PLC0415 - which imports this module's command

    with settings_read():
        django.setup()
    database_file.check_configured(whole=True)

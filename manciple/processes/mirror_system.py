"""What `manciple mirror` runs, in order, and stops, in reverse.

 1. listen (`mirror_entrances`: on loopback for its owner, or in the cluster for its users)
 2. bring the database up to date, refuse one of another installation, let them in
 3. take over the features of the cluster, and copy it (`manciple.mirror.leadership`, a thread)
 4. serve; /readyz answers 200 once the cluster was listed, or at once where an earlier copy can be shown
 5. from then on, have the copy followed: by the worker, with the controllers that run in a mirror, by open pages, and
    by the guard (`mirror_guard`) and steering (`mirror_steering`) where they are wanted

No node, no standing object and no demo: nothing is here that the cluster does not have. A mirror that acts sends what
its pages write to the cluster, with the kubeconfig's credential (`manciple.mirror.acting`).
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
from django.conf import settings
from django.core.management import call_command
from django.db import Error, connection, connections
from django.db.backends.utils import CursorWrapper
from prometheus_client.core import Metric
from prometheus_client.registry import Collector, CollectorRegistry

from inventory.kinds import gates
from manciple import layout, memory
from manciple.access import mirrored
from manciple.api import health
from manciple.api.streams import close_streams
from manciple.api.verbs import elsewhere
from manciple.asgi import application
from manciple.audit import trail
from manciple.controllers import coordination
from manciple.live.topics import relay
from manciple.mirror import standing
from manciple.mirror.acting import Acting
from manciple.mirror.client import Remote
from manciple.mirror.command import printable
from manciple.mirror.failures import RemoteFailure
from manciple.mirror.folders import Folder, Mark, Running
from manciple.mirror.guard.options import GuardOptions
from manciple.mirror.leadership import Leadership, is_led
from manciple.mirror.models import RemoteStatus
from manciple.mirror.replicator import Replicator
from manciple.mirror.sources import COPIED, NAMESPACE, Reach
from manciple.mirror.standing import KindStanding
from manciple.mirror.steering.options import SteeringOptions
from manciple.processes import accounts, embedded_worker
from manciple.processes.home import Home
from manciple.processes.listeners import Listeners, warm
from manciple.processes.mirror_entrances import Entrance
from manciple.processes.mirror_guard import MirrorGuard
from manciple.processes.mirror_steering import MirrorSteering
from manciple.refusals import StartRefused
from manciple.store import objects
from manciple.store.event_log import Tail
from manciple.telemetry import metrics, processes
from manciple.wire.resources import NAMESPACES, kind

#: Seconds for which a thread keeps the interpreter while others want it, as for `up`; seconds that stopping takes.
SWITCH_SECONDS, END_SECONDS = 0.001, 25.0
#: A namespace of every cluster, whose uid is the cluster's own.
SYSTEM_NAMESPACE: Final = "kube-system"
#: Seconds between two looks at whether the cluster was listed.
LOOK_AGAIN: Final = 0.1
#: Tables of every installation, and of a mirror alone.
_OBJECTS, _REMOTE = "store_storedobject", RemoteStatus._meta.db_table
#: Seconds until the terminal says why the cluster has not been read yet.
PATIENCE: Final = 3.0
#: The lock of the process that changes the tables, and seconds that others wait for it.
MIGRATING, MIGRATED_WITHIN = "mirror-migrate", 300.0


def _refuse_others() -> None:
    """Raises: StartRefused for a database with the objects of another installation, before its tables are changed."""
    with connection.cursor() as cursor:
        tables = connection.introspection.table_names(cursor)
        if (
            _OBJECTS in tables
            and not (_REMOTE in tables and _has_rows(cursor, _REMOTE))
            and _has_rows(cursor, _OBJECTS)
        ):
            raise StartRefused(
                "the database that the settings name belongs to another installation, which a mirror would overwrite: "
                "name another one in MANCIPLE_DATABASE_URL"
            )


def bring_up_to_date() -> None:
    """The tables, by one process at a time. Raises: StartRefused."""
    deadline = time.monotonic() + MIGRATED_WITHIN
    while time.monotonic() < deadline:
        with coordination.alone(MIGRATING) as ours:
            if ours:
                _refuse_others()
                call_command("migrate", verbosity=0, interactive=False)
                return
        time.sleep(LOOK_AGAIN)
    raise StartRefused(f"another process has been changing the database's tables for {MIGRATED_WITHIN:.0f} seconds")


def refuse_another_cluster(remote: Remote, folder: Path) -> None:
    """Raises: StartRefused where the copy that is there is not of the cluster that answers: all of it would seem to be
    deleted.
    """
    copied = objects.get(kind(NAMESPACES), "", SYSTEM_NAMESPACE)
    if copied is None:
        return
    try:
        answered = remote.get(NAMESPACE.path("v1", name=SYSTEM_NAMESPACE))
        uid = msgspec.json.decode(answered)["metadata"]["uid"]
    except (RemoteFailure, msgspec.MsgspecError, KeyError, TypeError):  # it is away, or this may not be read
        return
    if uid != copied.uid:
        raise StartRefused(
            f"{folder} holds the copy of another cluster, to which this context led before: delete the folder, or name "
            "another one with --home"
        )


def _has_rows(cursor: CursorWrapper, table: str) -> bool:
    cursor.execute(f"SELECT 1 FROM {table} LIMIT 1")  # noqa: S608 - our names
    return cursor.fetchone() is not None


class MirrorSystem:
    """One mirror; `run` returns when it was stopped."""

    def __init__(self, remote: Remote, folder: Folder, mark: Mark, *, namespace: str, entrance: Entrance) -> None:
        self._folder, self._mark, self._home = folder, mark, Home(folder.path)
        self._context, self._entrance, self._remote = mark.context, entrance, remote
        self._guard: MirrorGuard | None = None
        self._steering: MirrorSteering | None = None
        self._stopping = threading.Event()
        self._listeners = Listeners(application, on_stop=self._end_streams, end_seconds=END_SECONDS)
        self._namespace = namespace
        self._leadership = Leadership(
            partial(Replicator, remote, sources=COPIED, context=mark.context, namespace=namespace)
        )
        self._copying = threading.Thread(target=self._leadership.run, name="mirror", daemon=True)

    def guarded(self, options: GuardOptions, remote: Remote, arguments: Sequence[str]) -> None:
        """With the guard. remote: one that gives up soon. arguments: of the command. Raises: StartRefused."""
        self._guard = MirrorGuard(options, remote, folder=self._home.path, arguments=arguments)

    def steered(self, options: SteeringOptions) -> None:
        """With steering."""
        self._steering = MirrorSteering(options, self._remote, self._leadership, context=self._context)

    def run(self, features: Mapping[str, bool]) -> None:
        """features: of the cluster, as far as it answers. Raises: StartRefused."""
        sys.setswitchinterval(SWITCH_SECONDS)
        url = self._entrance.bind(self._home)
        bring_up_to_date()
        accounts.serves_pages(self._home, url)
        path = self._entrance.let_in(self._home)
        link = url + path if path else settings.PAGES_URL
        if features:  # it answers
            refuse_another_cluster(self._remote, self._folder.path)
            gates.use(features)
            if self._steering is not None:
                self._steering.demand_rights()
        rights = self._entrance.rights(self._remote, self._namespace)
        mirrored.ask_for_owner(rights)
        if self._entrance.acts:
            mirrored.act_by(rights)
            elsewhere.value = Acting(self._remote, named=self._entrance.naming, keep=self._leadership.keep)
        self._entrance.serve_by(self._listeners)
        self._folder.announce(Running(context=self._context, url=url, link=link))
        with self._working(link):
            self._listeners.run()

    @contextlib.contextmanager
    def _working(self, link: str) -> Iterator[None]:
        """The threads that live while the listeners serve."""
        processes.begin(
            "embedded",
            version=layout.version(),
            redis_url=settings.REDIS_URL,
            listen=settings.METRICS_LISTEN,
            served=_served(),
            **settings.TRACES,
        )
        health.register("listed", self._listed)
        health.register("remote", self._answering)
        health.register("kinds", _known)
        health.register("leader", _copied)
        health.register("mirror", self._alive, live=True)
        try:
            with contextlib.ExitStack() as following:
                starting = threading.Thread(target=self._bring_up, args=(link, following), name="start-up", daemon=True)
                self._copying.start()
                starting.start()
                try:
                    yield
                finally:
                    self._stop()
                    self._copying.join()
                    starting.join()
        finally:
            Tail.instance().stop()
            processes.end()
            trail.close()
            connections.close_all()

    def _follow(self, following: contextlib.ExitStack) -> None:
        """Begin what follows the copy: the worker, the guard, and open pages.

        A first copy is complete by then: all of its objects would be news to them, one after the other.
        """
        if self._steering is not None:
            following.enter_context(self._steering.running())
        following.enter_context(embedded_worker.running())
        if self._guard is not None:
            following.enter_context(self._guard.running())
        telling = threading.Thread(target=self._tell_pages, name="mirror-state", daemon=True)
        telling.start()
        following.callback(telling.join)

    async def _end_streams(self) -> None:
        print("Stopping", flush=True)
        self._stop()
        await asyncio.to_thread(self._copying.join)
        await close_streams()

    def _stop(self) -> None:
        self._stopping.set()
        self._leadership.stop()

    # Checks of /readyz ------------------------------------------------------------------------------------------------

    def _listed(self) -> None:
        """Raises: NotReady."""
        if not self._can_be_shown():
            raise health.NotReady(f"{self._context} is still being read")

    def _can_be_shown(self) -> bool:
        """This process or another has read all of the cluster, now or earlier."""
        with contextlib.suppress(Error):  # the database is away
            return self._mark.copied or self._leadership.has_listed or standing.was_listed()
        return False

    def _alive(self) -> None:
        """Of /livez. Raises: NotReady."""
        if self._leadership.is_stuck:
            raise health.NotReady("the thread that copies the cluster, or waits for its turn to, does not go on")

    def _answering(self) -> None:
        """Raises: NotReady."""
        remote = standing.remote()
        if remote is not None and remote.away_since is not None:
            since = f"{remote.away_since:%Y-%m-%d %H:%M:%S} UTC"
            raise health.NotReady(f"degraded: {self._context} cannot be reached since {since}: {remote.why}")

    def _tell_pages(self) -> None:
        """Open pages learn at once that the cluster went away or is back, and what of it may be read.

        A process that does not copy it takes its features over.
        """
        told, features = None, None
        try:
            while not self._stopping.wait(standing.FRESH):
                with contextlib.suppress(Error):  # the database is away
                    remote, kinds = standing.remote(), standing.kinds()
                    if remote is not None and remote.gates != features:
                        features = remote.gates
                        gates.use(features)
                    now = (
                        remote and remote.away_since,
                        {name: (one.reach, one.unread, one.listed_at is None) for name, one in kinds.items()},
                    )
                    if now != told:
                        told = now
                        relay.value.tell("mirror")
        finally:
            connections.close_all()

    # The terminal -----------------------------------------------------------------------------------------------------

    def _bring_up(self, link: str, following: contextlib.ExitStack) -> None:
        """Say where the pages are once the cluster was listed, and meanwhile why that takes long."""
        try:
            while not self._listeners.started() and not self._stopping.wait(LOOK_AGAIN):
                pass
            if is_known := self._can_be_shown():
                warm()
                self._follow(following)
            else:
                memory.settle()
            print(f"Reading {self._context}", flush=True)
            began, told, remote = time.monotonic(), "", None
            while not (self._can_be_shown() or self._stopping.wait(LOOK_AGAIN)):
                with contextlib.suppress(Error):
                    remote = standing.remote()
                why = remote.why if remote is not None else ""
                if why and why != told and time.monotonic() - began > PATIENCE:
                    told = why
                    print(printable(f"Trying again: {why}"), flush=True)
            if self._stopping.is_set():
                return
            if not is_known:
                warm().join()  # what the worker reads first, pages need as well
                self._follow(following)
            self._tell(link)
            self._folder.remember(replace(self._mark, copied=True))
        finally:
            connections.close_all()

    def _tell(self, link: str) -> None:
        standing.forget()  # it was asked before all of it was known
        lines = [
            "",
            f"The mirror of {self._context} is ready.",
            *self._entrance.words(link),
            *_missing(standing.kinds().values()),
            *self._entrance.lacks(self._remote),
            *([self._guard.description] if self._guard else []),
            *([self._steering.description] if self._steering else []),
            f"Kept in {self._folder.path}. Stop with Ctrl-C.",
        ]
        print(printable("\n".join(lines)), flush=True)


class _Metrics(Collector):
    """Of this process and of the cluster, as at /metrics, for a listener whose threads come and go."""

    def collect(self) -> Iterator[Metric]:
        try:
            yield from metrics.Together(metrics.REGISTRY, metrics.CLUSTER).collect()
        finally:
            connections.close_all()


def _served() -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(_Metrics())
    return registry


# Checks of /readyz that are warnings ----------------------------------------------------------------------------------


def _known() -> None:
    """Raises: NotReady."""
    if unknown := [*_missing(standing.kinds().values())]:
        raise health.NotReady(f"degraded: {'; '.join(unknown)}")


def _copied() -> None:
    """Raises: NotReady."""
    if not is_led():
        raise health.NotReady("degraded: no process copies the cluster; one that can tries every second")


def _missing(kinds: Iterable[KindStanding]) -> Iterator[str]:
    """What may not be read with the mirror's rights, and so is not judged: a line for each reason."""
    found, who = dict[str, list[str]](), "The mirror" if settings.CLUSTER_USERS else "You"
    for one in kinds:
        match one.reach:
            case Reach.FORBIDDEN:
                found.setdefault(f"{who} may not list", []).append(one.source.plural)
            case Reach.NAMESPACE:
                found.setdefault(f"{who} may list in one namespace only", []).append(one.source.plural)
            case _ if not one.is_whole:
                found.setdefault("Not known entirely", []).append(one.source.plural)
    yield from (f"{words}: {', '.join(names)}" for words, names in found.items())

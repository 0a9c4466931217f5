"""The controller of one driver: it watches, queues, and has workers do what `claims` and `contexts` say.

 1. follow claims, classes and PodSchedulingContexts, each resource by one watch
 2. once all are listed, tell the driver which claims it has allocated
 3. work: what changed, what failed (each time after a longer wait), and every 30 seconds each context that is open
 4. when told to stop, finish what is being done, and no more

An API server that is away is waited for; what it says afterwards is compared with what is known, so nothing is missed.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final, Literal, NamedTuple

from manciple.controller_kit.cache import KnownObjects
from manciple.controller_kit.claims import ClaimWork
from manciple.controller_kit.contexts import Context, ContextWork
from manciple.controller_kit.driver import ControlledClaim, ControlledClass, ControllerDriver
from manciple.controller_kit.forms import FORMS, ClaimForm, ClassNotFound, ParametersWrong
from manciple.controller_kit.metrics import ControllerMetrics
from manciple.controller_kit.workplace import DriverFailed, Next, Workplace
from nodeagent.api.client import Client
from nodeagent.api.events import EventRecorder
from nodeagent.failures import ApiFailure
from nodeagent.work import WorkQueue

log = logging.getLogger(__name__)

#: Seconds until what was said of nodes is looked at again, as in the library of Kubernetes.
RECHECK_SECONDS: Final = 30.0
#: Seconds until something that failed is tried again, at first and at most.
FIRST_DELAY, LONGEST_DELAY = 0.05, 60.0
#: Seconds that stopping waits for a call of the driver.
STOP_SECONDS: Final = 10.0


class WorkKey(NamedTuple):
    """A piece of work. version: of a claim's form; "" for a context."""

    kind: Literal["claim", "context"]
    version: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


class DriverController:
    """Runs `driver` from `run` until it is told to stop; it may be run again.

    versions: of resource.k8s.io whose claims it allocates. workers: threads that call the driver. reserve: whether a
    claim is reserved for its pod together with its allocation. working: set while it works.
    """

    def __init__(
        self,
        driver: ControllerDriver,
        client: Client,
        *,
        versions: Sequence[str] = tuple(FORMS),
        workers: int = 1,
        reserve: bool = True,
        metrics: ControllerMetrics | None = None,
        recheck_seconds: float = RECHECK_SECONDS,
    ) -> None:
        self.working = threading.Event()
        self.metrics = metrics or ControllerMetrics(driver.name)
        self._driver = driver
        self._client = client
        self._forms = tuple(FORMS[version] for version in versions)
        self._workers = workers
        self._reserve = reserve
        self._recheck_seconds = recheck_seconds

    def run(self, stop: threading.Event) -> None:
        """Until `stop` is set. Raises: whatever `driver.restore` raises."""
        work = _Work(self._forms, recheck_seconds=self._recheck_seconds)
        place = self._workplace(work)
        work.begin(place)
        self.metrics.observe_queue(work.queue.counts)
        followers = [_started(cache.follower.run, f"{self._driver.name} follows") for cache in work.caches]
        workers: list[threading.Thread] = []
        try:
            if _all_set([cache.listed for cache in work.caches], stop):
                self._driver.restore(list(work.allocated()))
                workers = [_started(work.run, self._driver.name) for _ in range(self._workers)]
                self.working.set()
                log.info("driver %s: its controller is running", self._driver.name)
                stop.wait()
        finally:
            self.working.clear()
            work.end()
            deadline = time.monotonic() + STOP_SECONDS
            for thread in (*workers, *followers):
                thread.join(max(0.0, deadline - time.monotonic()))
            log.info("driver %s: its controller has stopped", self._driver.name)

    def _workplace(self, work: _Work) -> Workplace:
        contexts = self._forms[0].contexts
        return Workplace(
            driver=self._driver,
            client=self._client,
            claims={
                form.version: KnownObjects(self._client, form.claims, partial(work.claim_changed, form))
                for form in self._forms
            },
            classes={
                form.version: KnownObjects(self._client, form.classes, work.class_changed) for form in self._forms
            },
            contexts=KnownObjects(self._client, contexts, work.context_changed),
            context_resource=contexts,
            events=EventRecorder(self._client, component=f"resource driver {self._driver.name}"),
            metrics=self.metrics,
            reserve=self._reserve,
            given_up=work.claim_given_up,
        )


class _Work:
    """What there is to do during one run.

    A claim that was given up leaves room for others. But the context of the pod that had it is not looked at before its
    turn: the scheduler, who asked for that, has yet to say where the claim is wanted now, and so long its old choice
    stands there.
    """

    def __init__(self, forms: Sequence[ClaimForm], *, recheck_seconds: float) -> None:
        self.queue: WorkQueue[WorkKey] = WorkQueue(first_delay=FIRST_DELAY, longest_delay=LONGEST_DELAY)
        self._forms = forms
        self._recheck_seconds = recheck_seconds

    def begin(self, place: Workplace) -> None:
        self._place = place
        self._claims = ClaimWork(place)
        self._contexts = ContextWork(place, self._claims)

    def end(self) -> None:
        """Workers end when they have done what they are at."""
        self.queue.close()
        for cache in self.caches:
            cache.follower.stop()

    @property
    def caches(self) -> Sequence[KnownObjects[Any]]:
        return (*self._place.claims.values(), *self._place.classes.values(), self._place.contexts)

    def allocated(self) -> Iterator[ControlledClaim]:
        """The claims that the driver has allocated."""
        for form in self._forms:
            for claim in self._place.claims[form.version].all().values():
                ours = form.is_made_in(claim) and self._place.finalizer in claim.metadata.finalizers
                if ours and claim.status.allocation is not None:
                    yield claim

    # What comes in.

    def claim_changed(self, form: ClaimForm, claim: ControlledClaim, _known: ControlledClaim | None) -> None:
        if form.is_made_in(claim):
            self.queue.add(WorkKey("claim", form.version, *claim.key))

    def class_changed(self, _class: ControlledClass, _known: ControlledClass | None) -> None:
        """Claims that named it, and found none or another driver's, may be ours."""
        self._wake(self._open())
        for form in self._forms:
            for claim in self._place.claims[form.version].all().values():
                if claim.status.allocation is None and form.is_made_in(claim):
                    self.queue.add(WorkKey("claim", form.version, *claim.key))

    def context_changed(self, context: Context, known: Context | None) -> None:
        """What drivers say in its status, this one among them, asks for nothing."""
        if known is None or known.spec != context.spec or known.metadata.uid != context.metadata.uid:
            self._wake([context])

    def claim_given_up(self) -> None:
        """What was said of nodes may be different now."""
        self._wake(context for context in self._open() if _waits_for_nodes(context))

    def _open(self) -> Sequence[Context]:
        return tuple(self._place.contexts.all().values())

    def _wake(self, contexts: Iterable[Context]) -> None:
        for context in contexts:
            self.queue.add(WorkKey("context", "", *context.key))

    # What is done.

    def run(self) -> None:
        """One worker, until the queue is closed."""
        while (key := self.queue.get()) is not None:
            started = time.perf_counter()
            try:
                self._do(key)
            finally:
                self.queue.done(key)
                self._place.metrics.worked(time.perf_counter() - started)

    def _do(self, key: WorkKey) -> None:
        try:
            self._schedule(key, self._sync(key))
        except ApiFailure as failure:
            # What another's write came before, or what is gone, is looked at as it is now; nobody need be told.
            quiet = failure.conflict or failure.not_found or not failure.code
            self._failed(key, str(failure), quiet=quiet)
        except (DriverFailed, ClassNotFound, ParametersWrong) as error:
            self._failed(key, str(error))
        except Exception as error:  # a fault with one object must not end the work on the others
            log.exception("%s", key)
            self._failed(key, str(error))

    def _sync(self, key: WorkKey) -> Next:
        if key.kind == "context":
            context = self._place.contexts.get(key.namespace, key.name)
            return self._contexts.sync(context) if context is not None else Next.ON_CHANGE
        claim = self._place.claims[key.version].get(key.namespace, key.name)
        return self._claims.sync(claim) if claim is not None else Next.ON_CHANGE

    def _schedule(self, key: WorkKey, next_: Next) -> None:
        if next_ is Next.SOON:
            self.queue.retry(key)
            return
        self.queue.forget(key)
        if next_ is Next.PERIODICALLY:
            self.queue.add_after(key, self._recheck_seconds)

    def _failed(self, key: WorkKey, message: str, *, quiet: bool = False) -> None:
        seconds = self.queue.retry(key)
        log.log(logging.DEBUG if quiet else logging.WARNING, "%s: %s; trying again in %.1f s", key, message, seconds)
        if quiet:
            return
        if key.kind == "context" and (context := self._place.contexts.get(key.namespace, key.name)):
            self._place.warn(context, self._place.context_resource, message)
        elif key.kind == "claim" and (claim := self._place.claims[key.version].get(key.namespace, key.name)):
            self._place.warn_claim(claim, message)


def _waits_for_nodes(context: Context) -> bool:
    """Whether no node is selected, or one that does not suit."""
    selected = context.spec.selected_node
    return not selected or any(selected in one.unsuitable_nodes for one in context.status.resource_claims)


def _started(target: Callable[[], None], name: str) -> threading.Thread:
    thread = threading.Thread(target=target, name=name, daemon=True)
    thread.start()
    return thread


def _all_set(events: Sequence[threading.Event], stop: threading.Event) -> bool:
    """Once all are set; False when `stop` comes first."""
    while not stop.is_set():
        if all(event.wait(0.1) for event in events):
            return True
    return False

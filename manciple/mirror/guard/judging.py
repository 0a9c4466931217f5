"""The guard's judgement of one write after the other, and what it asks the cluster meanwhile.

    guard = Guard(enforce=False, ask=ask_cluster(remote), know=knowledge)
    guard.answer(question)          # an `Answer`; from any thread

One thread judges, with one connection to the database and one `ClaimsView`, so that a judgement costs no lock among
threads; the callers' threads ask the cluster. What `Verdict` a write gets:

    nothing overlaps, the copy is current               -> promised, ADMITTED
    nothing overlaps, the copy is late                  -> promised, UNJUDGED, with a warning
    an overlap, and the cluster confirms every holder   -> REFUSED; while the guard watches promised, WOULD_REFUSE
    an overlap that nobody confirms in time             -> promised, UNJUDGED, with a warning
    claims or slices may not be read                    -> UNJUDGED, with a warning
    a fault                                             -> no answer, so the failurePolicy decides; UNJUDGED while the
                                                           guard watches
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as TakesTooLong
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from typing import ClassVar, Final, TypeVar

from django.db import DatabaseError, InterfaceError, connections, transaction

from claims.kinds.resource_claims import AllocationResult, ResourceClaim
from inventory.kinds.devices import ResourceSlice
from manciple.mirror import standing
from manciple.mirror.client import NOT_FOUND, Remote
from manciple.mirror.failures import RemoteFailure
from manciple.mirror.following import SILENCE
from manciple.mirror.guard import findings, promises, reviews
from manciple.mirror.guard.options import AUDIT, ENFORCE
from manciple.mirror.guard.promises import Promise
from manciple.mirror.guard.reviews import ClaimWrite, Question
from manciple.mirror.received import Unreadable
from manciple.mirror.sources import CLAIM, SLICE
from manciple.store import sql
from manciple.store.event_log import Follower, View
from manciple.store.records import Written
from manciple.telemetry import metrics
from manciple.wire.base import ApiObject
from manciple.wire.resources import CLAIMS, SLICES
from scheduling.allocator.ledger import AllocationLedger, Overlap

log = logging.getLogger(__name__)

#: Seconds for which a write may be on its way: another webhook of the same request may take as long.
PROMISED: Final = 30.0
#: Seconds in which the cluster must have confirmed an overlap, and in which everything must be answered.
CONFIRMED_WITHIN, ANSWERED_WITHIN = 1.5, 3.0
#: Claims that the cluster is asked for about one write.
MOST_ASKED: Final = 64
#: Claims that a message names.
MOST_NAMED: Final = 3
#: Seconds for which what `look` found is used.
LOOKED_FOR: Final = 3.0


class Verdict(StrEnum):
    UNCHANGED = "unchanged"  #: it gives nothing new
    ADMITTED = "admitted"
    REFUSED = "refused"
    WOULD_REFUSE = "would_refuse"  #: let through by a guard that watches
    UNJUDGED = "unjudged"  #: let through, as not enough is known


VERDICTS = metrics.counter(
    "manciple_guard_verdicts_total",
    "Writes of resourceclaims/status that the guard was asked about.",
    "mode",
    "verdict",
)
DURATION = metrics.one_histogram(
    "manciple_guard_duration_seconds",
    "Time that the guard takes for a write that allocates, without that in which it waits for the cluster.",
    buckets=metrics.exponential(0.00025, 2, 12),
)
OVERLAPS = metrics.counter(
    "manciple_guard_overlaps_total", "What a write would have given twice, as the cluster confirmed.", "kind"
)

T = TypeVar("T")


class ClaimsView(View):
    """What claims hold in the copy, and what is published."""

    resources: ClassVar[Sequence[str]] = (SLICES, CLAIMS)

    def __init__(self) -> None:
        self.ledger = AllocationLedger()
        #: of the claims that hold something
        self.claims: dict[str, KnownClaim] = {}

    def fill(self, resource: str, objects: Iterable[ApiObject]) -> None:  # noqa: ARG002 - each says what it is
        for obj in objects:
            self._put(obj)

    def apply(self, changes: Sequence[Written]) -> None:
        for change in changes:
            obj = change.object
            if change.type != "DELETED":
                self._put(obj)
            elif isinstance(obj, ResourceSlice):
                self.ledger.remove_slice(obj.metadata.name)
            else:
                self.ledger.put(obj.metadata.uid, None)
                self.claims.pop(obj.metadata.uid, None)

    def _put(self, obj: ApiObject) -> None:
        if isinstance(obj, ResourceSlice):
            self.ledger.apply_slice(obj)
        elif isinstance(obj, ResourceClaim):
            meta, allocation = obj.metadata, obj.status.allocation
            digest, known = reviews.digest_of(allocation), self.claims.get(meta.uid)
            if digest != (known.digest if known else ""):
                self.ledger.put(meta.uid, allocation if digest else None)
            if digest:
                self.claims[meta.uid] = KnownClaim(meta.namespace, meta.name, digest, meta.resource_version)
            else:
                self.claims.pop(meta.uid, None)


@dataclass(frozen=True, slots=True)
class KnownClaim:
    """version: of the copy."""

    namespace: str
    name: str
    digest: str
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Who holds what a write wants: a claim of the copy, of this version, or one by a promise."""

    id: str
    uid: str
    namespace: str
    name: str
    digest: str
    version: str = ""
    promise: Promise | None = None

    @property
    def as_seen(self) -> tuple[object, ...]:
        """Another once the copy has another version of the claim, or the promise is made again."""
        return (self.id, self.version, *(self.promise.rows if self.promise else ()))


@dataclass(frozen=True, slots=True)
class LiveClaim:
    """A claim as the cluster has it at this moment. version: the cluster's."""

    uid: str
    version: str
    allocation: AllocationResult | None


#: (version of the API, namespace, name) -> the claim; None where it is gone. Raises: RemoteFailure, Unreadable.
Ask = Callable[[str, str, str], LiveClaim | None]


@dataclass(frozen=True, slots=True)
class Knowledge:
    """version: of the API that claims are read in. late: why the copy may lack something; None where claims or slices
    are not known.
    """

    version: str
    late: str | None


@dataclass(slots=True)
class Learned:
    """What the cluster has said about the holders in the way of one write.

    confirmed: holders as they were seen. instead: uid -> (version of the copy that it corrects, what the claim holds).
    over: rows of promises that did not arrive.
    """

    confirmed: set[tuple[object, ...]] = field(default_factory=set)
    instead: dict[str, tuple[str, AllocationResult | None]] = field(default_factory=dict)
    over: set[int] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Judgement:
    known: Knowledge
    overlaps: tuple[Overlap, ...] = ()
    holders: Mapping[str, Holder] = field(default_factory=dict)

    def unconfirmed(self, learned: Learned) -> list[Holder]:
        return [one for one in self.holders.values() if one.as_seen not in learned.confirmed]


@dataclass(frozen=True, slots=True)
class Answer:
    """refusal: "" where the write is allowed. notes: for the API server's audit log."""

    verdict: Verdict
    refusal: str = ""
    warnings: tuple[str, ...] = ()
    notes: Mapping[str, str] = field(default_factory=dict)


class Unavailable(Exception):
    """No judgement in time."""


def ask_cluster(remote: Remote) -> Ask:
    """remote: one that gives up soon."""

    def ask(version: str, namespace: str, name: str) -> LiveClaim | None:
        try:
            text = remote.get(CLAIM.path(version, namespace=namespace, name=name), patient=False)
        except RemoteFailure as failure:
            if failure.code == NOT_FOUND:
                return None
            raise
        return LiveClaim(*reviews.read_claim(version, text))

    return ask


class Guard:
    """ask: for a claim as it is now. know: how far the copy may be trusted. clock: POSIX seconds."""

    def __init__(
        self, *, enforce: bool, ask: Ask, know: Callable[[], Knowledge], clock: Callable[[], float] = time.time
    ) -> None:
        self.mode = ENFORCE if enforce else AUDIT
        for verdict in Verdict:
            VERDICTS[self.mode, verdict]  # from 0 on: of a counter that begins with 1, Prometheus sees no increase
        self._ask, self._know, self._clock = ask, know, clock
        self._following = Follower(ClaimsView)
        self._looked: tuple[float, Knowledge] | None = None
        self._judging = ThreadPoolExecutor(1, thread_name_prefix="guard")

    def close(self) -> None:
        self._judging.submit(connections.close_all)
        self._judging.shutdown(wait=True, cancel_futures=False)

    def warm(self) -> None:
        """Read the copy, so that the first write does not wait for it; and what is new, so that none does."""
        self._in_turn(self._advance)

    def look(self) -> None:
        """Ask how far the copy may be trusted, so that no write waits for that."""
        self._looked = time.monotonic(), self._know()

    def answer(self, question: Question) -> Answer:
        """Raises: Unavailable, or what went wrong, unless the guard only watches."""
        try:
            found = self._answered(question)
        except Exception as error:
            if self.mode == ENFORCE:
                VERDICTS[self.mode, Verdict.UNJUDGED].inc()
                raise
            log.exception("a write was not judged")
            found = _unjudged(f"the guard failed: {type(error).__name__}")
        VERDICTS[self.mode, found.verdict].inc()
        return found

    def _answered(self, question: Question) -> Answer:
        write = question.write
        if write is None:
            return _unjudged(question.trouble) if question.trouble else Answer(Verdict.UNCHANGED)
        began = time.perf_counter()
        until, waited = began + ANSWERED_WITHIN, 0.0
        learned, asked, doubt = Learned(), 0, ""
        while True:
            judgement = self._in_turn(partial(self._judge, write, learned), until)
            unconfirmed = judgement.unconfirmed(learned)
            if not unconfirmed or doubt:
                break
            waiting = time.perf_counter()
            for holder in unconfirmed:
                if asked == MOST_ASKED or waited + time.perf_counter() - waiting > CONFIRMED_WITHIN:
                    doubt = "too many claims hold it"
                    break
                asked += 1
                try:
                    self._look_up(holder, learned, judgement.known.version)
                except (RemoteFailure, Unreadable) as error:
                    doubt = str(error)
                    break
            waited += time.perf_counter() - waiting
        answer = self._concluded(write, judgement, learned, doubt, until)
        DURATION.observe(time.perf_counter() - began - waited)
        return answer

    def _concluded(self, write: ClaimWrite, judgement: Judgement, learned: Learned, doubt: str, until: float) -> Answer:
        late, holders = judgement.known.late, judgement.holders
        if late is None:
            return _unjudged("not all of its resourceclaims and resourceslices can be read")
        if not judgement.overlaps:
            return _unjudged(late) if late else Answer(Verdict.ADMITTED)
        confirmed = [
            one for one in judgement.overlaps if all(holders[uid].as_seen in learned.confirmed for uid in one.holders)
        ]
        if not confirmed:
            self._in_turn(partial(self._promise, write), until)
            words = _words(judgement.overlaps[0], holders, write)
            return _unjudged(f"{words}, but the cluster does not confirm it: {doubt}")
        for overlap in confirmed:
            OVERLAPS[overlap.kind].inc()
        refuses = self.mode == ENFORCE
        reported = [(one, _words(one, holders, None)) for one in confirmed]
        if not write.dry_run:
            self._in_turn(partial(self._report, write, reported, refused=refuses), until)
        text = "; ".join(dict.fromkeys(_words(one, holders, write) for one in confirmed))
        notes = {"overlap": "; ".join(words for _, words in reported)}
        if refuses:
            return Answer(Verdict.REFUSED, refusal=text, notes=notes)
        return Answer(
            Verdict.WOULD_REFUSE, warnings=(f"the guard only watches, and would refuse this: {text}",), notes=notes
        )

    def _look_up(self, holder: Holder, learned: Learned, version: str) -> None:
        """Whether the cluster confirms that it holds what it seems to. Raises: RemoteFailure, Unreadable."""
        live = self._ask(version, holder.namespace, holder.name)
        same = live if live is not None and live.uid == holder.uid else None
        held = same.allocation if same is not None else None
        promise = holder.promise
        if held is not None and reviews.digest_of(held) == holder.digest:
            learned.confirmed.add(holder.as_seen)
        elif promise is None:
            learned.instead[holder.uid] = (holder.version, held)
            learned.confirmed.add(holder.as_seen)
        elif same is not None and self._is_on_its_way(promise, same):
            learned.confirmed.add(holder.as_seen)
        else:
            learned.over.update(promise.rows)

    def _is_on_its_way(self, promise: Promise, live: LiveClaim) -> bool:
        is_recent = self._clock() - promise.promised_at <= PROMISED
        return is_recent and live.version == promise.before

    # In the thread that judges ---------------------------------------------------------------------------------------

    def _in_turn(self, work: Callable[[], T], until: float | None = None) -> T:
        """until: by `time.perf_counter`. Raises: Unavailable; what `work` raises."""
        future = self._judging.submit(self._working, work)
        try:
            return future.result(None if until is None else max(0.0, until - time.perf_counter()))
        except TakesTooLong:
            future.cancel()
            raise Unavailable(f"no judgement within {ANSWERED_WITHIN:g} s") from None

    def _working(self, work: Callable[[], T]) -> T:
        try:
            return work()
        except (DatabaseError, InterfaceError):
            connections.close_all()  # the next one tries anew
            raise

    def _advance(self) -> None:
        with self._following.view():
            pass

    def _judge(self, write: ClaimWrite, learned: Learned) -> Judgement:
        """Promised where nothing overlaps."""
        known = self._knowledge()
        if known.late is None:
            return Judgement(known)
        # The view is later: what the copy showed of a claim when its promise was read, the view shows, too.
        with (
            sql.in_turn(),
            transaction.atomic(),
            promises.locked(_pools(write)) as read,
            self._following.view() as view,
        ):
            beside, over = _told_apart(read(), learned)
            instead = {uid: held for uid, (version, held) in learned.instead.items() if _is(view, uid, version)}
            others = _beside_claims((one for one in beside if one.claim_uid != write.uid), view, instead)
            found = view.ledger.overlaps(
                write.uid,
                write.allocation,
                instead={**instead, **{key: one.allocation for key, one in others.items()}},
            )
            ids = dict.fromkeys(one for overlap in found for one in overlap.holders)
            holders = {one: _holder(one, others, view) for one in ids}
            with sql.commit_pipelined():
                promises.forget(over)
                if not found and not write.dry_run:
                    promises.store(write, beside, at=self._clock())
        return Judgement(known, found, holders)

    def _knowledge(self) -> Knowledge:
        if self._looked is not None and time.monotonic() - self._looked[0] < LOOKED_FOR:
            return self._looked[1]
        return self._know()

    def _promise(self, write: ClaimWrite) -> None:
        """Whatever overlaps: it is let through."""
        if not write.dry_run:
            with sql.in_turn(), transaction.atomic(), promises.locked(_pools(write)) as read:
                promises.store(write, read(), at=self._clock())

    def _report(self, write: ClaimWrite, found: Sequence[tuple[Overlap, str]], *, refused: bool) -> None:
        with sql.in_turn(), transaction.atomic(), promises.locked(_pools(write)) as read:
            if not refused:
                promises.store(write, read(), at=self._clock())
            findings.record(write, found, refused=refused, at=datetime.fromtimestamp(self._clock(), UTC))

    # What has arrived, or never will -------------------------------------------------------------------------------

    def settle(self) -> int:
        """Forget the promises that the copy shows, and those that did not arrive in time. Returns how many are left.

        In the caller's thread. What is forgotten was read without the lock: a judgement that began before it was
        forgotten counts it, one that begins later reads a copy that shows it.
        """
        count, arrived, overdue = promises.standing(before=self._clock() - PROMISED)
        over = Learned(over=set(arrived))
        for promise in overdue[:MOST_ASKED]:
            try:
                self._look_up(_by_promise(promise), over, self._knowledge().version)
            except (RemoteFailure, Unreadable) as error:
                log.info("whether a claim got what it was promised cannot be told: %s", error)
                break
        if over.over:
            with sql.in_turn(), transaction.atomic(), promises.locked():
                promises.forget(over.over)
        return count


def knowledge() -> Knowledge:
    """Of the cluster that this installation copies."""
    kinds, remote = standing.kinds(), standing.remote()
    claims, slices = kinds.get(CLAIM.resource), kinds.get(SLICE.resource)
    version = claims.version if claims is not None and claims.version else CLAIM.versions[0]
    heard = [one.heard_at for one in (claims, slices) if one is not None and one.is_whole and one.listed_at is not None]
    since = min((at for at in heard if at is not None), default=None)
    if len(heard) < 2 or since is None:  # noqa: PLR2004 - one of the two
        return Knowledge(version, None)
    if remote is not None and remote.away_since is not None:
        return Knowledge(version, f"{remote.context} cannot be reached since {remote.away_since:%H:%M:%S} UTC")
    silent = (datetime.now(UTC) - since).total_seconds()
    late = f"nothing has been heard of its claims or slices for {silent:.0f} s" if silent > SILENCE else ""
    return Knowledge(version, late)


def _unjudged(why: str) -> Answer:
    return Answer(Verdict.UNJUDGED, warnings=(f"the guard cannot judge whether a device is given twice: {why}",))


def _pools(write: ClaimWrite) -> set[tuple[str, str]]:
    return {(one.driver, one.pool) for one in write.allocation.devices.results if not one.admin_access}


def _told_apart(found: Iterable[Promise], learned: Learned) -> tuple[list[Promise], list[int]]:
    """(those that stand, the rows of those that are over)."""
    standing_ones, over = list[Promise](), list[int]()
    for one in found:
        if one.is_settled or not learned.over.isdisjoint(one.rows):
            over += one.rows
        else:
            standing_ones.append(one)
    return standing_ones, over


def _beside_claims(
    found: Iterable[Promise], view: ClaimsView, instead: Mapping[str, AllocationResult | None]
) -> dict[str, Promise]:
    """Those that are not what their claim is known to hold anyway, by the id of their holder."""
    others = {}
    for one in found:
        known = view.claims.get(one.claim_uid)
        digest = known.digest if known is not None else ""
        if one.claim_uid in instead:
            digest = reviews.digest_of(instead[one.claim_uid])
        if digest != one.digest:
            others[_by_promise(one).id] = one
    return others


def _is(view: ClaimsView, uid: str, version: str) -> bool:
    known = view.claims.get(uid)
    return known is not None and known.version == version


def _holder(key: str, others: Mapping[str, Promise], view: ClaimsView) -> Holder:
    promise = others.get(key)
    if promise is not None:
        return _by_promise(promise)
    known = view.claims[key]
    return Holder(
        id=key, uid=key, namespace=known.namespace, name=known.name, digest=known.digest, version=known.version
    )


def _by_promise(one: Promise) -> Holder:
    return Holder(
        id=f"{one.claim_uid} {one.digest}",
        uid=one.claim_uid,
        namespace=one.namespace,
        name=one.claim,
        digest=one.digest,
        promise=one,
    )


# Words ----------------------------------------------------------------------------------------------------------------


def _words(overlap: Overlap, holders: Mapping[str, Holder], write: ClaimWrite | None) -> str:
    """write: whose author's users read it, so claims of other namespaces are not named; None: everything is."""
    device = f"device {overlap.pool.driver}/{overlap.pool.name}/{overlap.device}"
    who = _who([holders[one] for one in overlap.holders], write)
    if overlap.kind == "device":
        return f"{device} is allocated to {who} already" if who else f"{device} is allocated twice"
    of = (
        f"{overlap.limit} of {device}" if overlap.kind == "capacity" else f"{overlap.limit}, which {device} draws from,"
    )
    left = f"has too little left beside {who}" if who else "is less than the allocation takes"
    return f"{overlap.kind} {of} {left}"


def _who(holders: Sequence[Holder], write: ClaimWrite | None) -> str:
    claims = dict.fromkeys((one.namespace, one.name) for one in holders)
    named = [f"{namespace}/{name}" for namespace, name in claims if write is None or namespace == write.namespace]
    more = len(claims) - len(named[:MOST_NAMED])
    parts = [f"claim {name}" for name in named[:MOST_NAMED]]
    if more:
        others = "another" if parts and more == 1 else "another claim" if more == 1 else f"{more} other claims"
        parts.append(others)
    return " and ".join(parts) if len(parts) < 3 else f"{', '.join(parts[:-1])} and {parts[-1]}"  # noqa: PLR2004

"""What the mirrored cluster is asked about its users, what counts as an answer, for how long, and at which cost."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import httpx
import pytest

from manciple.access.authorization import Attributes
from manciple.access.cluster_users import ClusterSilent, TokenRefused
from manciple.mirror import client, reviews
from manciple.mirror.client import Remote, TokenFile
from manciple.mirror.failures import RemoteFailure
from manciple.mirror.reviews import ACCESS_QUESTIONS, FRESH, SILENCE, Memory, Reviews
from manciple.wire.identity import AUTHENTICATED, MASTERS, Identity
from tests.manciple.mirror.reviewing import ReviewingCluster, jwt

ADA = Identity("ada", ("team-a", AUTHENTICATED), remote=True)
LIST_PODS = Attributes(verb="list", resource="pods", namespace="vision")
AWAY = RemoteFailure("it cannot be reached")


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def cluster() -> ReviewingCluster:
    return ReviewingCluster()


def asking(cluster: ReviewingCluster, clock: Clock, **options: Any) -> Reviews:
    return Reviews(cast("Remote", cluster), context="prod", clock=clock, **options)


# Tokens --------------------------------------------------------------------------------------------------------------


def test_a_token_is_whose_the_cluster_says_with_all_that_it_says(cluster: ReviewingCluster, clock: Clock) -> None:
    token = cluster.token_of("ada", "team-a", uid="u-1", extra={"scopes": ["a", "b"]})
    vouched = asking(cluster, clock).token(token)
    assert vouched.identity == Identity("ada", ("team-a", AUTHENTICATED), "u-1", (("scopes", ("a", "b")),), remote=True)
    assert vouched.expires == pytest.approx(time.time() + 3600, abs=60)


REFUSED: dict[str, tuple[str, bytes | None]] = {
    "of nobody": (jwt(sub="eve"), None),
    "expired": (jwt(exp=time.time() - 1), None),
    "none": ("", None),
    "too long": ("x" * 20_000, None),
    "with a line break": ("a\nb", None),
    "with a blank": ("a b", None),
    "not of ASCII": ("tökén", None),
    "of somebody without a name": ("t", b'{"status": {"authenticated": true, "user": {"groups": ["system:masters"]}}}'),
    "of somebody whom nobody has authenticated": ("t", b'{"status": {"user": {"username": "ada"}}}'),
    "without a status": ("t", b'{"kind": "TokenReview", "spec": {"token": "t"}}'),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_token_is_refused(cluster: ReviewingCluster, clock: Clock, case: str) -> None:
    token, answer = REFUSED[case]
    cluster.answered = {"tokenreviews": answer} if answer else {}
    with pytest.raises(TokenRefused):
        asking(cluster, clock).token(token)


UNREADABLE = (
    b"",
    b"<html>",
    b"[]",
    b"null",
    b'{"status": null}',
    b'{"status": {"authenticated": "true", "user": {"username": "ada"}}}',
    b'{"status": {"authenticated": true, "user": {"username": ["ada"]}}}',
    b'{"status": {"allowed": "true"}}',
    b'{"status": {"allowed": 1}}',
)


@pytest.mark.parametrize("answer", UNREADABLE, ids=range(len(UNREADABLE)))
def test_an_answer_that_is_no_review_lets_nobody_in_and_allows_nothing(
    cluster: ReviewingCluster, clock: Clock, answer: bytes
) -> None:
    cluster.answered = {"reviews": answer}
    with pytest.raises((ClusterSilent, TokenRefused)) as refusal:
        asking(cluster, clock).token("secret-token")
    assert "secret-token" not in str(refusal.value)
    assert not asking(cluster, clock).access(ADA, LIST_PODS).allowed


@pytest.mark.parametrize(
    ("wanted", "answered", "accepted"),
    [
        ((), (), True),
        (("manciple",), ("manciple",), True),
        (("manciple", "other"), ("other",), True),
        (("manciple",), (), False),  # a server that knows no audiences
        (("manciple",), ("https://kubernetes.default.svc",), False),
    ],
)
def test_a_token_must_be_for_one_of_the_audiences(
    cluster: ReviewingCluster, clock: Clock, wanted: tuple[str, ...], answered: tuple[str, ...], accepted: bool
) -> None:
    cluster.audiences, asks = answered, asking(cluster, clock, audiences=wanted)
    token = cluster.token_of("ada")
    if accepted:
        assert asks.token(token).identity.name == "ada"
    else:
        with pytest.raises(TokenRefused):
            asks.token(token)
    assert cluster.asked[-1][1].get("audiences", []) == list(wanted)


def test_a_revoked_token_is_good_for_seconds_at_most(cluster: ReviewingCluster, clock: Clock) -> None:
    asks, token = asking(cluster, clock), cluster.token_of("ada")
    asks.token(token)
    cluster.tokens.clear()
    clock.now += FRESH - 0.1
    assert asks.token(token).identity.name == "ada"
    assert len(cluster.asked) == 1
    clock.now += 0.2
    assert asks.remembered(token) is None
    with pytest.raises(TokenRefused):
        asks.token(token)
    assert asks.remembered(token) is None


def test_a_token_is_over_at_its_expiry_whatever_is_remembered(cluster: ReviewingCluster, clock: Clock) -> None:
    now = time.time()
    asks = asking(cluster, clock, now=lambda: now)
    token = cluster.token_of("ada", expires=5)
    asks.token(token)
    now += 6
    assert asks.remembered(token) is None
    with pytest.raises(TokenRefused):
        asks.token(token)


def test_a_refused_token_is_not_asked_about_at_each_request(cluster: ReviewingCluster, clock: Clock) -> None:
    asks = asking(cluster, clock)
    for _ in range(5):
        with pytest.raises(TokenRefused):
            asks.token("of-nobody")
    assert len(cluster.asked) == 1


def test_a_failed_review_denies(cluster: ReviewingCluster, clock: Clock) -> None:
    asks, token = asking(cluster, clock), cluster.token_of("ada")
    cluster.failure = AWAY
    with pytest.raises(ClusterSilent):
        asks.token(token)
    assert not asks.access(ADA, LIST_PODS).allowed


def test_no_token_is_kept_as_it_is(cluster: ReviewingCluster, clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    asks = asking(cluster, clock)
    good, bad = cluster.token_of("ada"), "of-nobody"
    asks.token(good)
    with pytest.raises(TokenRefused):
        asks.token(bad)
    kept = repr([vars(memory) for memory in (asks._tokens, asks._bad_tokens, asks._accesses)])
    assert "ada" in kept
    for token in (good, bad):
        assert token not in kept
        assert token not in caplog.text


# Rights --------------------------------------------------------------------------------------------------------------


def test_the_question_names_the_whole_identity_and_what_is_wanted(cluster: ReviewingCluster, clock: Clock) -> None:
    who = Identity("ada", ("team-a", AUTHENTICATED), "u-1", (("scopes", ("a",)),), remote=True)
    wanted = Attributes(
        verb="get", group="resource.k8s.io", resource="resourceclaims", subresource="status", namespace="ns", name="c"
    )
    asking(cluster, clock).access(who, wanted)
    assert cluster.asked == [
        (
            "SubjectAccessReview",
            {
                "user": "ada",
                "groups": ["team-a", AUTHENTICATED],
                "uid": "u-1",
                "extra": {"scopes": ["a"]},
                "resourceAttributes": {
                    "verb": "get",
                    "group": "resource.k8s.io",
                    "version": "*",
                    "resource": "resourceclaims",
                    "subresource": "status",
                    "namespace": "ns",
                    "name": "c",
                },
            },
        )
    ]
    asking(cluster, clock).access(who, Attributes(verb="get", path="/metrics"))
    assert cluster.asked[-1][1]["nonResourceAttributes"] == {"path": "/metrics", "verb": "get"}


def test_a_right_that_is_taken_away_is_lost_within_seconds_and_one_that_is_given_is_found(
    cluster: ReviewingCluster, clock: Clock
) -> None:
    asks = asking(cluster, clock)
    cluster.allow("ada", "list", "pods", namespace="vision")
    assert asks.access(ADA, LIST_PODS).allowed
    cluster.rights.clear()
    clock.now += FRESH
    assert not asks.access(ADA, LIST_PODS).allowed
    cluster.allow("team-a", "list", "pods", namespace="vision")
    clock.now += FRESH
    assert asks.access(ADA, LIST_PODS).allowed


OTHERS = {
    "other groups": replace(ADA, groups=("team-b", AUTHENTICATED)),
    "fewer groups": replace(ADA, groups=(AUTHENTICATED,)),
    "another uid": replace(ADA, uid="u-2"),
    "another extra": replace(ADA, extra=(("scopes", ("x",)),)),
    "another name": replace(ADA, name="eve"),
}


@pytest.mark.parametrize("case", OTHERS)
def test_what_one_is_allowed_says_nothing_of_one_with(cluster: ReviewingCluster, clock: Clock, case: str) -> None:
    asks = asking(cluster, clock)
    cluster.allow("ada", "list", "pods", namespace="vision")
    assert asks.access(ADA, LIST_PODS).allowed
    cluster.rights.clear()
    assert not asks.access(OTHERS[case], LIST_PODS).allowed
    assert asks.access(ADA, LIST_PODS).allowed, "what is remembered of her stays hers"


WANTED = {
    "another verb": replace(LIST_PODS, verb="watch"),
    "another namespace": replace(LIST_PODS, namespace="speech"),
    "all namespaces": replace(LIST_PODS, namespace=""),
    "another name": replace(LIST_PODS, name="web"),
    "another group": replace(LIST_PODS, group="apps"),
    "another resource": replace(LIST_PODS, resource="events"),
    "a subresource": replace(LIST_PODS, subresource="log"),
    "a path": Attributes(verb="list", path="/"),
}


@pytest.mark.parametrize("case", WANTED)
def test_what_is_allowed_says_nothing_of(cluster: ReviewingCluster, clock: Clock, case: str) -> None:
    asks = asking(cluster, clock)
    cluster.allow("ada", "list", "pods", namespace="vision")
    assert asks.access(ADA, LIST_PODS).allowed
    cluster.rights.clear()
    assert not asks.access(ADA, WANTED[case]).allowed


def test_one_who_is_denied_is_not_allowed_whatever_else_is_said(cluster: ReviewingCluster, clock: Clock) -> None:
    cluster.answered = {"subjectaccessreviews": b'{"status": {"allowed": true, "denied": true}}'}
    assert not asking(cluster, clock).access(ADA, LIST_PODS).allowed


def test_whom_nobody_vouches_for_now_is_not_even_asked_about(cluster: ReviewingCluster, clock: Clock) -> None:
    cluster.allow("ada", "list", "*")
    assert not asking(cluster, clock).access(Identity("ada", (MASTERS,), remote=True), LIST_PODS).allowed
    assert not cluster.asked


def test_while_the_cluster_is_away_only_what_was_just_allowed_is(cluster: ReviewingCluster, clock: Clock) -> None:
    asks = asking(cluster, clock)
    cluster.allow("ada", "list", "pods", namespace="vision")
    assert asks.access(ADA, LIST_PODS).allowed
    cluster.allow("ada", "list", "*")
    cluster.failure = AWAY
    assert asks.access(ADA, LIST_PODS).allowed
    assert not asks.access(ADA, replace(LIST_PODS, verb="watch")).allowed
    clock.now += FRESH
    refused = asks.access(ADA, LIST_PODS)
    assert not refused.allowed
    assert "cannot be reached" in refused.reason
    cluster.failure = None
    clock.now += SILENCE
    assert asks.access(ADA, LIST_PODS).allowed, "a refusal for want of an answer is not remembered"


def test_a_cluster_that_does_not_answer_is_not_asked_by_each_request(cluster: ReviewingCluster, clock: Clock) -> None:
    asks = asking(cluster, clock)
    cluster.failure = AWAY
    for number in range(50):
        asks.access(ADA, replace(LIST_PODS, name=f"p{number}"))
    assert len(cluster.asked) == 1
    assert asks.silence()
    clock.now += SILENCE
    assert not asks.silence()
    asks.access(ADA, LIST_PODS)
    assert len(cluster.asked) == 2


def test_a_missing_right_of_the_mirror_is_told_with_what_to_do(cluster: ReviewingCluster, clock: Clock) -> None:
    cluster.failure = RemoteFailure("tokenreviews is forbidden", code=403)
    with pytest.raises(ClusterSilent, match="system:auth-delegator"):
        asking(cluster, clock).token("t")


def test_answers_that_are_remembered_are_few_and_the_oldest_go_first(clock: Clock) -> None:
    memory = Memory[int](100, clock)
    for number in range(1000):
        memory.put(number, number, seconds=FRESH)
    assert len(memory._known) == 100
    assert memory.get(999) == 999
    assert memory.get(0) is None


def test_long_names_are_not_remembered(cluster: ReviewingCluster, clock: Clock) -> None:
    asks = asking(cluster, clock)
    for number in range(20):
        asks.access(ADA, replace(LIST_PODS, name=f"{number}" * 10_000))
    assert not asks._accesses._known


def test_questions_at_one_time_are_few(
    cluster: ReviewingCluster, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each waits until as many are on their way as may be; none would come if there could not be so many."""
    monkeypatch.setattr(reviews, "TURN", 120.0)
    gate, lock, running, most = threading.Barrier(ACCESS_QUESTIONS), threading.Lock(), 0, 0

    def meanwhile() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        gate.wait(120)
        with lock:
            running -= 1

    cluster.meanwhile = meanwhile
    asks, count = asking(cluster, clock), 4 * ACCESS_QUESTIONS
    with ThreadPoolExecutor(count) as pool:
        names = [replace(LIST_PODS, name=f"p{number}") for number in range(count)]
        assert not any(decision.allowed for decision in pool.map(lambda one: asks.access(ADA, one), names))
    assert most == ACCESS_QUESTIONS
    assert len(cluster.asked) == count


def test_who_does_not_get_a_turn_is_refused(
    cluster: ReviewingCluster, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reviews, "TURN", 0.01)
    asks = asking(cluster, clock)
    cluster.allow("ada", "list", "pods", namespace="vision")
    for _ in range(ACCESS_QUESTIONS):
        asks._access_turns.acquire()
    assert not asks.access(ADA, LIST_PODS).allowed
    asks._access_turns.release()
    assert asks.access(ADA, LIST_PODS).allowed


# The way there -------------------------------------------------------------------------------------------------------


def test_the_token_of_a_pod_is_read_again_as_it_is_replaced(tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / "token"
    path.write_text("first\n")
    auth = TokenFile(path, "first", clock=clock)

    def shown() -> str:
        (request,) = auth.auth_flow(httpx.Request("GET", "https://prod"))
        return request.headers["Authorization"]

    assert shown() == "Bearer first"
    path.write_text("second\n")
    assert shown() == "Bearer first"
    clock.now += client.TOKEN_READ_EVERY
    assert shown() == "Bearer second"
    for content in (None, ""):  # it is being replaced
        path.unlink() if content is None else path.write_text(content)
        clock.now += client.TOKEN_READ_EVERY
        assert shown() == "Bearer second"

"""Notifications on their way: signed webhooks, mails, attempts that end, and addresses that are not called."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address, ip_network
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.core import mail

from manciple.notifications import addresses, browser, channels, delivering, recording, webhook_formats
from manciple.notifications.addresses import AddressProblem, webhook_policy
from manciple.notifications.models import Channel, Delivery, Happening, Notification, NotificationRule, WebhookFormat
from manciple.store import sealing

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)


@pytest.fixture
def ann(db: None) -> User:
    return User.objects.create_user("ann", is_staff=True)


def due(
    user: User, *ways: Channel, happening: Happening = Happening.POD_STARTED, subject: str = "", **fields: Any
) -> list[Delivery]:
    """A notification on its way."""
    if happening == Happening.POD_STARTED:
        fields.setdefault("namespace", "team-a")
    rule = NotificationRule.objects.create(
        person=user, happening=happening, channels=[one.value for one in ways], created_at=NOW
    )
    news = recording.NewsItem(
        happening=happening, subject=subject or f"{happening}:1", line="Pod team-a/job started on node-1",
        path="/pods/team-a/job", **fields,
    )  # fmt: skip
    recording.note(rule, [news], title="", path="/pods", now=NOW)
    Notification.objects.update(gathers_until=NOW)  # nothing joins it any more
    Delivery.objects.filter(state="due").update(due_at=NOW)
    return list(Delivery.objects.order_by("pk"))


@dataclass
class Heard:
    """What a webhook was sent. answers: the statuses that it gives, the last one again and again."""

    url: str = ""
    answers: list[int] = field(default_factory=lambda: [204])
    requests: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)

    @property
    def documents(self) -> list[dict[str, Any]]:
        return [json.loads(body) for _, body in self.requests]


@contextmanager
def receiver(*answers: int, location: str = "") -> Iterator[Heard]:
    heard = Heard(answers=list(answers or (204,)))

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            heard.paths.append(self.path)
            heard.requests.append(({name.lower(): value for name, value in self.headers.items()}, body))
            self.send_response(heard.answers.pop(0) if len(heard.answers) > 1 else heard.answers[0])
            if location:
                self.send_header("Location", location)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    heard.url = f"http://127.0.0.1:{server.server_port}/hook?team=a"
    try:
        yield heard
    finally:
        server.shutdown()
        server.server_close()


# Webhooks ------------------------------------------------------------------------------------------------------------


def test_a_webhook_is_sent_what_happened_signed_as_the_standard_says(ann: User) -> None:
    with receiver() as heard:
        secret = addresses.set_webhook(ann, heard.url)
        (delivery,) = due(ann, Channel.WEBHOOK)
        assert delivering.deliver(NOW) == 1
        assert delivering.deliver(NOW) == 0
    ((headers, body),) = heard.requests
    assert json.loads(body) == {
        "type": "manciple.pod-started",
        "timestamp": "2026-11-20T12:00:00Z",
        "data": {
            "title": "Pod team-a/job started on node-1",
            "text": "Pod team-a/job started on node-1",
            "url": "http://127.0.0.1:8000/pods/team-a/job",
            "key": f"manciple/127.0.0.1:8000/{delivery.notification_id}",
            "over": False,
        },
    }
    key = base64.urlsafe_b64decode(secret.removeprefix("whsec_") + "=")
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    expected = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    assert headers["webhook-signature"] == f"v1,{expected}"
    assert headers["webhook-timestamp"] == str(int(NOW.timestamp()))
    delivery.refresh_from_db()
    assert (delivery.state, delivery.attempts, delivery.problem, delivery.status) == ("sent", 1, "", 204)


def test_what_is_not_taken_is_tried_again_under_the_same_id_and_given_up_in_the_end(ann: User) -> None:
    moment = NOW
    with receiver(503) as heard:
        addresses.set_webhook(ann, heard.url)
        (delivery,) = due(ann, Channel.WEBHOOK)
        for pause in (*delivering.PAUSES, timedelta()):
            assert delivering.deliver(moment - timedelta(seconds=1)) == 0, "not before its time"
            assert delivering.deliver(moment) == 1
            moment += pause
    delivery.refresh_from_db()
    assert (delivery.state, delivery.attempts) == ("given-up", len(delivering.PAUSES) + 1)
    assert delivery.problem == "the webhook answered with status 503"
    assert len({headers["webhook-id"] for headers, _ in heard.requests}) == 1
    assert len(heard.requests) == len(delivering.PAUSES) + 1


def test_a_second_attempt_may_succeed(ann: User) -> None:
    with receiver(500, 200) as heard:
        addresses.set_webhook(ann, heard.url)
        (delivery,) = due(ann, Channel.WEBHOOK)
        delivering.deliver(NOW)
        delivery.refresh_from_db()
        assert (delivery.state, delivery.problem.rpartition(" ")[2]) == ("due", "500")
        delivering.deliver(NOW + delivering.PAUSES[0])
    delivery.refresh_from_db()
    assert (delivery.state, delivery.attempts, delivery.problem) == ("sent", 2, "")


def test_no_redirect_is_followed(ann: User) -> None:
    with receiver() as elsewhere, receiver(307, location=elsewhere.url) as heard:
        addresses.set_webhook(ann, heard.url)
        (delivery,) = due(ann, Channel.WEBHOOK)
        delivering.deliver(NOW)
        assert (len(heard.requests), elsewhere.requests) == (1, [])
    delivery.refresh_from_db()
    assert delivery.problem.endswith(" 307")


@pytest.mark.parametrize(
    "address", ["10.0.0.7", "192.168.1.1", "169.254.169.254", "fd00::1", "0.0.0.0", "::ffff:10.0.0.7"]
)
def test_private_addresses_are_not_called(address: str, settings: Any) -> None:
    settings.LOCAL_CONNECTIONS = False
    assert webhook_policy().refusal(ip_address(address))
    assert webhook_policy().refusal(ip_address("127.0.0.1"))
    assert not webhook_policy().refusal(ip_address("93.184.215.14"))


def test_an_operator_allows_private_networks_but_never_metadata_services(settings: Any) -> None:
    settings.WEBHOOK_NETWORKS = (ip_network("10.1.0.0/16"), ip_network("169.254.0.0/16"))
    assert not webhook_policy().refusal(ip_address("10.1.2.3"))
    assert webhook_policy().refusal(ip_address("10.2.0.1"))
    assert webhook_policy().refusal(ip_address("169.254.169.254"))
    settings.FORBIDDEN_NETWORKS = (ip_network("10.1.2.0/24"),)
    assert webhook_policy().refusal(ip_address("10.1.2.3"))


def test_an_address_that_is_refused_is_told_and_never_reached(ann: User, settings: Any) -> None:
    with receiver() as heard:
        addresses.set_webhook(ann, heard.url)
        settings.LOCAL_CONNECTIONS = False
        delivery = delivering.send_test(ann, Channel.WEBHOOK, now=NOW)
    assert heard.requests == []
    assert delivery.state == "given-up"
    assert "MANCIPLE_LOCAL_CONNECTIONS=1" in delivery.problem


@pytest.mark.parametrize(
    "url",
    [
        "ftp://example.org/x",
        "https://",
        "https://ann:secret@example.org/",
        "http://example.org/hook",
        "https://x:99999/",
    ],
)
def test_what_is_no_address_of_a_webhook_is_refused(ann: User, url: str) -> None:
    with pytest.raises(AddressProblem):
        addresses.set_webhook(ann, url)


def test_a_secret_is_encrypted_and_sealed_anew_under_another_key(ann: User, settings: Any) -> None:
    secret = addresses.set_webhook(ann, "https://hooks.example.org/")
    known = addresses.address_of(ann)
    assert secret not in known.webhook_secret
    assert addresses.secret_of(known) == secret
    assert addresses.set_webhook(ann, "https://elsewhere.example.org/") == "", "the secret stays"
    settings.ENCRYPTION_KEYS = ("a newer key", *settings.ENCRYPTION_KEYS)
    assert addresses.reseal() == 1
    known = addresses.address_of(ann)
    assert sealing.is_current(known.webhook_secret)
    assert addresses.secret_of(known) == secret


# Formats -------------------------------------------------------------------------------------------------------------


def posted(user: User, format: WebhookFormat, *, title: str, happening: Happening = Happening.NODE_SILENT) -> Any:
    """What such a webhook is sent of two things, of which the first is called `title`."""
    with receiver(202) as heard:
        addresses.set_webhook(user, heard.url, format=format, integration_key="R" * 32)
        rule = NotificationRule.objects.create(
            person=user, happening=happening, channels=[Channel.WEBHOOK.value], created_at=NOW
        )
        news = [
            recording.NewsItem(happening=happening, subject=f"{happening}:{line}", line=line, path="/nodes/n")
            for line in (title, "Node b is silent")
        ]
        recording.note(rule, news[:1], title="{count} nodes", path="/nodes", now=NOW)
        delivering.deliver(NOW + recording.QUIET)
        recording.note(rule, news[1:], title="{count} nodes", path="/nodes", now=NOW + recording.QUIET)
        delivering.deliver(NOW + 2 * recording.QUIET)
    return heard


def test_slack_gets_blocks_and_takes_no_markup_or_mention_from_names(ann: User) -> None:
    first, second = posted(ann, WebhookFormat.SLACK, title="Node <!channel> & *a*\nis silent").documents
    assert first["text"] == "Node &lt;!channel&gt; &amp; *a* is silent"
    assert [block["type"] for block in first["blocks"]] == ["header", "context"]
    assert first["blocks"][0]["text"] == {
        "type": "plain_text", "text": "Node <!channel> & *a* is silent", "emoji": False,
    }  # fmt: skip
    assert "/nodes/n" in second["blocks"][-1]["elements"][0]["text"]


def test_teams_gets_an_adaptive_card_of_runs_that_are_no_markdown(ann: User) -> None:
    document = posted(ann, WebhookFormat.TEAMS, title="Node [a](https://evil.example) is silent").documents[0]
    (attachment,) = document["attachments"]
    assert (document["type"], attachment["contentType"]) == ("message", "application/vnd.microsoft.card.adaptive")
    card = attachment["content"]
    assert card["type"] == "AdaptiveCard"
    assert {block["type"] for block in card["body"]} == {"RichTextBlock"}
    assert card["body"][0]["inlines"][0]["text"] == "Node [a](https://evil.example) is silent"
    assert [action["url"] for action in card["actions"]] == ["http://127.0.0.1:8000/nodes/n"]


def test_pagerduty_is_triggered_and_resolved_under_one_key(ann: User) -> None:
    with receiver(202) as heard:
        addresses.set_webhook(ann, heard.url, format=WebhookFormat.PAGERDUTY, integration_key="R" * 32)
        due(ann, Channel.WEBHOOK, happening=Happening.NODE_SILENT)
        delivering.deliver(NOW)
        recording.close(["node-silent:1"], now=NOW)
        assert delivering.deliver(NOW) == 0, "not before an attempt that is under way has ended"
        delivering.deliver(NOW + recording.AFTERWARDS)
    trigger, resolve = heard.documents
    assert (trigger["event_action"], resolve["event_action"]) == ("trigger", "resolve")
    assert trigger["dedup_key"] == resolve["dedup_key"]
    assert trigger["routing_key"] == resolve["routing_key"] == "R" * 32
    payload = trigger["payload"]
    assert payload["severity"] in ("critical", "error", "warning", "info")
    assert (payload["source"], payload["class"]) == ("127.0.0.1:8000", "node-silent")


def test_every_happening_has_a_severity_that_pagerduty_knows_or_no_end(ann: User) -> None:
    for happening in Happening:
        message = webhook_formats.Message(
            id="1", happening=happening.value, title="t" * 2000, text="x", url="https://m/", at=NOW, key="k"
        )
        post = webhook_formats.post_of(
            WebhookFormat.PAGERDUTY, message, url=webhook_formats.PAGERDUTY, secret="R" * 32, moment=0
        )
        document = json.loads(post.body)
        assert len(document["payload"]["summary"]) == 1024
        if happening in (Happening.POD_STARTED, Happening.JOB_ENDED):  # nothing that would have to be resolved
            assert post.url.endswith("/v2/change/enqueue")
            assert "event_action" not in document
        else:
            assert document["payload"]["severity"] in ("critical", "error", "warning"), happening


def test_what_is_over_before_it_was_sent_is_sent_nowhere(ann: User) -> None:
    with receiver() as heard:
        addresses.set_webhook(ann, heard.url)
        (delivery,) = due(ann, Channel.WEBHOOK, happening=Happening.NODE_SILENT)
        assert recording.close(["node-silent:1"], now=NOW) == 0
        delivering.deliver(NOW + recording.AFTERWARDS)
    assert heard.requests == []
    delivery.refresh_from_db()
    assert (delivery.state, delivery.problem) == ("given-up", recording.OVER_BEFORE_SENT)


def test_that_something_is_over_is_sent_even_where_the_first_message_got_no_answer(ann: User) -> None:
    """The receiver may have taken it all the same."""
    with receiver(503, 202) as heard:
        addresses.set_webhook(ann, heard.url, format=WebhookFormat.PAGERDUTY, integration_key="R" * 32)
        due(ann, Channel.WEBHOOK, happening=Happening.NODE_SILENT)
        delivering.deliver(NOW)
        assert recording.close(["node-silent:1"], now=NOW) == 1
        delivering.deliver(NOW + timedelta(hours=1))
    assert [one["event_action"] for one in heard.documents] == ["trigger", "resolve"], "and no trigger after it"


def test_an_alert_that_was_resolved_is_not_opened_by_a_late_attempt(ann: User) -> None:
    with receiver(503, 202) as heard:
        addresses.set_webhook(ann, heard.url, format=WebhookFormat.PAGERDUTY, integration_key="R" * 32)
        due(ann, Channel.WEBHOOK, happening=Happening.POD_FAILED, namespace="team-a")
        recording.close(["pod-failed:1"], quietly=True, now=NOW)
        delivering.deliver(NOW)
        delivering.deliver(NOW + recording.AFTERWARDS)
        delivering.deliver(NOW + timedelta(hours=1))
    assert [one["event_action"] for one in heard.documents] == ["trigger", "resolve"]


# Hostile receivers ---------------------------------------------------------------------------------------------------


@contextmanager
def dripping(piece: bytes) -> Iterator[str]:
    """A server that never ends its answer: it sends a little, again and again, and never nothing for long."""
    listening = socket.create_server(("127.0.0.1", 0))
    stopping = threading.Event()

    def serve() -> None:
        with suppress(OSError):
            while not stopping.is_set():
                connection, _ = listening.accept()
                threading.Thread(target=drip, args=(connection,), daemon=True).start()

    def drip(connection: socket.socket) -> None:
        with suppress(OSError), connection:
            connection.sendall(b"HTTP/1.1 ")
            while not stopping.wait(0.02):
                connection.sendall(piece)

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/"
    finally:
        stopping.set()
        listening.close()


@pytest.mark.parametrize("piece", [b"", b"2", b"200 OK\r\nX-A: b\r\n", b"200 OK\r\n" + b"X: " + b"y" * 60_000], ids=len)
def test_a_receiver_that_never_ends_its_answer_is_left_after_a_while(
    ann: User, piece: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channels, "PATIENCE", 0.3)
    with dripping(piece) as url:
        addresses.set_webhook(ann, url)
        (delivery,) = due(ann, Channel.WEBHOOK)
        began = time.monotonic()
        delivering.deliver(NOW)
        assert time.monotonic() - began < 5
    delivery.refresh_from_db()
    assert (delivery.state, delivery.status) == ("due", None)
    assert delivery.problem


def test_a_name_server_that_hangs_holds_nothing_up(ann: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channels, "PATIENCE", 0.2)
    hanging = threading.Event()
    monkeypatch.setattr("manciple.access.addresses.resolve", lambda *_, **__: hanging.wait(30))
    addresses.set_webhook(ann, "https://hooks.example.org/")
    (delivery,) = due(ann, Channel.WEBHOOK)
    began = time.monotonic()
    delivering.deliver(NOW)
    took = time.monotonic() - began
    hanging.set()
    assert took < 5
    delivery.refresh_from_db()
    assert "did not answer within" in delivery.problem


def test_a_person_whose_receiver_hangs_delays_nobody_else(ann: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channels, "PATIENCE", 3.0)  # Bob's receiver has it, too
    bob = User.objects.create_user("bob", is_staff=True)
    with dripping(b"") as url, receiver() as heard:
        addresses.set_webhook(ann, url)
        for number in range(delivering.MOST + 10):
            due(ann, Channel.WEBHOOK, subject=f"pod-started:{number}")
        addresses.set_webhook(bob, heard.url)
        due(bob, Channel.WEBHOOK)
        assert delivering.deliver(NOW) == delivering.OF_ONE_PERSON + 1
    assert len(heard.requests) == 1


def test_whoever_is_killed_while_sending_sends_again_under_the_same_id(
    ann: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    with receiver() as heard:
        addresses.set_webhook(ann, heard.url)
        due(ann, Channel.WEBHOOK)
        with monkeypatch.context() as patch:
            patch.setattr(delivering, "_record", killed)
            with pytest.raises(KeyboardInterrupt):
                delivering.deliver(NOW)
        assert delivering.deliver(NOW) == 0, "others wait for the one that may still be at it"
        delivering.deliver(NOW + delivering.PAUSES[0])
        delivering.deliver(NOW + timedelta(days=1))
    first, second = (headers["webhook-id"] for headers, _ in heard.requests)
    assert first == second


def killed(*_: Any, **__: Any) -> None:
    raise KeyboardInterrupt


def test_a_test_says_the_status_and_the_time_and_one_runs_at_a_time(ann: User) -> None:
    with receiver(418) as heard:
        addresses.set_webhook(ann, heard.url)
        delivery = delivering.send_test(ann, Channel.WEBHOOK, now=NOW)
        assert (delivery.state, delivery.status, delivery.attempts) == ("given-up", 418, 1)
        assert delivery.took is not None
        recording.note_test(ann, Channel.WEBHOOK, now=NOW)
        with pytest.raises(delivering.TestUnderWay):
            delivering.send_test(ann, Channel.WEBHOOK, now=NOW)
    assert len(heard.requests) == 1


def test_a_test_leaves_no_alert_open_at_pagerduty(ann: User) -> None:
    with receiver(202) as heard:
        addresses.set_webhook(ann, heard.url, format=WebhookFormat.PAGERDUTY, integration_key="R" * 32)
        assert delivering.send_test(ann, Channel.WEBHOOK, now=NOW).state == "sent"
    assert [one["event_action"] for one in heard.documents] == ["trigger", "resolve"]
    assert len({one["dedup_key"] for one in heard.documents}) == 1


def test_an_address_is_stored_encrypted_and_its_host_alone_is_shown(ann: User) -> None:
    url = "https://hooks.slack.example/services/T0/B0/secret-part"
    addresses.set_webhook(ann, url, format=WebhookFormat.SLACK)
    known = addresses.address_of(ann)
    assert "secret-part" not in known.webhook
    assert addresses.url_of(known) == url
    assert addresses.host_of(known) == "https://hooks.slack.example/…"
    known.webhook = url  # as an older version stored it
    known.save()
    assert addresses.url_of(addresses.address_of(ann)) == url
    assert addresses.reseal() == 1
    assert "secret-part" not in addresses.address_of(ann).webhook


# Mail ----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def mailing(settings: Any) -> Any:
    settings.EMAIL_HOST, settings.DEFAULT_FROM_EMAIL = "mail.example.org", "Manciple <manciple@example.org>"
    return settings


def confirmed(user: User, email: str = "ann@example.org") -> None:
    assert addresses.confirm_email(addresses.set_email(user, email, NOW)) is not None


def test_a_mail_says_what_happened_and_how_to_end_it(ann: User, mailing: Any) -> None:
    confirmed(ann)
    due(ann, Channel.EMAIL)
    delivering.deliver(NOW)
    (letter,) = mail.outbox
    assert letter.subject == "[Manciple] Pod team-a/job started on node-1"
    assert letter.to == ["ann@example.org"]
    assert "http://127.0.0.1:8000/pods/team-a/job" in letter.body
    link = letter.extra_headers["List-Unsubscribe"].strip("<>")
    assert link in letter.body
    assert addresses.unsubscribed_rule(link.rpartition("/")[2]) == NotificationRule.objects.get().pk
    assert letter.extra_headers["List-Unsubscribe-Post"] == "List-Unsubscribe=One-Click"


def test_nothing_is_sent_to_an_address_that_nobody_confirmed(ann: User, mailing: Any) -> None:
    token = addresses.set_email(ann, "victim@example.org", NOW)
    (delivery,) = due(ann, Channel.EMAIL)
    delivering.deliver(NOW)
    delivery.refresh_from_db()
    assert delivery.state == "given-up"
    assert delivery.problem
    assert mail.outbox == []
    with pytest.raises(AddressProblem):
        addresses.set_email(ann, "another@example.org", NOW + timedelta(seconds=30))
    addresses.set_email(ann, "another@example.org", NOW + timedelta(minutes=3))
    assert addresses.confirm_email(token) is None, "the link of the address before"
    assert addresses.confirm_email("made-up") is None


def test_an_installation_without_a_mail_server_says_so(ann: User, settings: Any) -> None:
    settings.EMAIL_HOST = ""
    confirmed(ann)
    delivery = delivering.send_test(ann, Channel.EMAIL, now=NOW)
    assert "this installation sends no e-mail" in delivery.problem


def test_a_mail_server_that_is_away_is_asked_again(ann: User, mailing: Any) -> None:
    mailing.EMAIL_BACKEND, mailing.EMAIL_HOST, mailing.EMAIL_PORT = (
        "django.core.mail.backends.smtp.EmailBackend", "127.0.0.1", 1
    )  # fmt: skip
    confirmed(ann)
    (delivery,) = due(ann, Channel.EMAIL)
    delivering.deliver(NOW)
    delivery.refresh_from_db()
    assert delivery.state == "due"
    assert "Connection refused" in delivery.problem
    assert channels.mails()


# Browser -------------------------------------------------------------------------------------------------------------


def test_an_open_page_is_told_once_and_the_log_says_so(ann: User) -> None:
    (delivery,) = due(ann, Channel.BROWSER)
    assert browser.fresh(["bob"], ()) == {}
    (told,) = browser.fresh(["ann", "bob"], ())["ann"]
    assert told["title"] == "Pod team-a/job started on node-1"
    assert told["path"] == "/pods/team-a/job"
    delivery.refresh_from_db()
    assert delivery.state == "sent"
    assert browser.fresh(["ann"], [told["id"]]) == {}, "this process knows it"
    assert browser.fresh(["ann"], ()) != {}, "pages of another process may show it as well, for a moment"


def test_an_open_page_of_somebody_who_lost_sight_is_told_nothing(db: None) -> None:
    eve = User.objects.create_user("eve")
    eve.groups.add(Group.objects.create(name="namespace:team-b"))
    due(eve, Channel.BROWSER, namespace="team-a")
    assert browser.fresh(["eve"], ()) == {}


def test_what_no_page_shows_within_an_hour_is_given_up(ann: User) -> None:
    (delivery,) = due(ann, Channel.BROWSER)
    assert delivering.deliver(NOW) == 0
    assert delivering.deliver(NOW + delivering.SHOWN_WITHIN + timedelta(seconds=1)) == 1
    delivery.refresh_from_db()
    assert (delivery.state, delivery.problem) == ("given-up", "no page was open")


def test_a_closed_account_is_told_nothing(ann: User) -> None:
    (delivery,) = due(ann, Channel.WEBHOOK)
    User.objects.update(is_active=False)
    delivering.deliver(NOW)
    delivery.refresh_from_db()
    assert (delivery.state, delivery.problem) == ("given-up", "the account is closed")


def test_what_is_old_is_forgotten(ann: User) -> None:
    due(ann, Channel.BROWSER)
    assert recording.prune(NOW + recording.KEPT_FOR) == 0
    assert recording.prune(NOW + recording.KEPT_FOR + timedelta(seconds=1)) > 0
    assert not Delivery.objects.exists()

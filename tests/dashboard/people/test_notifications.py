"""Notifications: the rules, channels and tests of a person, and the links of mails."""

from __future__ import annotations

import html
import re
from typing import Any

import pytest
from django.core import mail
from django.test import Client
from msgspec import structs

from insight import notifications
from manciple.notifications import addresses
from manciple.notifications.models import (
    Channel,
    Delivery,
    Happening,
    Notification,
    NotificationAddress,
    NotificationRule,
)
from manciple.people import Person
from manciple.wire.resources import NODES, SLICES
from tests.builders import make_namespace, make_pod
from tests.dashboard import texts
from tests.dashboard.browsing import signed_in, words
from tests.manciple.notifications.test_delivering import receiver
from tests.scheduling.cluster import Cluster

RULE = {"happening": "pod-waits", "scope": "in:team-a", "minutes": "90", "channels": ["browser"]}


@pytest.fixture
def ann(cluster: Cluster) -> Client:
    """Somebody who works in team-a."""
    for name in ("team-a", "team-b"):
        cluster.create(make_namespace(name))
    return signed_in("ann", "namespace:team-a")


@pytest.fixture
def mailing(settings: Any) -> Any:
    settings.EMAIL_HOST, settings.PAGES_URL = "mail.example.org", "http://testserver"
    return settings


def test_a_rule_is_kept_once(ann: Client) -> None:
    def keep(**changes: Any) -> set[str]:
        answer = ann.post("/notifications/rules", RULE | changes)
        errors = answer.context["rule_form"].errors.as_data() if answer.status_code == 422 else {}
        return {error.code for found in errors.values() for error in found}

    assert keep() == set()
    assert keep() == {"duplicate"}
    assert keep(minutes="91") == keep(scope="") == keep(happening="pod-started") == set()
    assert keep(happening="pod-started", minutes="7") == {"duplicate"}, "minutes are of pods that wait"
    first = NotificationRule.objects.order_by("pk")[0]
    assert keep(rule=str(first.pk)) == set(), "it may stay what it is"
    assert keep(rule=str(first.pk), minutes="91") == {"duplicate"}


def test_a_rule_begins_as_its_address_says(ann: Client) -> None:
    form = ann.get("/notifications?when=pod-started&of=in:team-a").context["rule_form"]
    assert (form["happening"].value(), form["scope"].value()) == ("pod-started", "in:team-a")


def test_a_rule_is_made_changed_and_deleted_by_its_owner_alone(ann: Client) -> None:
    assert texts.NOTIFIED_OF_NOTHING in words(ann, "/notifications")
    assert ann.post("/notifications/rules", RULE).status_code == 302
    assert texts.NOTIFICATION_ROW("1 h 30 min", "team-a") in words(ann, "/notifications")
    rule = NotificationRule.objects.get()
    assert (rule.person.get_username(), rule.namespace, rule.minutes) == ("ann", "team-a", 90)
    page = ann.get(f"/notifications?rule={rule.pk}").content.decode()
    assert "Change rule" in page
    assert 'value="90"' in page
    assert ann.post("/notifications/rules", RULE | {"rule": rule.pk, "minutes": "30"}).status_code == 302
    assert texts.NOTIFICATION_ROW("30 min", "team-a") in words(ann, "/notifications")
    assert NotificationRule.objects.get().pk == rule.pk
    bob = signed_in("bob")
    assert "Change rule" not in bob.get(f"/notifications?rule={rule.pk}").content.decode()
    assert bob.post("/notifications/rules/delete", {"rule": rule.pk}).status_code == 404
    assert ann.post("/notifications/rules/delete", {"rule": rule.pk}).status_code == 302
    assert not NotificationRule.objects.exists()


#: what was sent instead -> the field and the code of the one error
WRONG: tuple[tuple[dict[str, Any], str, str], ...] = (
    ({"scope": "in:team-b"}, "scope", "unknown_namespace"),
    ({"minutes": "0"}, "minutes", "min_value"),
    ({"minutes": "40321"}, "minutes", "max_value"),
    ({"channels": []}, "channels", "required"),
    ({"channels": ["webhook", "email"]}, "channels", "not_ready"),
    ({"channels": ["pigeon"]}, "channels", "invalid_choice"),
    ({"happening": "device-fails", "scope": "mine"}, "scope", "no_creator"),
    ({"happening": "incident", "scope": "mine"}, "scope", "no_creator"),
    ({"happening": "quota-full", "scope": "mine"}, "scope", "no_creator"),
    ({"happening": "node-silent", "scope": "mine"}, "scope", "no_creator"),
    ({"happening": "node-silent"}, "scope", "no_namespace"),
    ({"happening": "pool-incomplete"}, "scope", "no_namespace"),
    ({"happening": "the-weather"}, "happening", "invalid_choice"),
)


def test_an_invalid_rule_is_refused_with_the_error_at_its_field(ann: Client) -> None:
    for change, field, code in WRONG:
        answer = ann.post("/notifications/rules", RULE | change)
        assert answer.status_code == 422, change
        form = answer.context["rule_form"]
        codes = {name: [error.code for error in errors] for name, errors in form.errors.as_data().items()}
        assert codes == {field: [code]}, change
        place = re.search(rf'id="{form[field].error_id}".*?</', answer.content.decode(), re.DOTALL)
        assert place is not None, change
        assert form.errors[field][0] in html.unescape(place[0]), change
    assert not NotificationRule.objects.exists()


def save_webhook(client: Client, **fields: str) -> Any:
    return client.post("/notifications/webhook", {"format": "json"} | fields)


def test_a_webhooks_secret_is_shown_once(ann: Client) -> None:
    shown = save_webhook(ann, url="https://hooks.example.org/").content.decode()
    (secret,) = re.findall(r"whsec_[\w-]+", shown)
    assert "whsec_" not in ann.get("/notifications").content.decode()
    assert addresses.secret_of(NotificationAddress.objects.get()) == secret
    again = ann.post("/notifications/webhook", {"secret": "1"}).content.decode()
    assert secret not in again
    assert "whsec_" in again
    refused = save_webhook(ann, url="http://example.org/")
    assert refused.status_code == 422
    assert texts.WEBHOOK_NEEDS_HTTPS in refused.content.decode()
    ann.post("/notifications/webhook", {"remove": "1"})
    known = NotificationAddress.objects.get()
    assert (known.webhook, known.webhook_secret) == ("", "")


KEY = "0123456789abcdefABCDEF0123456789"
#: format -> what is saved, and the parts of it that nobody is shown again
CHANNELS: dict[str, tuple[dict[str, str], tuple[str, ...]]] = {
    "slack": ({"url": "https://hooks.slack.example/services/T0/B0/s3cr3t"}, ("s3cr3t", "T0/B0")),
    "teams": ({"url": "https://prod.logic.example/workflows/1?sig=s3cr3t"}, ("s3cr3t", "workflows/1")),
    "pagerduty": ({"integration_key": KEY}, (KEY, "/v2/enqueue")),
    "json": ({"url": "https://hooks.example.org/s3cr3t"}, ("s3cr3t",)),
}


@pytest.mark.parametrize("format", CHANNELS)
def test_what_is_secret_of_a_channel_is_stored_encrypted_and_never_shown_again(ann: Client, format: str) -> None:
    fields, secrets = CHANNELS[format]
    answer = save_webhook(ann, format=format, **fields)
    known = NotificationAddress.objects.get()
    assert known.webhook_format == format
    wrong = save_webhook(ann, format=format, url="http://x.example/").content.decode()
    pages = (answer.content.decode(), ann.get("/notifications").content.decode(), wrong)
    for secret in secrets:
        assert not any(secret in page for page in pages)
        assert secret not in known.webhook + known.webhook_secret
    host = re.sub(r"^(https://[^/]+)/.*$", r"\1", addresses.url_of(known))
    assert f"{host}/…" in pages[1]
    assert addresses.url_of(known).endswith(fields.get("url", "https://events.pagerduty.com/v2/enqueue"))


def test_a_webhook_that_is_saved_with_empty_fields_stays_as_it_is(ann: Client) -> None:
    for format, (fields, _) in CHANNELS.items():
        save_webhook(ann, format=format, **fields)
        known = NotificationAddress.objects.get()
        before = (addresses.url_of(known), addresses.secret_of(known) if known.webhook_secret else "")
        assert save_webhook(ann, format=format).status_code == 302
        known = NotificationAddress.objects.get()
        assert (addresses.url_of(known), addresses.secret_of(known) if known.webhook_secret else "") == before


#: format, what was sent -> the field of the error
WRONG_WEBHOOKS: tuple[tuple[dict[str, str], str], ...] = (
    ({"format": "pigeon", "url": "https://x.example/"}, "format"),
    ({"format": "slack"}, "url"),
    ({"format": "teams", "url": "https://ann:pass@x.example/"}, "url"),
    ({"format": "pagerduty"}, "integration_key"),
    ({"format": "pagerduty", "integration_key": "too-short"}, "integration_key"),
    ({"format": "pagerduty", "integration_key": KEY[:-1] + "/"}, "integration_key"),
    ({"format": "pagerduty", "integration_key": KEY, "url": "http://x.example/"}, "url"),
)


def test_an_invalid_webhook_is_refused_with_the_error_at_its_field(ann: Client) -> None:
    save_webhook(ann, format="json", url="https://hooks.example.org/")  # of another format: nothing of it is kept
    for fields, field in WRONG_WEBHOOKS:
        answer = save_webhook(ann, **fields)
        assert answer.status_code == 422, fields
        assert set(answer.context["webhook_form"].errors) == {field}, fields
    assert NotificationAddress.objects.get().webhook_format == "json"


def test_the_test_button_says_what_happened(ann: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    for answers, parts in (((204,), ("status 204", " ms")), ((503,), ("status 503", "was not sent"))):
        with receiver(*answers) as heard:
            save_webhook(ann, url=heard.url)
            said = ann.post("/notifications/test", {"channel": "webhook"}, follow=True).content.decode()
        assert all(part in said for part in parts), parts
    refused = heard.url  # nobody listens there any more
    save_webhook(ann, url=refused)
    said = ann.post("/notifications/test", {"channel": "webhook"}, follow=True).content.decode()
    assert "no answer" in said
    assert "cannot be reached" in said


def test_an_address_is_confirmed_by_the_link_that_was_sent_there(ann: Client, mailing: Any) -> None:
    ann.post("/notifications/email", {"email": "ann@example.org"})
    assert "not confirmed yet" in words(ann, "/notifications")
    assert ann.post("/notifications/rules", RULE | {"channels": ["email"]}).status_code == 422
    (letter,) = mail.outbox
    (link,) = re.findall(r"http://testserver(\S+)", str(letter.body))
    assert texts.ADDRESS_CONFIRMED in Client().get(link).content.decode()
    assert ann.post("/notifications/rules", RULE | {"channels": ["email"]}).status_code == 302
    assert "out of date" in Client().get("/notifications/confirm/made-up").content.decode()


def test_an_installation_without_mail_says_who_can_change_that(ann: Client, settings: Any) -> None:
    settings.EMAIL_HOST = ""
    assert texts.NO_EMAIL_HERE in words(ann, "/notifications")
    answer = ann.post("/notifications/email", {"email": "ann@example.org"})
    assert answer.status_code == 422
    assert "MANCIPLE_MAIL_URL" in answer.content.decode()


def test_each_way_has_a_test_and_the_log_says_how_it_ended(ann: Client, mailing: Any) -> None:
    for channel in Channel.values:
        assert ann.post("/notifications/test", {"channel": channel}).status_code == 302
    told = words(ann, "/notifications")
    assert texts.SENT_TO_BROWSER in told
    assert texts.NOT_SENT_WITHOUT_WEBHOOK in told
    assert texts.NOT_SENT_WITHOUT_ADDRESS in told
    assert Delivery.objects.count() == 3
    assert ann.post("/notifications/test", {"channel": "pigeon"}).status_code == 404
    assert "Nothing yet." in words(signed_in("bob"), "/notifications"), "everybody has a log of their own"


def test_the_link_of_a_mail_ends_the_mails_of_one_rule_without_signing_in(ann: Client, mailing: Any) -> None:
    ann.post("/notifications/rules", RULE)
    rule = NotificationRule.objects.get()
    NotificationRule.objects.update(channels=["browser", "email"])
    link = f"/notifications/unsubscribe/{addresses.unsubscribe_token(rule.pk)}"
    anybody = Client(enforce_csrf_checks=True)
    assert "End these mails?" in anybody.get(link).content.decode()
    assert NotificationRule.objects.get().channels == ["browser", "email"], "a link that is followed changes nothing"
    assert texts.UNSUBSCRIBED in anybody.post(link, {"List-Unsubscribe": "One-Click"}).content.decode()
    assert NotificationRule.objects.get().channels == ["browser"]
    NotificationRule.objects.update(channels=["email"])
    anybody.post(link)
    assert not NotificationRule.objects.exists()
    assert texts.UNSUBSCRIBED in anybody.get(link).content.decode()
    assert texts.NOT_AN_UNSUBSCRIBE_LINK in anybody.get("/notifications/unsubscribe/made-up").content.decode()


def test_every_happening_can_be_asked_for_on_the_page(ann: Client) -> None:
    for happening, label in Happening.choices:
        answer = ann.post("/notifications/rules", {"happening": happening, "scope": "", "channels": ["browser"]})
        assert answer.status_code == 302, happening
        assert label.split()[1] in words(ann, "/notifications")
    assert NotificationRule.objects.count() == len(Happening.choices)


def test_a_rule_about_what_somebody_may_not_list_is_refused(ann: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    may = Person.may
    monkeypatch.setattr(
        Person, "may", lambda self, verb, what, *rest: what not in (NODES, SLICES) and may(self, verb, what, *rest)
    )
    for happening in ("node-silent", "pool-incomplete"):
        answer = ann.post("/notifications/rules", {"happening": happening, "scope": "", "channels": ["browser"]})
        assert answer.status_code == 422
        assert list(answer.context["rule_form"].errors) == ["happening"]


def test_the_first_rule_is_about_all_that_happens_once_it_is_saved(ann: Client, cluster: Cluster) -> None:
    """Though the controller runs only seconds later."""
    cluster.create(make_pod("before", namespace="team-a", node="node-1"))
    ann.post("/notifications/rules", {"happening": "pod-started", "scope": "in:team-a", "channels": ["browser"]})
    pod = cluster.create(make_pod("after", namespace="team-a", node="node-1"))
    cluster.update(structs.replace(pod, status=structs.replace(pod.status, phase="Running")))
    assert notifications.reconcile(cluster.now) == 1
    assert [one.title for one in Notification.objects.all()] == ["Pod team-a/after started on node-1"]

"""Tell me: the rules, the ways, the tests of a person, and the links of mails."""

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
from manciple.notifications.models import Channel, Delivery, Notification, NotificationAddress, NotificationRule
from tests.builders import make_namespace, make_pod
from tests.dashboard import texts
from tests.dashboard.browsing import signed_in, words
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


def test_a_webhooks_secret_is_shown_once(ann: Client) -> None:
    shown = ann.post("/notifications/webhook", {"url": "https://hooks.example.org/"}).content.decode()
    (secret,) = re.findall(r"whsec_[\w-]+", shown)
    assert "whsec_" not in ann.get("/notifications").content.decode()
    assert addresses.secret_of(NotificationAddress.objects.get()) == secret
    again = ann.post("/notifications/webhook", {"secret": "1"}).content.decode()
    assert secret not in again
    assert "whsec_" in again
    refused = ann.post("/notifications/webhook", {"url": "http://example.org/"})
    assert refused.status_code == 422
    assert texts.WEBHOOK_NEEDS_HTTPS in refused.content.decode()
    ann.post("/notifications/webhook", {"url": ""})
    assert NotificationAddress.objects.get().webhook == ""


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


def test_the_first_rule_is_about_all_that_happens_once_it_is_saved(ann: Client, cluster: Cluster) -> None:
    """Though the controller runs only seconds later."""
    cluster.create(make_pod("before", namespace="team-a", node="node-1"))
    ann.post("/notifications/rules", {"happening": "pod-started", "scope": "in:team-a", "channels": ["browser"]})
    pod = cluster.create(make_pod("after", namespace="team-a", node="node-1"))
    cluster.update(structs.replace(pod, status=structs.replace(pod.status, phase="Running")))
    assert notifications.reconcile(cluster.now) == 1
    assert [one.title for one in Notification.objects.all()] == ["Pod team-a/after started on node-1"]

"""`/notifications`: a person's own rules, where they are sent, a test of each channel, and what was sent.

A webhook's secret is shown in the answer to the form that made it, and never again; its address and PagerDuty's
integration key are never shown, because whoever knows them can post there. The links in mails work for whoever has
them, signed in or not: one confirms an address, the other ends the mails of one rule, by a button or by the one click
that mail programs make (RFC 8058).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple, cast

from django import forms
from django.conf import settings
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import transaction
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_http_methods, require_safe

from dashboard.kit.forms import PageForm, code_input, posted_from
from dashboard.kit.guards import public, with_account
from dashboard.kit.rendering import PageContext, TemplateContext, render_page
from insight.notifications import CLUSTER_WIDE, begin
from manciple.audit.sign_ins import NOTIFICATION_ADDRESSES, NOTIFICATION_RULES, note_change
from manciple.durations import duration
from manciple.notifications import addresses, channels, delivering, webhook_formats
from manciple.notifications.addresses import AddressProblem
from manciple.notifications.channels import DeliveryFailed
from manciple.notifications.models import (
    Channel,
    Delivery,
    Happening,
    Notification,
    NotificationAddress,
    NotificationRule,
    WebhookFormat,
)
from manciple.people import Person, person_of
from manciple.store import objects
from manciple.store.event_log import latest_revision
from manciple.store.sealing import Undecipherable
from manciple.wire.identity import Identity
from manciple.wire.quantity import whole
from manciple.wire.resources import NAMESPACES, kind

#: Rules that one person may have.
MOST = 50
#: Minutes in four weeks.
LONGEST = 28 * 24 * 60
EVERYWHERE, MINE = "", "mine"
#: Of a field whose text is never shown again: nor does the browser keep it (`drafts.js`).
_SECRET = {"data-secret": ""}
#: What people create.
_OF_PODS = (Happening.POD_STARTED, Happening.POD_FAILED, Happening.POD_WAITS, Happening.JOB_ENDED)
#: What belongs to no namespace, and affects no claims of one.
_OF_CLUSTER = (Happening.NODE_SILENT, Happening.POOL_INCOMPLETE)


class NotificationRuleForm(PageForm):
    """scope: EVERYWHERE, MINE, or `in:NAMESPACE`."""

    ids = "rule-%s"

    happening = forms.ChoiceField(
        choices=Happening.choices, initial=Happening.POD_STARTED, widget=forms.Select({"class": "input"})
    )
    scope = forms.CharField(required=False, widget=forms.Select({"class": "input"}))
    minutes = forms.IntegerField(
        required=False,
        initial=60,
        validators=[MinValueValidator(1), MaxValueValidator(LONGEST)],
        widget=forms.NumberInput({"class": "input", "min": "1", "max": str(LONGEST)}),
    )
    channels = forms.MultipleChoiceField(
        choices=Channel.choices,
        initial=[Channel.BROWSER.value],
        error_messages={"required": "Choose at least one channel."},
    )

    def __init__(
        self, data: Mapping[str, Any] | None = None, *, person: Person, namespaces: Iterable[str] = ()
    ) -> None:
        super().__init__(data)
        self._person, self._namespaces = person, tuple(namespaces)
        choices = [(EVERYWHERE, "everything that I see"), (MINE, "what I created")]
        choices += [(f"in:{name}", f"namespace {name}") for name in self._namespaces]
        cast("forms.Select", self.fields["scope"].widget).choices = choices

    @classmethod
    def of(cls, rule: NotificationRule, *, person: Person, namespaces: Iterable[str]) -> NotificationRuleForm:
        """As the rule is now."""
        scope = MINE if rule.mine else f"in:{rule.namespace}" if rule.namespace else EVERYWHERE
        typed = {"happening": rule.happening, "scope": scope, "minutes": rule.minutes, "channels": rule.channels}
        return cls(typed, person=person, namespaces=namespaces)

    def clean_scope(self) -> str:
        scope: str = self.cleaned_data["scope"]
        if scope not in (EVERYWHERE, MINE) and scope.removeprefix("in:") not in self._namespaces:
            raise ValidationError("Choose one of the namespaces that you see.", code="unknown_namespace")
        return scope

    def clean(self) -> dict[str, Any]:
        found = self.cleaned_data
        happening, scope = found.get("happening"), found.get("scope")
        resource = next((CLUSTER_WIDE[one] for one in _OF_CLUSTER if one == happening), "")
        if scope == MINE and happening not in _OF_PODS:
            refusal = "People create pods and Jobs only: choose a namespace, or everything."
            self.add_error("scope", ValidationError(refusal, code="no_creator"))
        elif scope and resource:
            refusal = "Nodes and pools belong to no namespace: choose everything."
            self.add_error("scope", ValidationError(refusal, code="no_namespace"))
        elif resource and not self._person.may("list", resource):
            refusal = f"You may not list {resource.partition('.')[0]}. Ask an administrator for a role."
            self.add_error("happening", ValidationError(refusal, code="not_allowed"))
        return found

    def rule(self, person: Any, now: datetime) -> NotificationRule:
        """What a form without errors asks for."""
        found = self.cleaned_data
        scope = found["scope"]
        return NotificationRule(
            person=person,
            happening=found["happening"],
            namespace=scope.removeprefix("in:") if scope.startswith("in:") else "",
            mine=scope == MINE,
            minutes=found["minutes"] or 60,
            channels=found["channels"],
            created_at=now,
        )


class WebhookForm(PageForm):
    """Where to post, and in which format. What is stored is not shown: an address left empty stays as it is.

    stored: what is there already.
    """

    ids = "webhook-%s"

    format = forms.ChoiceField(
        choices=WebhookFormat.choices, initial=WebhookFormat.JSON, widget=forms.Select({"class": "input"})
    )
    url = forms.CharField(
        required=False,
        max_length=500,
        widget=forms.URLInput(
            {"class": "input mono", "placeholder": "https://hooks.example.org/manciple", "autocomplete": "off"}
            | _SECRET
        ),
    )
    integration_key = forms.CharField(required=False, widget=code_input("32 characters", maxlength="32", **_SECRET))

    def __init__(self, data: Mapping[str, Any] | None = None, *, stored: NotificationAddress) -> None:
        super().__init__(data)
        self.fields["format"].initial = stored.webhook_format
        self._stored = stored

    def clean_url(self) -> str:
        url: str = self.cleaned_data["url"].strip()
        try:
            if url:
                addresses.check_webhook(url)
        except AddressProblem as problem:
            raise ValidationError(str(problem)) from problem
        return url

    def clean_integration_key(self) -> str:
        key: str = self.cleaned_data["integration_key"].strip()
        if key and not (len(key) == KEY_LENGTH and key.isascii() and key.isalnum()):
            message = f"An integration key has {KEY_LENGTH} letters and digits."
            raise ValidationError(message, code="no_key")
        return key

    def clean(self) -> dict[str, Any]:
        """Fills in what is stored already, where the receiver stays the same."""
        found = self.cleaned_data
        same = bool(self._stored.webhook) and self._stored.webhook_format == found.get("format")
        pagerduty = found.get("format") == WebhookFormat.PAGERDUTY
        try:
            if not self.errors and not found["url"] and same:
                found["url"] = addresses.url_of(self._stored)
            if not self.errors and pagerduty and same and not found["integration_key"]:
                found["integration_key"] = addresses.secret_of(self._stored)
        except Undecipherable:
            self.add_error("url", ValidationError("The stored address cannot be read.", code="unreadable"))
        if not self.errors and pagerduty and not found["url"]:
            found["url"] = webhook_formats.PAGERDUTY
        if not self.errors and not found["url"]:
            self.add_error("url", ValidationError("Enter the address to post to.", code="required"))
        if not self.errors and pagerduty and not found["integration_key"]:
            self.add_error("integration_key", ValidationError("Enter the integration key.", code="required"))
        return found


#: Characters of PagerDuty's integration keys.
KEY_LENGTH = 32


class EmailForm(PageForm):
    """An e-mail address, or none."""

    ids = "email-%s"

    email = forms.EmailField(
        required=False,
        error_messages={"invalid": "Write an address such as ada@example.org."},
        widget=forms.EmailInput({"class": "input", "placeholder": "ada@example.org", "autocomplete": "email"}),
    )


UNPROCESSABLE = 422
#: Notifications that are listed: the latest.
SHOWN = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelState:
    """One channel. lack: what has to be done before something may be sent there, "" for nothing."""

    channel: Channel
    lack: str


class ShownRule(NamedTuple):
    """A rule in words."""

    rule: NotificationRule
    what: str
    scope: str
    ways: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class NotificationsContext(PageContext):
    """mails: whether this installation sends any. secret: of the webhook, where one was just made. webhook_at: what is
    shown of its address. changed: the rule that the form changes; None of a new one.
    """

    rules: Sequence[ShownRule]
    rule_form: NotificationRuleForm
    changed: NotificationRule | None
    ways: Sequence[ChannelState]
    address: NotificationAddress
    webhook_at: str
    webhook_form: WebhookForm
    email_form: EmailForm
    mails: bool
    secret: str
    told: QuerySet[Notification]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfirmedContext(TemplateContext):
    """address: None of a link that is out of date."""

    address: NotificationAddress | None


@dataclass(frozen=True, slots=True, kw_only=True)
class UnsubscribeContext(TemplateContext):
    """known: whether the link is one of ours. rule: None where it is gone. done: its mails have just been ended."""

    rule: NotificationRule | None
    known: bool
    done: bool


@with_account
@never_cache
@require_safe
def show_notifications(request: HttpRequest) -> HttpResponse:
    """The page; `?rule=` with a rule to change in the form, `?when=` with a new one begun, `&of=` a scope."""
    return _draw(request, changed=_own_rule(request, request.GET.get("rule", "")))


def _own_rule(request: HttpRequest, number: str) -> NotificationRule | None:
    """None where there is none, or no longer."""
    return _own_rules(request).filter(pk=whole(number) or 0).first()


def _own_rules(request: HttpRequest) -> QuerySet[NotificationRule]:
    return NotificationRule.objects.filter(person=request.user)  # type: ignore[misc]  # somebody is signed in


def _draw(
    request: HttpRequest,
    *,
    changed: NotificationRule | None = None,
    rule_form: NotificationRuleForm | None = None,
    webhook_form: WebhookForm | None = None,
    email_form: EmailForm | None = None,
    secret: str = "",
    status: int = 200,
) -> HttpResponse:
    user: Any = request.user
    address = addresses.address_of(user)
    rules = _own_rules(request).order_by("pk")
    told = Notification.objects.filter(person=user).prefetch_related("deliveries").order_by("-pk")[:SHOWN]
    context = NotificationsContext(
        place="notifications",
        revision=latest_revision(),
        rules=[
            ShownRule(rule, what_of(rule), _scope_of(rule), [str(Channel(one).label) for one in rule.channels])
            for rule in rules
        ],
        rule_form=rule_form or _rule_form(request, None, changed),
        changed=changed,
        ways=channel_states(address),
        address=address,
        webhook_at=addresses.host_of(address),
        webhook_form=webhook_form or WebhookForm(stored=address),
        email_form=email_form or EmailForm({"email": address.email}),
        mails=channels.mails(),
        secret=secret,
        told=told,
    )
    return render_page(request, "people/notifications/page.html", context, status=status)


def channel_states(address: NotificationAddress) -> Sequence[ChannelState]:
    """All channels, in the order of the page."""
    confirmed = bool(address.email and address.email_confirmed)
    lacks = {
        Channel.BROWSER: "",
        Channel.WEBHOOK: "" if address.webhook else "give an address first",
        Channel.EMAIL: "this installation sends no e-mail" if not channels.mails()
        else "" if confirmed
        else "its address is not confirmed yet" if address.email
        else "give an address first",
    }  # fmt: skip
    return [ChannelState(channel=channel, lack=lack) for channel, lack in lacks.items()]


def what_of(rule: NotificationRule) -> str:
    """`A pod waits for over 1 h`."""
    if rule.happening == Happening.POD_WAITS:
        return f"A pod waits for over {duration(rule.minutes * 60)}"
    return str(Happening(rule.happening).label)


def _scope_of(rule: NotificationRule) -> str:
    if rule.mine:
        return "what you created"
    return f"namespace {rule.namespace}" if rule.namespace else "everything that you see"


def _rule_form(request: HttpRequest, data: Any, changed: NotificationRule | None = None) -> NotificationRuleForm:
    person = person_of(request)
    namespaces = [one.name for one in objects.list(kind(NAMESPACES)).items if person.sees(one.name)]
    if changed is not None and data is None:
        return NotificationRuleForm.of(changed, person=person, namespaces=namespaces)
    form = NotificationRuleForm(data, person=person, namespaces=namespaces)
    if request.GET.get("when", "") in Happening.values:
        form.initial["happening"], form.initial["scope"] = request.GET["when"], request.GET.get("of", "")
    return form


# Rules ---------------------------------------------------------------------------------------------------------------


@with_account
@posted_from("notifications")
def keep_rule(request: HttpRequest) -> HttpResponse:
    """A new one, or with `rule` another state of one that there is."""
    changed, form = _own_rule(request, request.POST.get("rule", "")), _rule_form(request, request.POST)
    if form.is_valid():
        ready = {state.channel.value for state in channel_states(addresses.address_of(request.user)) if not state.lack}
        if lacking := set(form.cleaned_data["channels"]) - ready:
            names = " and ".join(sorted(Channel(one).label for one in lacking))
            form.add_error("channels", ValidationError(f"{names} cannot be used yet, see below.", code="not_ready"))
        elif _like(
            form.rule(request.user, datetime.now(UTC)), _own_rules(request).exclude(pk=changed.pk if changed else 0)
        ):
            form.add_error(None, ValidationError("You have that rule already: change it above.", code="duplicate"))
        elif changed is None and _own_rules(request).count() >= MOST:
            form.add_error(None, f"You have {MOST} rules already. Delete one first.")
    if not form.is_valid():
        return _draw(request, rule_form=form, changed=changed, status=UNPROCESSABLE)
    rule = form.rule(request.user, datetime.now(UTC))
    rule.pk = changed.pk if changed is not None else None
    with transaction.atomic():
        # First, so that the rule is about all that happens once it is there.
        begin()
        rule.save()
    note_change(person_of(request).identity, "update" if changed else "create", NOTIFICATION_RULES, _audited_name(rule))
    what = what_of(rule)
    messages.success(request, f"You are notified when {what[0].lower()}{what[1:]}.")
    return redirect("notifications")


def _like(rule: NotificationRule, others: QuerySet[NotificationRule]) -> bool:
    """Whether one of the others notifies of the same."""
    same = {"happening": rule.happening, "namespace": rule.namespace, "mine": rule.mine}
    if rule.happening == Happening.POD_WAITS:
        same["minutes"] = rule.minutes
    return others.filter(**same).exists()


@with_account
@posted_from("notifications")
def delete_rule(request: HttpRequest) -> HttpResponse:
    found = _own_rule(request, request.POST.get("rule", ""))
    if found is None:
        raise Http404("That rule no longer exists.")
    note_change(person_of(request).identity, "delete", NOTIFICATION_RULES, _audited_name(found))
    found.delete()
    messages.success(request, "The rule is deleted.")
    return redirect("notifications")


def _audited_name(rule: NotificationRule) -> str:
    return f"{rule.person.get_username()}/{rule.pk}"


def _note_address(request: HttpRequest) -> None:
    person = person_of(request)
    note_change(person.identity, "update", NOTIFICATION_ADDRESSES, person.name)


# Channels ------------------------------------------------------------------------------------------------------------


@with_account
@never_cache
@posted_from("notifications")
def keep_webhook(request: HttpRequest) -> HttpResponse:
    """Where to post; with `secret` another secret for the address that is there, with `remove` nowhere any more."""
    user: Any = request.user
    known = addresses.address_of(user)
    if "remove" in request.POST:
        addresses.set_webhook(user, "")
        _note_address(request)
        messages.success(request, "The webhook is removed.")
        return redirect("notifications")
    if "secret" in request.POST and known.webhook_format == WebhookFormat.JSON:
        secret = addresses.new_secret(known)
        known.save()
        _note_address(request)
        return _draw(request, secret=secret)
    form = WebhookForm(request.POST, stored=known)
    if not form.is_valid():
        return _draw(request, webhook_form=form, status=UNPROCESSABLE)
    found = form.cleaned_data
    secret = addresses.set_webhook(
        user, found["url"], format=WebhookFormat(found["format"]), integration_key=found["integration_key"]
    )
    _note_address(request)
    if secret:
        return _draw(request, secret=secret)
    same = " Its secret is the same as before." if found["format"] == WebhookFormat.JSON else ""
    messages.success(request, f"The webhook is saved.{same}")
    return redirect("notifications")


@with_account
@posted_from("notifications")
def keep_email(request: HttpRequest) -> HttpResponse:
    """Another address or none; a new one is sent a link."""
    form = EmailForm(request.POST)
    if form.is_valid() and form.cleaned_data["email"] and not channels.mails():
        form.add_error("email", "No e-mail here: ask an administrator to set MANCIPLE_MAIL_URL.")
    if form.is_valid():
        email = form.cleaned_data["email"]
        try:
            token = addresses.set_email(request.user, email, datetime.now(UTC))
            _note_address(request)
            if token:
                link = f"{settings.PAGES_URL.rstrip('/')}/notifications/confirm/{token}"
                channels.mail_confirmation(email, link)
                messages.success(request, f"Follow the link sent to {email} within a day.")
            elif not email:
                messages.success(request, "The e-mail address is removed.")
        except (AddressProblem, DeliveryFailed) as problem:
            form.add_error("email", str(problem))
    if not form.is_valid():
        return _draw(request, email_form=form, status=UNPROCESSABLE)
    return redirect("notifications")


@with_account
@posted_from("notifications")
def send_test(request: HttpRequest) -> HttpResponse:
    """By `channel`: at once, and a single time."""
    wanted = request.POST.get("channel", "")
    if wanted not in Channel.values:
        raise Http404("There is no such channel.")
    try:
        delivery = delivering.send_test(request.user, Channel(wanted), now=datetime.now(UTC))
    except delivering.TestUnderWay:
        messages.error(request, "Your last test is still running.")
        return redirect("notifications")
    outcome = outcome_of(delivery)
    if delivery.state == Delivery.State.GIVEN_UP:
        messages.error(request, f"The test was not sent: {delivery.problem}{outcome and f' ({outcome})'}.")
    elif delivery.state == Delivery.State.SENT:
        by = delivery.get_channel_display().lower()
        messages.success(request, f"The test was sent by {by}{outcome and f' ({outcome})'}.")
    else:
        messages.success(request, "The test appears within seconds.")
    return redirect("notifications")


def outcome_of(delivery: Delivery) -> str:
    """`status 202, 143 ms`; "" where nothing was called."""
    if delivery.took is None:
        return ""
    time = f"{delivery.took} ms" if delivery.took < SECOND else f"{delivery.took / SECOND:.1f} s"
    return f"status {delivery.status}, {time}" if delivery.status else f"no answer, {time}"


#: In milliseconds.
SECOND = 1000


# Links of mails ------------------------------------------------------------------------------------------------------


@public
@never_cache
@require_safe
def confirm(request: HttpRequest, token: str) -> HttpResponse:
    known = addresses.confirm_email(token)
    return render_page(request, "people/notifications/confirmed.html", ConfirmedContext(address=known))


@public
@csrf_exempt  # whoever has the link may; mail programs post to it without a page
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def unsubscribe(request: HttpRequest, token: str) -> HttpResponse:
    number = addresses.unsubscribed_rule(token)
    rule = NotificationRule.objects.filter(pk=number or 0).first()
    done = request.method == "POST"
    if rule is not None and done:
        rest = [one for one in rule.channels if one != Channel.EMAIL]
        owner = Identity(rule.person.get_username())
        note_change(owner, "update" if rest else "delete", NOTIFICATION_RULES, _audited_name(rule))
        if rest:
            NotificationRule.objects.filter(pk=rule.pk).update(channels=rest)
        else:
            rule.delete()
    context = UnsubscribeContext(rule=rule, known=number is not None, done=done)
    return render_page(request, "people/notifications/unsubscribe.html", context)

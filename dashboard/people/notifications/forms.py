"""What a person may type about being told: a rule, a webhook, an e-mail address."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, cast

from django import forms
from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator

from dashboard.kit.forms import PageForm
from manciple.notifications import addresses
from manciple.notifications.addresses import AddressProblem
from manciple.notifications.models import Channel, Happening, NotificationRule

#: Rules that one person may have.
MOST = 50
#: Minutes in four weeks: who waits longer than that has been told of it before.
LONGEST = 28 * 24 * 60
EVERYWHERE, MINE = "", "mine"


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
        error_messages={"required": "Choose at least one way to be told."},
    )

    def __init__(self, data: Mapping[str, Any] | None = None, *, namespaces: Iterable[str] = ()) -> None:
        super().__init__(data)
        self._namespaces = tuple(namespaces)
        choices = [(EVERYWHERE, "everything that I see"), (MINE, "pods that I created")]
        choices += [(f"in:{name}", f"namespace {name}") for name in self._namespaces]
        cast("forms.Select", self.fields["scope"].widget).choices = choices

    @classmethod
    def of(cls, rule: NotificationRule, *, namespaces: Iterable[str]) -> NotificationRuleForm:
        """As the rule is now."""
        scope = MINE if rule.mine else f"in:{rule.namespace}" if rule.namespace else EVERYWHERE
        typed = {"happening": rule.happening, "scope": scope, "minutes": rule.minutes, "channels": rule.channels}
        return cls(typed, namespaces=namespaces)

    def clean_scope(self) -> str:
        scope: str = self.cleaned_data["scope"]
        if scope not in (EVERYWHERE, MINE) and scope.removeprefix("in:") not in self._namespaces:
            raise ValidationError("Choose one of the namespaces that you see.", code="unknown_namespace")
        return scope

    def clean(self) -> dict[str, Any]:
        found = self.cleaned_data
        if found.get("happening") == Happening.DEVICE_FAILS and found.get("scope") == MINE:
            refusal = "Nobody creates a device: choose a namespace, or everything."
            self.add_error("scope", ValidationError(refusal, code="no_creator"))
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
    """An address that may be called, or none."""

    ids = "webhook-%s"

    url = forms.CharField(
        required=False,
        max_length=500,
        widget=forms.URLInput(
            {"class": "input mono", "placeholder": "https://hooks.example.org/manciple", "autocomplete": "off"}
        ),
    )

    def clean_url(self) -> str:
        url: str = self.cleaned_data["url"].strip()
        try:
            if url:
                addresses.check_webhook(url)
        except AddressProblem as problem:
            raise ValidationError(str(problem)) from problem
        return url


class EmailForm(PageForm):
    """An e-mail address, or none."""

    ids = "email-%s"

    email = forms.EmailField(
        required=False,
        error_messages={"invalid": "Write an address such as ada@example.org."},
        widget=forms.EmailInput({"class": "input", "placeholder": "ada@example.org", "autocomplete": "email"}),
    )

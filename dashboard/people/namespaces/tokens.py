"""Tokens of service accounts: made by a button, shown in the answer to it, and nowhere again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django import forms

from dashboard.kit.forms import PageForm
from manciple.access.kinds.service_accounts import SERVICE_ACCOUNT, TokenRequest, TokenRequestSpec
from manciple.api import service_account_tokens
from manciple.api.auditing import page_write
from manciple.api.requests import ResourcePath, WriteOptions
from manciple.people import Person
from manciple.wire import codec

#: What asking for one takes the right to create.
TOKENS = f"{SERVICE_ACCOUNT.resource}/token"
HOUR = 3600
#: Seconds to choose from, and their words.
LIFETIMES = (
    (HOUR, "1 hour"), (8 * HOUR, "8 hours"), (24 * HOUR, "1 day"), (7 * 24 * HOUR, "7 days"),
    (30 * 24 * HOUR, "30 days"), (365 * 24 * HOUR, "1 year"),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountToken:
    """expires: when, as the API writes moments."""

    account: str
    text: str
    expires: str


class TokenForm(PageForm):
    """accounts: those of which the person may have tokens."""

    ids = "account-%s"

    account = forms.ChoiceField(
        widget=forms.Select({"class": "input"}),
        error_messages={"invalid_choice": "%(value)s is not here any more, or you may have no token of it."},
    )
    lifetime = forms.TypedChoiceField(
        coerce=int, choices=LIFETIMES, initial=8 * HOUR, widget=forms.Select({"class": "input"})
    )

    def __init__(self, accounts: Sequence[str], data: Any = None) -> None:
        super().__init__(data)
        field: Any = self.fields["account"]
        field.choices = [(name, name) for name in accounts]


def may_have(person: Person, namespace: str, account: str) -> bool:
    return person.may("create", TOKENS, namespace, account)


def issue(person: Person, namespace: str, account: str, *, seconds: int) -> AccountToken:
    """As `kubectl create token` gets one. Raises: ApiError."""
    asked = TokenRequest(
        api_version="authentication.k8s.io/v1", kind="TokenRequest", spec=TokenRequestSpec(expiration_seconds=seconds)
    )
    where = ResourcePath(
        group="",
        version="v1",
        plural=SERVICE_ACCOUNT.plural,
        namespace=namespace,
        name=account,
        subresource="token",
    )
    written = page_write(
        "create",
        SERVICE_ACCOUNT,
        identity=person.identity,
        namespace=namespace,
        name=account,
        subresource="token",
    )
    with written:
        answer = service_account_tokens.request_token(
            SERVICE_ACCOUNT,
            where,
            codec.encode(asked),
            content_type="application/json",
            identity=person.identity,
            options=WriteOptions(),
        )
    status = answer["status"]
    return AccountToken(account=account, text=status["token"], expires=status["expirationTimestamp"])

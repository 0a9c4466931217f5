"""Reads the service accounts of a namespace and their roles, as far as the person may list both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dashboard.kit import links
from dashboard.people.access.views import may_ask
from dashboard.people.roles.reading import GivenRole, roles_of_accounts
from manciple.access.kinds.service_accounts import SERVICE_ACCOUNT, ServiceAccount
from manciple.people import Person
from manciple.store.objects import listed
from manciple.wire.identity import service_account_name


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceAccount:
    """One service account. url: of what it may do and why, "" for who may not ask."""

    name: str
    url: str
    roles: Sequence[GivenRole]
    has_token: bool
    pull_secrets: Sequence[str]


def read_accounts(person: Person, namespace: str) -> list[NamespaceAccount] | None:
    """None for who may not list them."""
    if not person.may("list", SERVICE_ACCOUNT.resource, namespace):
        return None
    _, found = listed(SERVICE_ACCOUNT.resource, ServiceAccount, namespace=namespace)
    given, asks = roles_of_accounts(person, namespace), may_ask(person)
    return [
        NamespaceAccount(
            name=one.metadata.name,
            url=links.access_url(service_account_name(namespace, one.metadata.name)) if asks else "",
            roles=given.get(one.metadata.name, ()),
            has_token=one.automount_service_account_token is not False,
            pull_secrets=[secret.name for secret in one.image_pull_secrets],
        )
        for one in found
    ]

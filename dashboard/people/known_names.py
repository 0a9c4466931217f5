"""Which people, groups and namespaces there are, and what somebody probably meant who names another one."""

from __future__ import annotations

from collections.abc import Iterable

from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group

from dashboard.kit.suggestions import did_you_mean
from manciple.access import rbac
from manciple.access.authentication import tokens
from manciple.access.kinds import roles
from manciple.access.kinds.service_accounts import SERVICE_ACCOUNT
from manciple.store import objects
from manciple.wire.identity import ANONYMOUS, NAMESPACE_GROUP, VIEWERS, account_of
from manciple.wire.resources import NAMESPACES, NODES, kind

#: Names that begin so are the system's own.
_SYSTEM, _NODE = "system:", "system:node:"


def namespaces() -> list[str]:
    return [one.name for one in objects.list(kind(NAMESPACES)).items]


def people() -> Iterable[str]:
    names: Iterable[str] = get_user_model()._default_manager.order_by("username").values_list("username", flat=True)
    return names


def groups() -> list[str]:
    """Those with members, those that bindings name, and those that open a namespace."""
    with_members = Group.objects.filter(user__isnull=False).values_list("name", flat=True).distinct()
    bound = (name for kind_, name in rbac.policy().places if kind_ == roles.GROUP_KIND)
    named = {*with_members, *bound, VIEWERS, *(f"{NAMESPACE_GROUP}{name}" for name in namespaces())}
    return sorted(name for name in named if not name.startswith(_SYSTEM))


def unknown_namespace(name: str) -> str:
    """What is wrong with it; "" for one that exists."""
    known = namespaces()
    return "" if not name or name in known else f"Namespace {name} does not exist.{did_you_mean(name, known)}"


def unknown_group(name: str) -> str:
    known = groups()
    if name in known or name.startswith(_SYSTEM):
        return ""
    if name.startswith(NAMESPACE_GROUP) and not name.endswith(":"):
        meant = did_you_mean(name, (one for one in known if one.startswith(NAMESPACE_GROUP)))
        return f"Namespace {name.removeprefix(NAMESPACE_GROUP)} of group {name} does not exist.{meant}"
    opening = f"{NAMESPACE_GROUP}{name}"
    meant = f" Did you mean {opening}?" if opening in known else did_you_mean(name, known)
    return f"Nobody is in group {name}, and no binding names it.{meant}"


def unknown_person(name: str) -> str:
    return "" if name in people() else f"Nobody called {name} has an account here.{did_you_mean(name, people())}"


def unknown_user(name: str) -> str:
    """Of any user of the API: a person, a node, a service account."""
    if account := account_of(name):
        return unknown_account(*account)
    if name.startswith(_NODE):
        node = name.removeprefix(_NODE)
        known = [one.name for one in objects.list(kind(NODES)).items]
        return "" if node in known else f"Node {node} does not exist.{did_you_mean(node, known)}"
    if name.startswith(_SYSTEM) or name == ANONYMOUS.name or name in people() or tokens.named(name).exists():
        return ""
    bound = "" if not rbac.policy().names(name) else " Bindings name them."
    return f"Nobody called {name} has an account or a token here.{bound}{did_you_mean(name, people())}"


def unknown_account(namespace: str, name: str) -> str:
    if message := unknown_namespace(namespace):
        return message
    known = [one.name for one in objects.list(SERVICE_ACCOUNT, namespace=namespace).items]
    meant = did_you_mean(name, known)
    return "" if name in known else f"Namespace {namespace} has no service account {name}.{meant}"

"""Every namespace has its service account and the API's authority, from its first moment to its last."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from msgspec.structs import replace
from pytest_django.fixtures import Settings

from manciple.access import namespace_defaults
from manciple.access.kinds.secrets import CONFIG_MAP, ConfigMap
from manciple.access.kinds.service_accounts import SERVICE_ACCOUNT
from manciple.api import namespaces, verbs
from manciple.store import objects
from manciple.wire.identity import MASTERS, Identity
from manciple.wire.machinery import NAMESPACE
from tests.builders import make_meta, make_namespace

ALICE = Identity("alice", (MASTERS,))
pytestmark = pytest.mark.django_db


@pytest.fixture
def authority(settings: Settings, tmp_path: Path) -> Path:
    """The file with the certificate."""
    settings.CA_FILE = tmp_path / "ca.crt"
    settings.CA_FILE.write_text("first\n")
    return Path(settings.CA_FILE)


def make(name: str = "team-a") -> None:
    verbs.create(NAMESPACE, make_namespace(name), identity=ALICE)


def held(namespace: str = "team-a") -> dict[str, str]:
    """What stands in the namespace: names, with what config maps say."""
    accounts = {one.name: "" for one in objects.list(SERVICE_ACCOUNT, namespace=namespace).items}
    maps = (objects.decode(CONFIG_MAP, one.text) for one in objects.list(CONFIG_MAP, namespace=namespace).items)
    return accounts | {one.metadata.name: one.data["ca.crt"] for one in maps if isinstance(one, ConfigMap)}


COMPLETE = {"default": "", "kube-root-ca.crt": "first\n"}


def test_a_namespace_is_made_with_them(authority: Path) -> None:
    make()
    assert held() == COMPLETE


def test_a_process_without_the_authority_leaves_it_to_others(authority: Path) -> None:
    authority.unlink()
    make()
    assert held() == {"default": ""}
    assert namespace_defaults.restore() == 0
    authority.write_text("first\n")
    assert namespace_defaults.restore() == 1
    assert held() == COMPLETE


def test_what_somebody_took_away_or_changed_is_restored(authority: Path) -> None:
    make("team-a")
    make("team-b")
    for identity in ("default", "kube-root-ca.crt"):
        kind = SERVICE_ACCOUNT if identity == "default" else CONFIG_MAP
        verbs.delete(kind, namespace="team-a", name=identity, identity=ALICE)
    verbs.modify(
        CONFIG_MAP,
        lambda old: replace(old, data={"ca.crt": "mine"}, binary_data={"x": "AAAA"}),
        namespace="team-b",
        name="kube-root-ca.crt",
        identity=ALICE,
    )
    assert namespace_defaults.restore() == 3
    assert (held("team-a"), held("team-b")) == (COMPLETE, COMPLETE)
    assert namespace_defaults.restore() == 0


def test_a_new_authority_reaches_every_namespace(authority: Path) -> None:
    make()
    authority.write_text("second\n")
    namespace_defaults.restore()
    assert held()["kube-root-ca.crt"] == "second\n"


def test_a_namespace_with_nothing_else_goes_at_once_and_they_go_with_it(authority: Path) -> None:
    make()
    verbs.delete(NAMESPACE, namespace="", name="team-a", identity=ALICE)
    assert objects.get(NAMESPACE, "", "team-a") is None
    assert held() == {}


def test_a_namespace_that_ends_gets_nothing_any_more(authority: Path) -> None:
    make()
    own = ConfigMap(metadata=make_meta("own", "team-a", finalizers=("example.com/hold",)), data={"ca.crt": ""})
    verbs.create(CONFIG_MAP, own, namespace="team-a", identity=ALICE)
    verbs.delete(NAMESPACE, namespace="", name="team-a", identity=ALICE)
    verbs.delete(SERVICE_ACCOUNT, namespace="team-a", name="default", identity=ALICE)
    assert namespace_defaults.restore() == 0
    assert "default" not in held()
    verbs.modify(
        CONFIG_MAP,
        lambda old: replace(old, metadata=replace(old.metadata, finalizers=())),
        namespace="team-a",
        name="own",
        identity=ALICE,
    )
    verbs.delete(CONFIG_MAP, namespace="team-a", name="own", identity=ALICE)
    assert namespaces.sweep(datetime.now(UTC)) == 1
    assert held() == {}

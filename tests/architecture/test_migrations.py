"""Migrations since the last release only add: the release before goes on working on the tables, so that they can be
changed while it runs, and be left as they are where an upgrade is backed out (docs/operating.md, "Upgrading").

What a release does not use any more goes with the release after it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from django.db import migrations
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.operations.base import Operation

ROOT = Path(__file__).parents[2]
#: The last migrations of the release before, v0.2.0-rc.1: app -> name.
RELEASED = {
    "access": "0007_outside_accounts",
    "api": "0002_tokens_move_to_access",
    "audit": "0001_the_trail",
    "claims": "0004_claims_by_source",
    "inventory": "0003_departed_nodes",
    "scheduling": "0005_causes",
    "store": "0004_who_wrote_it",
}
#: Of whom nothing but a page that is gone knew: the administration of Django.
EXCUSED = {("access", "0008_without_django_admin")}
ADDING = (migrations.CreateModel, migrations.AddIndex)


def since_the_release() -> Iterator[tuple[str, str, Operation]]:
    for (app, name), migration in MigrationLoader(None).disk_migrations.items():
        ours = (ROOT / (migration.__module__.replace(".", "/") + ".py")).exists()
        if ours and name > RELEASED.get(app, "") and (app, name) not in EXCUSED:
            yield from ((app, name, operation) for operation in migration.operations)


def only_adds(operation: Operation) -> bool:
    """Whether who does not know of it can write rows as before."""
    if isinstance(operation, migrations.AddField):
        return bool(operation.field.null or operation.field.has_db_default() or operation.field.many_to_many)
    return isinstance(operation, ADDING)


def test_migrations_since_the_release_before_only_add() -> None:
    found = list(since_the_release())
    assert found
    assert [f"{app}.{name}: {one.describe()}" for app, name, one in found if not only_adds(one)] == []

"""Migrations since the last release only add: the release before goes on working on the tables, so that they can be
changed while it runs beside this version, and be left as they are where an upgrade is backed out
(docs/how-to/upgrading.md).

What a release does not use any more goes with the release after it. A release stops using a column by
`SeparateDatabaseAndState` that takes it out of the state alone; the database must be able to fill it by itself then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import connection, migrations, models
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ModelState, ProjectState

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
#: Of whom nothing but a page that is gone knew: the administration of Django. Sessions end once: who signs in again at
#: the release before gets one that only that release reads. People are added to a group that the release before knows,
#: and tokens deleted that it refuses. It does not know of the limit for refusals. Unique constraints name the node of a
#: pool too: whatever could be written can be written still. New tables and columns are filled. Nobody sees how a text
#: is compressed, whether it is in the page of its row, or which index finds it. That release has no notifications.
EXCUSED = {
    ("access", "0008_without_django_admin"),
    ("access", "0009_sessions_by_digest"),
    ("access", "0010_rights_are_given"),
    ("access", "0012_table_of_the_admin"),
    ("audit", "0003_refusals_of_before"),
    ("claims", "0007_devices_by_node"),
    ("claims", "0010_pods_of_claims"),
    ("claims", "0011_quotas"),
    ("claims", "0013_templates"),
    ("claims", "0020_template_lookups"),
    ("inventory", "0005_pools_by_node"),
    ("inventory", "0008_lists_of_nodes"),
    ("notifications", "0002_alarms_and_formats"),
    ("store", "0007_lz4_documents"),
    ("store", "0008_rows_in_their_page"),
}
#: Of what a column is, what the rows that others write do not feel.
UNFELT = {"null", "db_default", "default", "blank", "choices", "help_text", "verbose_name", "validators"}
#: Tables from which no version deletes a row, so that a new table may hold on to one: accounts are closed.
KEPT = {"auth.user"}


def fills_itself(field: models.Field[Any, Any]) -> bool:
    """Whether a row can be written by who does not know of this column."""
    return bool(field.null or field.has_db_default() or field.many_to_many)


def holds_on(field: models.Field[Any, Any], released: ProjectState) -> bool:
    """Whether a row that refers to another keeps who does not know of it from deleting that one."""
    if not field.is_relation or not getattr(field, "db_constraint", False):
        return False
    target = field.related_model
    label = str(target if isinstance(target, str) or target is None else target._meta.label).lower()
    return tuple(label.split(".")) in released.models and label not in KEPT


def loosens(before: models.Field[Any, Any], after: models.Field[Any, Any]) -> bool:
    """Whether whatever could be written can be written still."""
    kinds = [
        (path, {name: value for name, value in named.items() if name not in UNFELT})
        for _, path, _, named in (before.deconstruct(), after.deconstruct())
    ]
    narrower = (before.null and not after.null) or (before.has_db_default() and not after.has_db_default())
    return kinds[0] == kinds[1] and not narrower


def keeps_its_column(operation: Operation, known: Callable[[str, str], models.Field[Any, Any]]) -> bool:
    """Whether it changes only what Python makes of a column."""
    if not isinstance(operation, migrations.AlterField):
        return False
    before, after = known(operation.model_name, operation.name), operation.field
    return (before.db_type(connection), before.null) == (after.db_type(connection), after.null)


def only_adds(operation: Operation, before: ProjectState, released: ProjectState, app: str) -> bool:
    """Whether the release before can read and write as it did. before: what the operation changes."""

    def known(model: str, field: str) -> models.Field[Any, Any]:
        found: models.Field[Any, Any] = before.models[app, model.lower()].fields[field]
        return found

    match operation:
        case migrations.AddField(field=field):
            return fills_itself(field) and not (field.unique and not field.null) and not holds_on(field, released)
        case migrations.CreateModel(fields=fields):
            return not any(holds_on(field, released) for _, field in fields)
        case migrations.AlterField(model_name=model, name=name, field=field):
            return loosens(known(model, name), field)
        case migrations.SeparateDatabaseAndState():
            moves = (migrations.CreateModel, migrations.DeleteModel)
            if not operation.database_operations and all(
                isinstance(one, moves) or keeps_its_column(one, known) for one in operation.state_operations
            ):
                return True  # a model goes to another app, or a field reads its column otherwise: the table stays
            removed = [one for one in operation.state_operations if isinstance(one, migrations.RemoveField)]
            return (
                len(removed) == len(operation.state_operations)
                and all(fills_itself(known(one.model_name, one.name)) for one in removed)
                and all(only_adds(one, before, released, app) for one in operation.database_operations)
            )
    return isinstance(operation, (migrations.AddIndex, migrations.AlterModelOptions))


def since_the_release() -> Iterator[tuple[str, str, Operation, ProjectState]]:
    """Each with the state before it."""
    loader = MigrationLoader(None)
    for (app, name), migration in loader.disk_migrations.items():
        ours = (ROOT / (migration.__module__.replace(".", "/") + ".py")).exists()
        if ours and name > RELEASED.get(app, "") and (app, name) not in EXCUSED:
            state = loader.project_state((app, name), at_end=False)
            for operation in migration.operations:
                yield app, name, operation, state.clone()
                operation.state_forwards(app, state)


def test_migrations_since_the_release_before_only_add() -> None:
    found = list(since_the_release())
    assert found
    released = MigrationLoader(None).project_state(
        [*RELEASED.items(), ("auth", "0012_alter_user_first_name_max_length")]
    )
    assert [
        f"{app}.{name}: {operation.describe()}"
        for app, name, operation, before in found
        if not only_adds(operation, before, released, app)
    ] == []


# The rule itself ------------------------------------------------------------------------------------------------------


def a_release() -> ProjectState:
    fields: list[tuple[str, models.Field[Any, Any]]] = [
        ("id", models.AutoField(primary_key=True)),
        ("note", models.TextField()),
    ]
    state = ProjectState()
    state.add_model(ModelState("shop", "Order", [*fields, ("hint", models.TextField(null=True))]))
    state.add_model(ModelState("auth", "User", fields))
    return state


def refers(to: str, *, holds: bool = True) -> migrations.CreateModel:
    return migrations.CreateModel("Line", [("of", models.ForeignKey(to, models.CASCADE, db_constraint=holds))])


def out_of_state(column: str) -> migrations.SeparateDatabaseAndState:
    return migrations.SeparateDatabaseAndState(state_operations=[migrations.RemoveField("order", column)])


SAFE = {
    "a column that may be empty": migrations.AddField("order", "at", models.DateTimeField(null=True)),
    "a column that the database fills": migrations.AddField("order", "n", models.IntegerField(db_default=0)),
    "a table": migrations.CreateModel("Line", [("id", models.AutoField(primary_key=True))]),
    "a table that lets go": refers("shop.Order", holds=False),
    "a table that refers to what is kept": refers("auth.User"),
    "a column that may be empty from now on": migrations.AlterField("order", "note", models.TextField(null=True)),
    "a column that is not used any more": out_of_state("hint"),
}
BREAKING = {
    "a column that Django alone fills": migrations.AddField("order", "n", models.IntegerField(default=0)),
    "a column whose one default may be there once": migrations.AddField(
        "order", "code", models.CharField(max_length=9, db_default="", unique=True)
    ),
    "a column less": migrations.RemoveField("order", "hint"),
    "another name": migrations.RenameField("order", "note", "remark"),
    "a table less": migrations.DeleteModel("Order"),
    "a table of another name": migrations.RenameModel("Order", "Purchase"),
    "a column that may not be empty from now on": migrations.AlterField("order", "hint", models.TextField()),
    "a column of another kind": migrations.AlterField("order", "note", models.CharField(max_length=9)),
    "a table that holds on to what may be deleted": refers("shop.Order"),
    "a column that is not used any more and must be filled": out_of_state("note"),
    "what nobody can tell": migrations.RunSQL("DROP TABLE shop_order"),
    "a rule for rows": migrations.AddConstraint(
        "order", models.UniqueConstraint(fields=["note"], name="one_note")
    ),
}  # fmt: skip


@pytest.mark.parametrize("operation", SAFE.values(), ids=SAFE)
def test_what_the_release_before_does_not_feel_is_allowed(operation: Operation) -> None:
    assert only_adds(operation, a_release(), a_release(), "shop")


@pytest.mark.parametrize("operation", BREAKING.values(), ids=BREAKING)
def test_what_breaks_the_release_before_is_refused(operation: Operation) -> None:
    assert not only_adds(operation, a_release(), a_release(), "shop")

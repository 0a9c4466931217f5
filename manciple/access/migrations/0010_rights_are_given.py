"""People without a group saw every namespace until now. Those who are here keep that, as members of `manciple:viewers`;
people who come later see nothing until somebody adds them to a group.

Administrators may do everything anyway, and get no group: who gives up administration keeps what was given by name.
Tokens of closed accounts go; they worked again as soon as the account was opened.
"""

from typing import Any

from django.conf import settings
from django.db import migrations

VIEWERS, RESERVED = "manciple:viewers", "system:"


def keep_viewers(apps: Any, schema_editor: Any) -> None:
    database = schema_editor.connection.alias
    users = apps.get_model(*settings.AUTH_USER_MODEL.split(".")).objects.using(database)
    groups = apps.get_model("auth", "Group").objects.using(database)
    in_a_group = users.exclude(groups=None).filter(groups__in=groups.exclude(name__startswith=RESERVED))
    relying = users.filter(is_staff=False).exclude(pk__in=in_a_group.values("pk"))
    if relying.exists():
        viewers, _ = groups.get_or_create(name=VIEWERS)
        for person in relying.iterator():
            person.groups.add(viewers)


def end_tokens_of_closed_accounts(apps: Any, schema_editor: Any) -> None:
    tokens = apps.get_model("access", "Token").objects.using(schema_editor.connection.alias)
    tokens.filter(person__is_active=False).delete()


class Migration(migrations.Migration):
    dependencies = [
        ("access", "0009_sessions_by_digest"),
        ("auth", "0012_alter_user_first_name_max_length"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.RunPython(keep_viewers, migrations.RunPython.noop),
        migrations.RunPython(end_tokens_of_closed_accounts, migrations.RunPython.noop),
    ]

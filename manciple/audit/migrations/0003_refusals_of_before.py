"""Entries from before: what changed nothing counts among the refusals."""

from django.db import migrations

UPDATE = """
    UPDATE audit_entry SET wrote = FALSE
    WHERE revision IS NULL AND (code >= 400 OR dry_run OR verb IN ('get', 'list', 'watch'))
"""


class Migration(migrations.Migration):

    dependencies = [
        ("audit", "0002_refusals_apart"),
    ]

    operations = [
        migrations.RunSQL(UPDATE, migrations.RunSQL.noop),
    ]

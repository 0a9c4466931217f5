"""Sessions are stored under a digest of their key from here on. Those before end: backups hold their keys in the clear."""

from typing import Any

from django.db import migrations


def end_sessions(apps: Any, _editor: Any) -> None:
    apps.get_model("sessions", "Session").objects.all().delete()
    apps.get_model("access", "SignIn").objects.all().delete()


class Migration(migrations.Migration):

    dependencies = [
        ("access", "0008_without_django_admin"),
        ("sessions", "0001_initial"),
    ]

    operations = [
        migrations.RunPython(end_sessions, migrations.RunPython.noop),
    ]

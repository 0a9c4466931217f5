"""People are looked after at /people alone; the log of Django's administration would keep their accounts from going."""

from django.db import migrations


class Migration(migrations.Migration):

    dependencies = [
        ("access", "0007_outside_accounts"),
    ]

    operations = [
        migrations.RunSQL("DROP TABLE IF EXISTS django_admin_log", migrations.RunSQL.noop),
    ]

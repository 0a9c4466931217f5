"""Locks only the log (see 0005)."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('store', '0005_log_bytes_and_write_budgets'),
    ]

    operations = [
        migrations.AddField(
            model_name='event',
            name='end_offset',
            field=models.BigIntegerField(db_default=0),
        ),
    ]

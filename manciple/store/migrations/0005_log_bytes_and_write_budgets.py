"""Nothing here locks the log as well: processes of the version before write while it is migrated, the counter first and
then the log, and a transaction that locked both in another order would deadlock with them."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('store', '0004_who_wrote_it'),
    ]

    operations = [
        migrations.CreateModel(
            name='WriteBudget',
            fields=[
                ('key', models.TextField(primary_key=True, serialize=False)),
                ('tokens', models.BigIntegerField()),
                ('refilled_at', models.FloatField()),
            ],
        ),
        migrations.AddField(
            model_name='revision',
            name='end_offset',
            field=models.BigIntegerField(db_default=0),
        ),
        migrations.AddField(
            model_name='revision',
            name='floor_offset',
            field=models.BigIntegerField(db_default=0),
        ),
    ]

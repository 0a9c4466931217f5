"""The counter's row says which revision changed what rules go by last."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ("store", "0002_postgresql_storage"),
    ]

    operations = [
        migrations.AddField(
            model_name="revision",
            name="policy",
            field=models.BigIntegerField(default=0),
        ),
    ]

"""When a Node was deleted: its pods wait a while for it to come back."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ("inventory", "0002_evicting_devices"),
    ]

    operations = [
        migrations.CreateModel(
            name="DepartedNode",
            fields=[
                ("name", models.CharField(max_length=253, primary_key=True, serialize=False)),
                ("at", models.FloatField()),
            ],
        ),
    ]

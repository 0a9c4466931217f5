from django.db import migrations, models


class Migration(migrations.Migration):
    """The tables stay where the app `scheduling` made them."""

    initial = True

    dependencies = [("scheduling", "0007_woken")]

    operations = [
        migrations.SeparateDatabaseAndState(
            state_operations=[
                migrations.CreateModel(
                    name="Cursor",
                    fields=[
                        ("name", models.CharField(max_length=64, primary_key=True, serialize=False)),
                        ("revision", models.BigIntegerField(default=0)),
                    ],
                    options={"db_table": "scheduling_cursor"},
                ),
                migrations.CreateModel(
                    name="Heartbeat",
                    fields=[
                        ("name", models.CharField(max_length=128, primary_key=True, serialize=False)),
                        ("kind", models.CharField(max_length=32)),
                        ("started_at", models.DateTimeField()),
                        ("seen_at", models.DateTimeField()),
                        ("lately", models.JSONField()),
                    ],
                    options={"db_table": "scheduling_heartbeat"},
                ),
            ]
        )
    ]

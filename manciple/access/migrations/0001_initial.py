from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [("api", "0002_tokens_move_to_access")]

    operations = [
        migrations.SeparateDatabaseAndState(
            state_operations=[
                migrations.CreateModel(
                    name="Token",
                    fields=[
                        ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                        ("name", models.CharField(db_index=True, max_length=253)),
                        ("groups", models.JSONField(default=list)),
                        ("digest", models.CharField(max_length=64, unique=True)),
                        ("created", models.DateTimeField()),
                        ("last_used", models.DateTimeField(null=True)),
                        ("expires", models.DateTimeField(null=True)),
                    ],
                )
            ]
        )
    ]

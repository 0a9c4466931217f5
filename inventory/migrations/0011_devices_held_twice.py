"""A device that several claims hold is an incident."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("inventory", "0010_meters")]

    operations = [
        migrations.AlterField(
            "impairment",
            "source",
            models.CharField(
                max_length=8,
                choices=[
                    ("driver", "Driver"),
                    ("rule", "Rule"),
                    ("report", "Report"),
                    ("node", "Node"),
                    ("pool", "Pool"),
                    ("claim", "Claim"),
                ],
            ),
        ),
    ]

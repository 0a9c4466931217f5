"""A device that writes would have given twice is an incident."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("inventory", "0011_devices_held_twice")]

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
                    ("guard", "Guard"),
                ],
            ),
        ),
    ]

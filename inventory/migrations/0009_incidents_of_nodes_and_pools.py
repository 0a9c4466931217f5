"""An unreachable node and an incomplete pool are incidents."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("inventory", "0008_lists_of_nodes")]

    operations = [
        migrations.AddIndex("node", models.Index(fields=["condition"], name="node_condition")),
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
                ],
            ),
        ),
    ]

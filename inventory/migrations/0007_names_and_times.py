import inventory.models
from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [
        ("inventory", "0006_incidents_by_node"),
    ]

    operations = [
        migrations.AlterModelOptions(
            name="deviceclass",
            options={"verbose_name_plural": "device classes"},
        ),
        # The column stays as it is.
        migrations.SeparateDatabaseAndState(
            state_operations=[
                migrations.AlterField(model_name="departednode", name="at", field=inventory.models.PosixTime()),
            ],
        ),
    ]

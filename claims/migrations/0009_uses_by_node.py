from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ("claims", "0008_devices_of_controllers"),
    ]

    operations = [
        migrations.AddField(
            model_name="usespell",
            name="node",
            field=models.CharField(db_default="", default="", max_length=253),
        ),
    ]

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ("claims", "0007_devices_by_node"),
    ]

    operations = [
        migrations.AddField(
            model_name="allocateddevice",
            name="controller",
            field=models.CharField(db_default="", default="", max_length=253),
        ),
    ]

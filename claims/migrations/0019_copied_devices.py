from django.db import migrations, models


class Migration(migrations.Migration):
    """Devices that claims of a copied cluster hold as a whole: no installation but a mirror has any."""

    dependencies = [
        ("claims", "0018_pods_leaving_and_ended"),
    ]

    operations = [
        migrations.AddIndex(
            model_name="allocateddevice",
            index=models.Index(
                condition=models.Q(admin_access=False, controller="", exclusive=False, share_id=""),
                fields=["driver", "pool", "device"],
                name="allocated_device_copied",
            ),
        ),
    ]

from django.db import migrations, models


class Migration(migrations.Migration):
    """Claims of a namespace are looked up in one index alone."""

    dependencies = [
        ("claims", "0019_copied_devices"),
    ]

    operations = [
        migrations.RemoveIndex(model_name="podclaim", name="pod_claim_template"),
        migrations.AddIndex(
            model_name="podclaim",
            index=models.Index(fields=["template", "namespace"], name="pod_claim_of_template"),
        ),
    ]

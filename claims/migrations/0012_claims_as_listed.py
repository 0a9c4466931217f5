from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ("claims", "0011_quotas"),
    ]

    operations = [
        migrations.AddField("claim", "classes", models.TextField(db_default="", default="")),
        migrations.AddField("claim", "deleted_at", models.DateTimeField(null=True)),
        migrations.AddField("claim", "held_back", models.BooleanField(db_default=False, default=False)),
        migrations.AddField("claim", "kept", models.CharField(db_default="", default="", max_length=16)),
        migrations.AddField("pod", "deleted_at", models.DateTimeField(null=True)),
        migrations.AddField("podclaim", "template", models.CharField(db_default="", default="", max_length=253)),
        migrations.AddIndex("podclaim", models.Index(fields=["namespace", "template"], name="pod_claim_template")),
    ]

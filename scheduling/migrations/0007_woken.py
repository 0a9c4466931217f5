from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("scheduling", "0006_stranded")]

    operations = [
        migrations.AddField(
            model_name="queuedpod",
            name="woken",
            field=models.BooleanField(default=False, db_default=False),
        ),
    ]

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("scheduling", "0005_causes")]

    operations = [
        migrations.AddField(model_name="usagesample", name="free", field=models.FloatField(null=True)),
        migrations.AddField(model_name="usagesample", name="stranded", field=models.FloatField(null=True)),
    ]

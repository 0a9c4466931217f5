from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("scheduling", "0008_models_of_controllers"),
    ]

    operations = [
        migrations.AlterField(
            model_name="queuedpod",
            name="namespace",
            field=models.CharField(max_length=63),
        ),
        migrations.AlterField(
            model_name="queuedpod",
            name="uid",
            field=models.CharField(max_length=36, primary_key=True, serialize=False),
        ),
    ]

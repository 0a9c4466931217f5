from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ("inventory", "0005_pools_by_node"),
    ]

    operations = [
        migrations.AddField(
            model_name="incident",
            name="node",
            field=models.CharField(db_default="", default="", max_length=253),
        ),
    ]

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('claims', '0004_claims_by_source'),
    ]

    operations = [
        migrations.AddField(
            model_name='pastallocation',
            name='asked_at',
            field=models.DateTimeField(null=True),
        ),
    ]

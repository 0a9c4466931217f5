from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('claims', '0003_history'),
    ]

    operations = [
        migrations.AddField(
            model_name='claim',
            name='admin_access',
            field=models.BooleanField(default=False),
        ),
        migrations.AddField(
            model_name='claim',
            name='source',
            field=models.CharField(default='', max_length=32),
        ),
    ]

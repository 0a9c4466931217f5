from django.db import migrations


class Migration(migrations.Migration):
    """The table goes to the app `access` with its rows."""

    dependencies = [("api", "0001_initial")]

    operations = [
        migrations.SeparateDatabaseAndState(
            database_operations=[migrations.AlterModelTable("Token", "access_token")],
            state_operations=[migrations.DeleteModel("Token")],
        )
    ]

from django.db import migrations, models


class Migration(migrations.Migration):
    """Whether any namespace is on its way out is asked all the time."""

    dependencies = [
        ("store", "0008_rows_in_their_page"),
    ]

    operations = [
        migrations.AddIndex(
            model_name="event",
            index=models.Index(
                condition=models.Q(("deleting", True), ("resource", "namespaces")),
                fields=["uid"],
                name="event_of_leaving",
            ),
        ),
    ]

"""What people keep of their own, and what they decide about incidents."""

from __future__ import annotations

from secrets import token_urlsafe

from django.conf import settings
from django.db import models

from inventory.models import Incident

#: Bytes of an id: nobody guesses the address of a view that is not shared.
_ID_BYTES = 9


def make_view_id() -> str:
    return token_urlsafe(_ID_BYTES)


class SavedView(models.Model):
    """What somebody has chosen on a page, under a name: filters, order, columns. Its address is `/views/ID`."""

    id = models.CharField(primary_key=True, max_length=16, default=make_view_id)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="saved_views")
    #: of the page: "/pods"
    path = models.CharField(max_length=60)
    name = models.CharField(max_length=80)
    #: what the address says behind the path, as `dashboard.kit.preferences.canonical` writes it
    query = models.CharField(max_length=4000, blank=True)
    #: whether others see it and may open it
    shared = models.BooleanField(default=False)
    #: whether the page opens as it says where its owner asks for nothing else; one of a person's for a page
    usual = models.BooleanField(default=False)

    class Meta:
        constraints = (models.UniqueConstraint(fields=["owner", "path", "name"], name="saved_view_name"),)
        indexes = (models.Index(fields=["path"], name="saved_view_path"),)

    def __str__(self) -> str:
        return f"{self.name} ({self.path})"


class Preferences(models.Model):
    """Of one person; whoever chose nothing has no row."""

    person = models.OneToOneField(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, primary_key=True, related_name="preferences"
    )
    #: an IANA name such as "Europe/Berlin"; "" for the zone of the browser
    time_zone = models.CharField(max_length=64, default="", blank=True)
    #: they have seen the tour of the first visit, or want none
    toured = models.BooleanField(default=False)

    def __str__(self) -> str:
        return f"preferences of {self.person}"


class IncidentHandling(models.Model):
    """What people decided about an incident; without a row, nothing."""

    #: No constraint: incidents are pruned by age, and these rows with them.
    incident = models.OneToOneField(
        Incident, on_delete=models.CASCADE, db_constraint=False, primary_key=True, related_name="handling"
    )
    #: one of `dashboard.inventory.handling.SEVERITIES`; "" for the default
    severity = models.CharField(max_length=8, default="", blank=True)
    #: the name of a person; "" for nobody
    assignee = models.CharField(max_length=150, default="", blank=True, db_index=True)

    def __str__(self) -> str:
        return f"handling of {self.incident_id}"


class IncidentComment(models.Model):
    """What somebody wrote about an incident."""

    incident = models.ForeignKey(Incident, on_delete=models.CASCADE, db_constraint=False, related_name="comments")
    author = models.CharField(max_length=150)
    at = models.DateTimeField(auto_now_add=True)
    text = models.TextField()

    class Meta:
        ordering = ("at", "pk")

    def __str__(self) -> str:
        return f"{self.author} on {self.incident_id}"

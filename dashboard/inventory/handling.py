"""How people handle an incident: its severity, who is on it, and what they write about it.

Unless somebody rates it, an incident is major if something broke, and minor if devices are only tainted. Rows are kept
with their incident, and deleted with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django import forms
from django.contrib.auth import get_user_model
from django.core.exceptions import ValidationError
from django.db.models import Case, Q, Value, When

from dashboard.kit.forms import PageForm, code_area, code_input
from dashboard.kit.suggestions import did_you_mean
from dashboard.models import IncidentComment, IncidentHandling
from inventory.impairments import CONTESTED, HELD_TWICE, INCOMPLETE
from inventory.models import Incident

#: severity -> its label, the worst first.
SEVERITIES: Mapping[str, str] = {"critical": "Critical", "major": "Major", "minor": "Minor"}
#: What is wrong by itself, whatever the devices do.
_WRONG = (INCOMPLETE, HELD_TWICE, CONTESTED)
#: Unhealthy devices, unreachable nodes, incomplete pools, devices held twice: major unless somebody rates them.
BROKEN = Q(unhealthy=True) | Q(driver="", pool="", node__gt="") | Q(key__in=_WRONG)
#: In place of a name: incidents that nobody is on.
NOBODY = "nobody"
#: Comments on one incident, and names that are offered.
MOST_COMMENTS, OFFERED = 500, 200


def severity_of(incident: Incident) -> str:
    unreachable = bool(incident.node) and not incident.driver and not incident.pool
    by_default = "major" if incident.unhealthy or unreachable or incident.key in _WRONG else "minor"
    return (_rows(incident) or IncidentHandling()).severity or by_default


def is_rated(incident: Incident) -> bool:
    """Whether somebody chose its severity."""
    return bool((_rows(incident) or IncidentHandling()).severity)


def assignee_of(incident: Incident) -> str:
    return (_rows(incident) or IncidentHandling()).assignee


def _rows(incident: Incident) -> IncidentHandling | None:
    found: IncidentHandling | None = getattr(incident, "handling", None)
    return found


def rated(severity: str) -> Q:
    """Incidents of this severity."""
    unrated = Q(handling=None) | Q(handling__severity="")
    default = {"major": unrated & BROKEN, "minor": unrated & ~BROKEN}
    return Q(handling__severity=severity) | default.get(severity, Q(pk=None))


def assigned(name: str) -> Q:
    return Q(handling=None) | Q(handling__assignee="") if name == NOBODY else Q(handling__assignee=name)


def urgency() -> Case:
    """For sorting: the worst is the greatest."""
    ranks = zip(SEVERITIES, range(len(SEVERITIES), 0, -1), strict=True)
    return Case(*(When(rated(severity), then=Value(rank)) for severity, rank in ranks), default=Value(0))


def assignees() -> list[str]:
    """Those who are on an incident, by name."""
    names = IncidentHandling.objects.exclude(assignee="").order_by("assignee").values_list("assignee", flat=True)
    return list(names.distinct())


class HandlingForm(PageForm):
    """Who is on it, and how bad it is."""

    ids = "handle-%s"

    severity = forms.ChoiceField(
        required=False,
        choices=[("", "By default"), *SEVERITIES.items()],
        widget=forms.Select({"class": "input"}),
    )
    assignee = forms.CharField(required=False, max_length=150, widget=code_input("nobody", list="handle-people"))

    @classmethod
    def of(cls, incident: Incident) -> HandlingForm:
        form, kept = cls(), _rows(incident) or IncidentHandling()
        form.initial = {"severity": kept.severity, "assignee": kept.assignee}
        return form

    @property
    def people(self) -> Sequence[str]:
        """Names to choose from."""
        return list(_people().values_list("username", flat=True)[:OFFERED])

    def clean_assignee(self) -> str:
        name: str = self.cleaned_data["assignee"]
        if name and not _people().filter(username=name).exists():
            meant = did_you_mean(name, _people().values_list("username", flat=True))
            raise ValidationError(f"Nobody who may sign in is called {name}.{meant}", code="unknown")
        return name

    def keep(self, incident: Incident) -> None:
        """Of a form without errors."""
        IncidentHandling.objects.update_or_create(incident=incident, defaults=self.cleaned_data)


def _people() -> Any:
    return get_user_model()._default_manager.filter(is_active=True).order_by("username")


class CommentForm(PageForm):
    ids = "comment-%s"

    comment = forms.CharField(
        max_length=4000,
        widget=code_area("What was found, what is being done", rows=3),
        error_messages={"required": "Write a comment."},
    )

    def keep(self, incident: Incident, author: str) -> bool:
        """False where there are too many."""
        if IncidentComment.objects.filter(incident=incident).count() >= MOST_COMMENTS:
            self.add_error("comment", f"An incident keeps {MOST_COMMENTS} comments.")
            return False
        IncidentComment.objects.create(incident=incident, author=author, text=self.cleaned_data["comment"])
        return True

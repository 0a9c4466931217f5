"""The routes of section `tools`. A list is a file, too: the same view behind `NAME.csv` and `NAME.json`."""

from django.urls import path

from dashboard.kit.lists import list_paths
from dashboard.tools import bulk, events, manual, mirror, saved_views
from dashboard.tools import find as finding
from dashboard.tools.objects import edit_object

urlpatterns = [
    path("views", saved_views.list_views, name="views"),
    path("views/save", saved_views.keep_view, name="view-save"),
    path("views/<str:name>", saved_views.open_view, name="view"),
    path("views/<str:name>/change", saved_views.alter_view, name="view-change"),
    path("bulk/<str:resource>/<str:act>", bulk.act_on_picked, name="bulk"),
    path("yaml/<str:resource>/<str:name>", edit_object, name="yaml"),
    *list_paths("events", events.list_events, events.EventQuery),
    path("mirror", mirror.show_mirror, name="mirror"),
    path("mirror/other", mirror.open_other, name="mirror-other"),
    path("manual", manual.show_manual, name="manual"),
    path("manual/<str:name>", manual.show_manual_page, name="manual-page"),
    path("find", finding.find, name="find"),
    path("find/suggestions", finding.suggest, name="find-suggestions"),
    path("keys", finding.show_keys, name="keys"),
]

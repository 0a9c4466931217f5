"""The routes of section `workloads`. A list is a file for spreadsheets, too: the same view behind `NAME.csv`."""

from django.urls import path

from dashboard.workloads import ended, moves, whatif
from dashboard.workloads import templates as templates_pages
from dashboard.workloads.claims import views as claims
from dashboard.workloads.pods import views as pods

urlpatterns = [
    path("claims", claims.list_claims, name="claims"),
    path("claims.csv", claims.list_claims, name="claims-csv"),
    path("claims/<str:namespace>/<str:name>", claims.show_claim, name="claim"),
    path("claims/<str:namespace>/<str:name>/delete", claims.delete_claim, name="claim-delete"),
    path("claims/<str:namespace>/<str:name>/release", claims.release_claim, name="claim-release"),
    path("ended", ended.list_ended, name="ended"),
    path("ended.csv", ended.list_ended, name="ended-csv"),
    path("ended/<str:name>", ended.show_ending, name="ending"),
    path("templates", templates_pages.list_templates, name="templates"),
    path("templates.csv", templates_pages.list_templates, name="templates-csv"),
    path("templates/<str:namespace>/<str:name>", templates_pages.show_template, name="template"),
    path("templates/<str:namespace>/<str:name>/delete", templates_pages.delete_template, name="template-delete"),
    path("pods", pods.list_pods, name="pods"),
    path("pods.csv", pods.list_pods, name="pods-csv"),
    path("pods/new", pods.new_pod, name="pod-new"),
    path("pods/new/completions", pods.show_completions, name="pod-completions"),
    path("pods/new/diagnostics", pods.show_diagnostics, name="pod-diagnostics"),
    path("pods/new/made", pods.show_written, name="pod-made"),
    path("pods/<str:namespace>/<str:name>", pods.show_pod, name="pod"),
    path("pods/<str:namespace>/<str:name>/delete", pods.delete_pod, name="pod-delete"),
    path("pods/<str:namespace>/<str:name>/move", moves.move_pods, name="pod-move"),
    path("pods/<str:namespace>/<str:name>/replace", pods.replace_pod, name="pod-replace"),
    path("pods/<str:namespace>/<str:name>/log", pods.show_log, name="pod-log"),
    path("what-if", whatif.what_if, name="what-if"),
    path("what-if/progress", whatif.show_progress, name="what-if-progress"),
]

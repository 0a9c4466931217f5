"""The routes of section `workloads`. A list is a file for spreadsheets, too: the same view behind `NAME.csv`."""

from django.urls import path

from dashboard.workloads import templates as templates_pages
from dashboard.workloads.claims import views as claims
from dashboard.workloads.moves import views as moves
from dashboard.workloads.pods import creation as pod_new
from dashboard.workloads.pods import deletion as pod_deletion
from dashboard.workloads.pods import logs as pod_logs
from dashboard.workloads.pods import page as pod_page
from dashboard.workloads.pods import replacing as pod_replacing
from dashboard.workloads.pods import views as pods
from dashboard.workloads.whatif import views as whatif

urlpatterns = [
    path("claims", claims.list_claims, name="claims"),
    path("claims.csv", claims.list_claims, name="claims-csv"),
    path("claims/<str:namespace>/<str:name>", claims.show_claim, name="claim"),
    path("claims/<str:namespace>/<str:name>/delete", claims.delete_claim, name="claim-delete"),
    path("claims/<str:namespace>/<str:name>/release", claims.release_claim, name="claim-release"),
    path("templates", templates_pages.list_templates, name="templates"),
    path("templates.csv", templates_pages.list_templates, name="templates-csv"),
    path("templates/<str:namespace>/<str:name>", templates_pages.show_template, name="template"),
    path("templates/<str:namespace>/<str:name>/delete", templates_pages.delete_template, name="template-delete"),
    path("pods", pods.list_pods, name="pods"),
    path("pods.csv", pods.list_pods, name="pods-csv"),
    path("pods/new", pod_new.new_pod, name="pod-new"),
    path("pods/new/completions", pod_new.show_completions, name="pod-completions"),
    path("pods/new/diagnostics", pod_new.show_diagnostics, name="pod-diagnostics"),
    path("pods/new/made", pod_new.show_made, name="pod-made"),
    path("pods/<str:namespace>/<str:name>", pod_page.show_pod, name="pod"),
    path("pods/<str:namespace>/<str:name>/delete", pod_deletion.delete_pod, name="pod-delete"),
    path("pods/<str:namespace>/<str:name>/move", moves.move_pods, name="pod-move"),
    path("pods/<str:namespace>/<str:name>/replace", pod_replacing.replace_pod, name="pod-replace"),
    path("pods/<str:namespace>/<str:name>/log", pod_logs.show_log, name="pod-log"),
    path("what-if", whatif.what_if, name="what-if"),
    path("what-if/progress", whatif.show_progress, name="what-if-progress"),
]

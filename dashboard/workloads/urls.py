"""The routes of section `workloads`. A list is a file, too: the same view behind `NAME.csv` and `NAME.json`."""

from django.urls import path

from dashboard.kit.lists import list_paths
from dashboard.workloads import autoscalers, ended, moves, whatif
from dashboard.workloads import templates as templates_pages
from dashboard.workloads.claims import views as claims
from dashboard.workloads.pods import views as pods
from dashboard.workloads.pods.queries import PodQuery
from dashboard.workloads.workloads import views as workloads
from dashboard.workloads.workloads.queries import WorkloadQuery

urlpatterns = [
    *list_paths("claims", claims.list_claims, claims.ClaimQuery),
    path("claims/<str:namespace>/<str:name>", claims.show_claim, name="claim"),
    path("claims/<str:namespace>/<str:name>/delete", claims.delete_claim, name="claim-delete"),
    path("claims/<str:namespace>/<str:name>/release", claims.release_claim, name="claim-release"),
    *list_paths("ended", ended.list_ended, ended.EndedQuery),
    path("ended/<str:name>", ended.show_ending, name="ending"),
    *list_paths("templates", templates_pages.list_templates, templates_pages.TemplateQuery),
    path("templates/<str:namespace>/<str:name>", templates_pages.show_template, name="template"),
    path("templates/<str:namespace>/<str:name>/delete", templates_pages.delete_template, name="template-delete"),
    *list_paths("pods", pods.list_pods, PodQuery),
    path("pods/new", pods.new_pod, name="pod-new"),
    path("pods/new/completions", pods.show_completions, name="pod-completions"),
    path("pods/new/diagnostics", pods.show_diagnostics, name="pod-diagnostics"),
    path("pods/new/made", pods.show_written, name="pod-made"),
    path("pods/<str:namespace>/<str:name>", pods.show_pod, name="pod"),
    path("pods/<str:namespace>/<str:name>/delete", pods.delete_pod, name="pod-delete"),
    path("pods/<str:namespace>/<str:name>/move", moves.move_pods, name="pod-move"),
    path("pods/<str:namespace>/<str:name>/replace", pods.replace_pod, name="pod-replace"),
    *list_paths("workloads", workloads.list_workloads, WorkloadQuery),
    path("workloads/<str:resource>/<str:namespace>/<str:name>", workloads.show_workload, name="workload"),
    path(
        "workloads/<str:resource>/<str:namespace>/<str:name>/<str:act>", workloads.act_on_workload, name="workload-act"
    ),
    *list_paths("autoscalers", autoscalers.list_autoscalers, autoscalers.AutoscalerQuery),
    path("autoscalers/<str:namespace>/<str:name>", autoscalers.show_autoscaler, name="autoscaler"),
    path("what-if", whatif.what_if, name="what-if"),
    path("what-if/progress", whatif.show_progress, name="what-if-progress"),
]

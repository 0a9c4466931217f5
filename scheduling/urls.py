"""The pages of the scheduling app."""

from django.urls import path

from scheduling.pages import claims, class_yaml, classes, finding, pods

urlpatterns = [
    path("claims", claims.list_claims, name="claims"),
    path("claims/<str:namespace>/<str:name>", claims.show_claim, name="claim"),
    path("claims/<str:namespace>/<str:name>/delete", claims.delete_claim, name="claim-delete"),
    path("claims/<str:namespace>/<str:name>/release", claims.release_claim, name="claim-release"),
    path("find", finding.find, name="find"),
    path("classes", classes.list_classes, name="classes"),
    path("classes/new", classes.new_class, name="class-new"),
    path("classes/verdicts", classes.show_verdicts, name="class-verdicts"),
    path("classes/completions", class_yaml.show_completions, name="class-completions"),
    path("classes/diagnostics/<str:what>", class_yaml.show_diagnostics, name="class-diagnostics"),
    path("classes/c/<str:name>", classes.edit_class, name="class-edit"),
    path("classes/c/<str:name>/yaml", class_yaml.save_yaml, name="class-yaml"),
    path("classes/c/<str:name>/delete", classes.delete_class, name="class-delete"),
    path("pods", pods.list_pods, name="pods"),
    path("pods/<str:namespace>/<str:name>", pods.show_pod, name="pod"),
]

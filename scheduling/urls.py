"""The pages of the scheduling app."""

from django.urls import path

from scheduling.pages import classes, finding, pods

urlpatterns = [
    path("find", finding.find, name="find"),
    path("classes", classes.list_classes, name="classes"),
    path("classes/new", classes.new_class, name="class-new"),
    path("classes/verdicts", classes.show_verdicts, name="class-verdicts"),
    path("classes/c/<str:name>", classes.edit_class, name="class-edit"),
    path("pods", pods.list_pods, name="pods"),
    path("pods/<str:namespace>/<str:name>", pods.show_pod, name="pod"),
]

"""The routes of section `inventory`. A list is a file, too: the same view behind `NAME.csv` and `NAME.json`."""

from django.urls import path

from dashboard.inventory import drivers, incidents, taint_rules
from dashboard.inventory.classes import views as classes
from dashboard.inventory.devices import views as devices
from dashboard.inventory.nodes import views as nodes
from dashboard.kit.lists import ListQuery, list_paths

urlpatterns = [
    *list_paths("devices", devices.show_devices, file=devices.export_devices),
    path("devices/lines", devices.show_lines, name="device-lines"),
    path("devices/window", devices.show_window, name="device-window"),
    path("devices/matches", devices.show_matches, name="device-matches"),
    path("devices/panel", devices.show_panel, name="device-panel"),
    path("devices/d/<str:driver>/<path:pool>/<str:device>", devices.show_device, name="device"),
    path("devices/act/<str:act>", devices.act_on_devices, name="devices-act"),
    *list_paths("taint-rules", taint_rules.list_rules, taint_rules.RuleQuery),
    path("taint-rules/new", taint_rules.new_rule, name="taint-rule-new"),
    path("taint-rules/<str:name>", taint_rules.show_rule, name="taint-rule"),
    path("taint-rules/<str:name>/change", taint_rules.change_rule, name="taint-rule-change"),
    path("taint-rules/<str:name>/delete", taint_rules.delete_rule, name="taint-rule-delete"),
    *list_paths("incidents", incidents.list_incidents, incidents.IncidentQuery),
    path("incidents/acknowledge", incidents.acknowledge_picked, name="incidents-acknowledge"),
    path("incidents/<str:name>", incidents.show_incident, name="incident"),
    path("incidents/<str:name>/acknowledge", incidents.acknowledge, name="incident-acknowledge"),
    path("incidents/<str:name>/handle", incidents.handle, name="incident-handle"),
    path("incidents/<str:name>/comment", incidents.comment_on, name="incident-comment"),
    *list_paths("nodes", nodes.list_nodes, nodes.NodeQuery),
    path("nodes/<str:name>", nodes.show_node, name="node"),
    path("nodes/<str:name>/change", nodes.change_node, name="node-change"),
    *list_paths("drivers", drivers.list_drivers, ListQuery),
    path("drivers/<str:name>", drivers.show_driver, name="driver"),
    *list_paths("classes", classes.list_classes, classes.ClassQuery),
    path("classes/new", classes.new_class, name="class-new"),
    path("classes/check", classes.check_class, name="class-check"),
    path("classes/verdicts", classes.show_verdicts, name="class-verdicts"),
    path("classes/completions", classes.show_completions, name="class-completions"),
    path("classes/diagnostics/<str:what>", classes.show_diagnostics, name="class-diagnostics"),
    path("classes/c/<str:name>", classes.edit_class, name="class-edit"),
    path("classes/c/<str:name>/yaml", classes.save_yaml, name="class-yaml"),
    path("classes/c/<str:name>/serve", classes.serve_resource, name="class-serve"),
    path("classes/c/<str:name>/delete", classes.delete_class, name="class-delete"),
]

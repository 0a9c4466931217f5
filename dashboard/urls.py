"""The pages."""

from django.urls import include, path

from dashboard.access import views as access
from dashboard.account import preferences
from dashboard.account import views as account
from dashboard.admin import site
from dashboard.audit import views as audit
from dashboard.bulk import views as bulk
from dashboard.claim_templates import views as templates_pages
from dashboard.claims import views as claims
from dashboard.classes import document as class_yaml
from dashboard.classes import views as classes
from dashboard.devices import acts as device_acts
from dashboard.devices import panel as device_panel
from dashboard.devices import views as devices
from dashboard.drivers import views as drivers
from dashboard.events import views as events
from dashboard.finding import views as finding
from dashboard.incidents import views as incidents
from dashboard.manifests.views import edit_object
from dashboard.manual import views as manual
from dashboard.moves import views as moves
from dashboard.namespaces import views as namespaces
from dashboard.nodes import page as nodes_one
from dashboard.nodes import views as nodes
from dashboard.notifications import views as notifications
from dashboard.overview import views as overview
from dashboard.people import views as people
from dashboard.pods import creation as pod_new
from dashboard.pods import deletion as pod_deletion
from dashboard.pods import logs as pod_logs
from dashboard.pods import page as pod_page
from dashboard.pods import replacing as pod_replacing
from dashboard.pods import views as pods
from dashboard.quotas import views as quotas
from dashboard.roles import changing as changing_roles
from dashboard.roles import views as roles
from dashboard.saved_views import views as saved_views
from dashboard.taint_rules import views as taint_rules
from dashboard.timeline import views as timeline
from dashboard.undoing import undo_act
from dashboard.usage import views as usage
from dashboard.wallboard import views as wallboard
from dashboard.whatif import views as whatif

#: Lists that are files as well, for spreadsheets: the same views.
_LISTS = {
    "claims": claims.list_claims,
    "templates": templates_pages.list_templates,
    "pods": pods.list_pods,
    "classes": classes.list_classes,
    "nodes": nodes.list_nodes,
    "quotas": quotas.list_quotas,
    "incidents": incidents.list_incidents,
    "taint-rules": taint_rules.list_rules,
    "drivers": drivers.list_drivers,
    "namespaces": namespaces.list_namespaces,
    "events": events.list_events,
    "roles": roles.list_roles,
    "people": people.list_people,
}

urlpatterns = [
    path("", include("dashboard.rest.urls")),
    path("admin/", site.urls),
    *(path(f"{name}.csv", view, name=f"{name}-csv") for name, view in _LISTS.items()),
    path("views", saved_views.list_views, name="views"),
    path("views/save", saved_views.keep_view, name="view-save"),
    path("views/<str:name>", saved_views.open_view, name="view"),
    path("views/<str:name>/change", saved_views.alter_view, name="view-change"),
    path("bulk/<str:resource>/<str:act>", bulk.act_on_picked, name="bulk"),
    path("account", account.show_account, name="account"),
    path("account/tokens", account.make_token, name="account-tokens"),
    path("account/tokens/revoke", account.revoke_token, name="account-revoke"),
    path("account/password", account.change_password, name="account-password"),
    path("account/zone", preferences.keep_zone, name="account-zone"),
    path("account/tour", preferences.keep_toured, name="account-tour"),
    path("account/sessions", account.end_sessions, name="account-sessions"),
    path("notifications", notifications.show_notifications, name="notifications"),
    path("notifications/rules", notifications.keep_rule, name="notifications-rule"),
    path("notifications/rules/delete", notifications.delete_rule, name="notifications-delete"),
    path("notifications/webhook", notifications.keep_webhook, name="notifications-webhook"),
    path("notifications/email", notifications.keep_email, name="notifications-email"),
    path("notifications/test", notifications.send_test, name="notifications-test"),
    path("notifications/confirm/<str:token>", notifications.confirm, name="notifications-confirm"),
    path("notifications/unsubscribe/<str:token>", notifications.unsubscribe, name="notifications-unsubscribe"),
    path("devices", devices.show_devices, name="devices"),
    path("devices/lines", devices.show_lines, name="device-lines"),
    path("devices/matches", devices.show_matches, name="device-matches"),
    path("devices/panel", device_panel.show_panel, name="device-panel"),
    path("devices/d/<str:driver>/<path:pool>/<str:device>", device_panel.show_device, name="device"),
    path("devices/act/<str:act>", device_acts.act_on_devices, name="devices-act"),
    path("devices.csv", device_acts.export_devices, name="devices-csv"),
    path("undo", undo_act, name="undo"),
    path("yaml/<str:resource>/<str:name>", edit_object, name="yaml"),
    path("taint-rules", taint_rules.list_rules, name="taint-rules"),
    path("taint-rules/new", taint_rules.new_rule, name="taint-rule-new"),
    path("taint-rules/<str:name>", taint_rules.show_rule, name="taint-rule"),
    path("taint-rules/<str:name>/change", taint_rules.change_rule, name="taint-rule-change"),
    path("taint-rules/<str:name>/delete", taint_rules.delete_rule, name="taint-rule-delete"),
    path("claims", claims.list_claims, name="claims"),
    path("claims/<str:namespace>/<str:name>", claims.show_claim, name="claim"),
    path("claims/<str:namespace>/<str:name>/delete", claims.delete_claim, name="claim-delete"),
    path("claims/<str:namespace>/<str:name>/release", claims.release_claim, name="claim-release"),
    path("templates", templates_pages.list_templates, name="templates"),
    path("templates/<str:namespace>/<str:name>", templates_pages.show_template, name="template"),
    path("templates/<str:namespace>/<str:name>/delete", templates_pages.delete_template, name="template-delete"),
    path("overview", overview.show_overview, name="overview"),
    path("events", events.list_events, name="events"),
    path("incidents", incidents.list_incidents, name="incidents"),
    path("incidents/acknowledge", incidents.acknowledge_picked, name="incidents-acknowledge"),
    path("incidents/<str:name>", incidents.show_incident, name="incident"),
    path("incidents/<str:name>/acknowledge", incidents.acknowledge, name="incident-acknowledge"),
    path("timeline", timeline.show_timeline, name="timeline"),
    path("timeline.csv", timeline.export_timeline, name="timeline-csv"),
    path("wallboard", wallboard.show_wallboard, name="wallboard"),
    path("manual", manual.show_manual, name="manual"),
    path("manual/<str:name>", manual.show_manual_page, name="manual-page"),
    path("usage", usage.show_usage, name="usage"),
    path("usage.csv", usage.export_usage, name="usage-csv"),
    path("audit", audit.list_audit, name="audit"),
    path("audit.csv", audit.export_csv, name="audit-csv"),
    path("audit.jsonl", audit.export_json, name="audit-json"),
    path("people", people.list_people, name="people"),
    path("people/invite", people.invite_person, name="people-invite"),
    path("people/change", people.change_person, name="people-change"),
    path("people/revoke", people.revoke_tokens, name="people-revoke"),
    path("roles", roles.list_roles, name="roles"),
    path("roles/new/make", changing_roles.make_role, name="role-new"),
    path("roles/<str:name>", roles.show_role, name="role"),
    path("roles/<str:name>/give", changing_roles.give_role, name="role-give"),
    path("roles/<str:name>/take", changing_roles.take_role, name="role-take"),
    path("access", access.show_access, name="access"),
    path("find", finding.find, name="find"),
    path("find/suggestions", finding.suggest, name="find-suggestions"),
    path("keys", finding.show_keys, name="keys"),
    path("nodes", nodes.list_nodes, name="nodes"),
    path("nodes/<str:name>", nodes_one.show_node, name="node"),
    path("nodes/<str:name>/change", nodes_one.change_node, name="node-change"),
    path("drivers", drivers.list_drivers, name="drivers"),
    path("drivers/<str:name>", drivers.show_driver, name="driver"),
    path("namespaces", namespaces.list_namespaces, name="namespaces"),
    path("namespaces/<str:name>", namespaces.show_namespace, name="namespace"),
    path("namespaces/<str:name>/change", namespaces.change_namespace, name="namespace-change"),
    path("namespaces/<str:name>/tokens", namespaces.make_token, name="namespace-tokens"),
    path("namespaces/<str:name>/delete", namespaces.delete_namespace, name="namespace-delete"),
    path("quotas", quotas.list_quotas, name="quotas"),
    path("quotas/<str:namespace>/<str:name>", quotas.show_quota, name="quota"),
    path("quotas/<str:namespace>/<str:name>/change", quotas.change_quota, name="quota-change"),
    path("classes", classes.list_classes, name="classes"),
    path("classes/new", classes.new_class, name="class-new"),
    path("classes/check", classes.check_class, name="class-check"),
    path("classes/verdicts", classes.show_verdicts, name="class-verdicts"),
    path("classes/completions", class_yaml.show_completions, name="class-completions"),
    path("classes/diagnostics/<str:what>", class_yaml.show_diagnostics, name="class-diagnostics"),
    path("classes/c/<str:name>", classes.edit_class, name="class-edit"),
    path("classes/c/<str:name>/yaml", class_yaml.save_yaml, name="class-yaml"),
    path("classes/c/<str:name>/delete", classes.delete_class, name="class-delete"),
    path("pods", pods.list_pods, name="pods"),
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

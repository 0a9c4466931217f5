"""The routes of section `people`. A list is a file, too: the same view behind `NAME.csv` and `NAME.json`."""

from django.urls import path

from dashboard.kit.lists import list_paths
from dashboard.people import access, account, audit, namespaces, notifications, people, roles

urlpatterns = [
    path("account", account.show_account, name="account"),
    path("account/tokens", account.make_token, name="account-tokens"),
    path("account/tokens/revoke", account.revoke_token, name="account-revoke"),
    path("account/password", account.change_password, name="account-password"),
    path("account/zone", account.keep_zone, name="account-zone"),
    path("account/tour", account.keep_toured, name="account-tour"),
    path("account/sessions", account.end_sessions, name="account-sessions"),
    path("notifications", notifications.show_notifications, name="notifications"),
    path("notifications/rules", notifications.keep_rule, name="notifications-rule"),
    path("notifications/rules/delete", notifications.delete_rule, name="notifications-delete"),
    path("notifications/webhook", notifications.keep_webhook, name="notifications-webhook"),
    path("notifications/email", notifications.keep_email, name="notifications-email"),
    path("notifications/test", notifications.send_test, name="notifications-test"),
    path("notifications/confirm/<str:token>", notifications.confirm, name="notifications-confirm"),
    path("notifications/unsubscribe/<str:token>", notifications.unsubscribe, name="notifications-unsubscribe"),
    path("audit", audit.list_audit, name="audit"),
    path("audit.csv", audit.export_csv, name="audit-csv"),
    path("audit.jsonl", audit.export_json, name="audit-json"),
    *list_paths("people", people.list_people, people.PeopleQuery),
    path("people/invite", people.invite_person, name="people-invite"),
    path("people/change", people.change_person, name="people-change"),
    path("people/revoke", people.revoke_tokens, name="people-revoke"),
    *list_paths("roles", roles.list_roles, roles.RoleQuery),
    path("roles/new/make", roles.make_role, name="role-new"),
    path("roles/<str:name>", roles.show_role, name="role"),
    path("roles/<str:name>/give", roles.give_role, name="role-give"),
    path("roles/<str:name>/take", roles.take_role, name="role-take"),
    path("access", access.show_access, name="access"),
    *list_paths("namespaces", namespaces.list_namespaces, namespaces.NamespaceQuery),
    path("namespaces/<str:name>", namespaces.show_namespace, name="namespace"),
    path("namespaces/<str:name>/change", namespaces.change_namespace, name="namespace-change"),
    path("namespaces/<str:name>/tokens", namespaces.make_token, name="namespace-tokens"),
    path("namespaces/<str:name>/delete", namespaces.delete_namespace, name="namespace-delete"),
]

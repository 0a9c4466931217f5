"""Policies, bindings and webhooks as tests write them."""

from __future__ import annotations

from typing import Any

API_VERSION = "admissionregistration.k8s.io/v1"
REGISTRATION = f"/apis/{API_VERSION}"
POLICIES = f"{REGISTRATION}/validatingadmissionpolicies"
BINDINGS = f"{REGISTRATION}/validatingadmissionpolicybindings"
WEBHOOKS = f"{REGISTRATION}/validatingwebhookconfigurations"
MUTATING_WEBHOOKS = f"{REGISTRATION}/mutatingwebhookconfigurations"

MUTATING_POLICIES = f"{REGISTRATION}/mutatingadmissionpolicies"
MUTATING_BINDINGS = f"{REGISTRATION}/mutatingadmissionpolicybindings"

Document = dict[str, Any]


def rule(resource: str, *operations: str, group: str = "", versions: tuple[str, ...] = ("v1",)) -> Document:
    return {
        "apiGroups": [group],
        "apiVersions": list(versions),
        "operations": list(operations or ("CREATE", "UPDATE")),
        "resources": [resource],
    }


def policy(name: str, *expressions: str, rules: list[Document] | None = None, **spec: Any) -> Document:
    spec.setdefault("validations", [{"expression": expression} for expression in expressions])
    spec.setdefault("matchConstraints", {"resourceRules": rules or [rule("configmaps")]})
    return {
        "apiVersion": API_VERSION,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": spec,
    }


def binding(policy_name: str, *actions: str, name: str = "", **spec: Any) -> Document:
    return {
        "apiVersion": API_VERSION,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name or policy_name},
        "spec": {"policyName": policy_name, "validationActions": list(actions or ("Deny",)), **spec},
    }


def webhook(client_config: Document, *, name: str = "w.example.com", **members: Any) -> Document:
    found: Document = {
        "name": name,
        "clientConfig": client_config,
        "rules": [rule("configmaps", "CREATE", "UPDATE", "DELETE")],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    return found | members


def webhooks(*hooks: Document, name: str = "guard") -> Document:
    return {
        "apiVersion": API_VERSION,
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": list(hooks),
    }


def mutating_webhooks(*hooks: Document, name: str = "guard") -> Document:
    return {**webhooks(*hooks, name=name), "kind": "MutatingWebhookConfiguration"}


def mutating_policy(name: str, *mutations: str, rules: list[Document] | None = None, **spec: Any) -> Document:
    """mutations: expressions, of a JSON patch where they are lists."""
    made = policy(name, rules=rules, validations=[], **spec)
    del made["spec"]["validations"]
    kinds = {
        True: lambda text: {"patchType": "JSONPatch", "jsonPatch": {"expression": text}},
        False: lambda text: {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": text}},
    }
    made["kind"] = "MutatingAdmissionPolicy"
    made["spec"].setdefault("reinvocationPolicy", "Never")
    made["spec"]["mutations"] = [kinds[text.strip().startswith("[")](text) for text in mutations]
    return made


def mutating_binding(policy_name: str, *, name: str = "", **spec: Any) -> Document:
    made = binding(policy_name, name=name, **spec)
    del made["spec"]["validationActions"]
    return made | {"kind": "MutatingAdmissionPolicyBinding"}


def config_map(name: str = "c", **data: str) -> Document:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}

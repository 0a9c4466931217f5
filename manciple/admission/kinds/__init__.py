"""The kinds of admissionregistration.k8s.io/v1 as the API serves them. PURE."""

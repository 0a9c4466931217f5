"""Any object of the API as YAML: shown, edited, and merged with what somebody else changed meanwhile."""

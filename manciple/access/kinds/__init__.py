"""The kinds of authorization and identity (roles, bindings, service accounts, secrets), as the API serves them."""

"""A person's own account: password, tokens, where they are signed in."""

"""Namespaces: who holds and waits in each."""

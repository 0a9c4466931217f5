"""Admission by configuration: policies in CEL and webhooks, asked before every write that a client wants."""

"""Roles, what they allow, and who has them."""

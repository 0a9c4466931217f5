"""Quotas: what is limited, what is used of it, and what other limits would refuse."""

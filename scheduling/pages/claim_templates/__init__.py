"""Claim templates."""

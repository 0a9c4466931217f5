"""The inventory as read-only REST resources at /api/inventory/, and the documentation of every API at /api/docs."""

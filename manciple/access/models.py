"""What the database knows of credentials."""

from __future__ import annotations

from django.db import models


class Token(models.Model):
    """One credential of one identity. A name may hold several: an old one is revoked after its successor is in use."""

    name = models.CharField(max_length=253, db_index=True)
    groups = models.JSONField(default=list)
    #: SHA-256 of the token, as hexadecimal text; the token itself is shown once and kept by nobody here
    digest = models.CharField(max_length=64, unique=True)
    created = models.DateTimeField()
    #: within a minute: see `tokens.USE_RESOLUTION`
    last_used = models.DateTimeField(null=True)
    expires = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"{self.name} ({self.digest[:8]})"

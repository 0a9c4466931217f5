"""What the database knows of credentials."""

from __future__ import annotations

from django.conf import settings
from django.db import models


class CredentialEpoch(models.Model):
    """One row, counted up by whatever makes a credential worth less: see `manciple.access.authentication.chain`."""

    current = models.BigIntegerField(default=0)

    def __str__(self) -> str:
        return str(self.current)


class Token(models.Model):
    """One bearer token of one identity: a person's, then `person` is set, or that of a machine, with groups of its own.

    A name may hold several: an old one is revoked after its successor is in use.
    """

    name = models.CharField(max_length=253, db_index=True)
    #: whose groups count, at each use; without a person those of `groups` do
    person = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, null=True, related_name="tokens")
    groups = models.JSONField(default=list)
    #: what its owner calls it: "laptop"
    title = models.CharField(max_length=100, default="", blank=True)
    description = models.CharField(max_length=1000, default="", blank=True)
    #: the first characters of the token, by which its owner knows it again; too few to guess the rest by
    hint = models.CharField(max_length=16, default="")
    #: SHA-256 of the token, as hexadecimal text; the token itself is shown once and kept by nobody here
    digest = models.CharField(max_length=64, unique=True)
    created = models.DateTimeField()
    #: the name of who made it
    creator = models.CharField(max_length=253, default="")
    #: within a minute: see `tokens.USE_RESOLUTION`
    last_used = models.DateTimeField(null=True)
    #: the address from which it was shown then
    last_address = models.CharField(max_length=64, default="")
    expires = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"{self.name} ({self.digest[:8]})"


class SignInAttempts(models.Model):
    """Failed attempts to sign in under one key: see `manciple.access.people`."""

    key = models.CharField(max_length=120, unique=True)
    failures = models.PositiveIntegerField()
    #: when the last one was counted
    last = models.DateTimeField(db_index=True)

    def __str__(self) -> str:
        return f"{self.key[:16]}: {self.failures}"


class SignIn(models.Model):
    """One session of a person in a browser."""

    person = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="sign_ins")
    #: as the session is stored: `manciple.access.people.stored_key`
    session_key = models.CharField(max_length=40, unique=True)
    created = models.DateTimeField()
    address = models.CharField(max_length=64, default="")
    #: what the browser calls itself
    agent = models.CharField(max_length=300, default="")

    def __str__(self) -> str:
        return f"{self.person_id} from {self.address}"


class AccountClosing(models.Model):
    """When an account was closed last, or the database set back: links that were made before stay dead."""

    person = models.OneToOneField(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="closing")
    at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.person_id} at {self.at}"


class CertificateRevocation(models.Model):
    """Client certificates that were issued to `name` up to `before` let nobody in."""

    name = models.CharField(max_length=253, unique=True)
    before = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.name} up to {self.before}"


class SigningKey(models.Model):
    """A key that signs tokens of service accounts: see `manciple.access.authentication.signing_keys`."""

    #: the key's thumbprint (RFC 7638), `kid` in what it signs
    name = models.CharField(max_length=64, primary_key=True)
    created = models.DateTimeField()
    #: the private key as PEM, encrypted
    sealed = models.TextField()

    def __str__(self) -> str:
        return self.name


class BootstrapToken(models.Model):
    """A token with which machines ask to become nodes: see `manciple.access.authentication.tokens`."""

    #: the first half of the token, which may be shown
    key = models.CharField(max_length=6, unique=True)
    #: SHA-256 of the second half
    digest = models.CharField(max_length=64)
    #: the only node that may join with it, "" for any
    node = models.CharField(max_length=253, default="", blank=True)
    description = models.CharField(max_length=1000, default="", blank=True)
    creator = models.CharField(max_length=253, default="")
    created = models.DateTimeField()
    expires = models.DateTimeField(db_index=True)

    def __str__(self) -> str:
        return self.key


class IssuedCertificate(models.Model):
    """A client certificate that our signer has issued, as long as it lasts."""

    name = models.CharField(max_length=253, db_index=True)
    #: SHA-256 of its public key (SubjectPublicKeyInfo)
    key = models.CharField(max_length=64)
    issued = models.DateTimeField()
    expires = models.DateTimeField(db_index=True)

    def __str__(self) -> str:
        return f"{self.name} until {self.expires}"


class OutsideAccount(models.Model):
    """Whom an identity provider means by a subject."""

    issuer = models.CharField(max_length=500)
    subject = models.CharField(max_length=255)
    person = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="outside_accounts")

    class Meta:
        constraints = (models.UniqueConstraint(fields=["issuer", "subject"], name="one_person_a_subject"),)

    def __str__(self) -> str:
        return f"{self.subject} of {self.issuer}"

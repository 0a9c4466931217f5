"""`manage.py certificate issue|revoke`: client certificates, signed by the installation's authority."""

from __future__ import annotations

from argparse import ArgumentParser
from datetime import timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from manciple.access.authentication import external as client_certificates
from manciple.access.authentication.chain import AccountClosed, refuse_closed
from manciple.api import kubeconfig
from manciple.api.certificates import SigningAuthority, sign_client
from manciple.api.kubeconfig import ClientKey
from manciple.audit.commands import CERTIFICATES, note_command
from manciple.processes.accounts import server_named
from manciple.processes.home import write_private
from manciple.wire.identity import node_of


class Command(BaseCommand):
    help = "Issue and revoke client certificates."

    def add_arguments(self, parser: ArgumentParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True)
        issue = actions.add_parser("issue", help="write a kubeconfig with a new key and its certificate")
        issue.add_argument("name")
        issue.add_argument("--group", action="append", default=[], help="repeatable")
        issue.add_argument("--days", type=float, default=30.0, help="lifetime (default %(default)g)")
        issue.add_argument("--kubeconfig", type=Path, metavar="FILE", required=True, help="the file to write")
        issue.add_argument("--server", metavar="URL", help="the API's (default: that of HOME/kubeconfig)")
        revoke = actions.add_parser("revoke", help="revoke all certificates that a name has now")
        revoke.add_argument("name")

    def handle(self, *_args: Any, **options: Any) -> None:
        {"issue": self._issue, "revoke": self._revoke}[options["action"]](options)

    def _issue(self, options: dict[str, Any]) -> None:
        server, file = server_named(options["server"]), options["kubeconfig"]
        client = made(options["name"], options["group"], lifetime=timedelta(days=options["days"]))
        note_command("certificate issue", "create", CERTIFICATES, options["name"])
        write_private(file, kubeconfig.render(server, user=options["name"], client=client))
        if file.is_file():
            self.stdout.write(f"wrote {file}")

    def _revoke(self, options: dict[str, Any]) -> None:
        client_certificates.revoke_certificates(options["name"])
        note_command("certificate revoke", "delete", CERTIFICATES, options["name"])
        self.stdout.write(f"all certificates of {options['name']} are revoked")


def made(name: str, groups: list[str], *, lifetime: timedelta) -> ClientKey:
    """A new key with its certificate. Raises: CommandError."""
    try:
        node_of(name)
        refuse_closed(name)
    except (ValueError, AccountClosed) as error:
        raise CommandError(str(error)) from error
    key = ec.generate_private_key(ec.SECP256R1())
    subject = [x509.NameAttribute(NameOID.COMMON_NAME, name)]
    subject += [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    request = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(subject)).sign(key, hashes.SHA256())
    authority = SigningAuthority(certificate=settings.CLIENT_CA_FILE, key=settings.CLIENT_CA_KEY_FILE)
    try:
        certificate = sign_client(request, authority=authority, lifetime=lifetime)
    except OSError as error:
        raise CommandError(f"the CA's files are not here: {error}") from error
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return ClientKey(certificate=certificate, key=private)

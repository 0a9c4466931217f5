"""What the authors of Secrets are warned of: a certificate and a key that do not belong together.

Source: warningsForSecret (pkg/registry/core/secret/strategy.go) of Kubernetes 1.36, and Go's tls.X509KeyPair.
"""

from __future__ import annotations

import base64

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

from manciple.access.kinds.secrets import SECRET, TLS, TLS_CERTIFICATE, TLS_KEY, Secret
from manciple.store import hooks, records
from manciple.store.hooks import Write

_PEM = b"-----BEGIN "


def warn_of_pair(write: Write) -> None:
    new, old = write.new, write.old
    if write.operation not in ("CREATE", "UPDATE") or new.type != TLS or (old is not None and old.data == new.data):
        return
    if why := why_no_pair(new):
        records.warn(f"tls: {why}")


def why_no_pair(secret: Secret) -> str:
    """Why its certificate and key serve no connection; "" where they do. Never says what they hold."""
    certificate, key = (base64.b64decode(secret.data.get(name, "")) for name in (TLS_CERTIFICATE, TLS_KEY))
    for data, what in ((certificate, "certificate"), (key, "key")):
        if _PEM not in data:
            return f"failed to find any PEM data in {what} input"
    try:
        of_certificate = x509.load_pem_x509_certificate(certificate).public_key()
        # Checking the numbers of a large RSA key takes seconds.
        private = load_pem_private_key(key, password=None, unsafe_skip_rsa_key_validation=True)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return "failed to parse the certificate or the private key"
    form = Encoding.DER, PublicFormat.SubjectPublicKeyInfo
    if of_certificate.public_bytes(*form) != private.public_key().public_bytes(*form):
        return "private key does not match public key"
    return ""


def register() -> None:
    hooks.register_check(warn_of_pair, resources={SECRET.resource})

"""Makes a key with a request for a node's certificate, and reads certificates; prints what it found as JSON.

    python request_maker.py request KEY_FILE NODE     {"request": base64 of the PEM, "key": SHA-256 of the public key}
    python request_maker.py read PEM_FILE             {"name", "begins", "ends" (seconds since 1970), "key"}

The key is made where the file is not there, and kept where it is. Run by `credentials` in a process of its own: the
cryptography library would cost the agent 10 MB for as long as it runs. So this file imports nothing of ours.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import sys
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

PEM = serialization.Encoding.PEM


def request(key_file: Path, node: str) -> dict[str, Any]:
    """Source of the subject: kubelet's, for kubernetes.io/kube-apiserver-client-kubelet."""
    key = _key(key_file)
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "system:nodes"),
            x509.NameAttribute(NameOID.COMMON_NAME, f"system:node:{node}", _validate=False),
        ]
    )
    made = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    return {"request": base64.b64encode(made.public_bytes(PEM)).decode(), "key": _digest(key.public_key())}


def read(file: Path) -> dict[str, Any]:
    """Of the first certificate in the file."""
    found = x509.load_pem_x509_certificates(file.read_bytes())[0]
    names = found.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return {
        "name": str(names[0].value) if names else "",
        "begins": found.not_valid_before_utc.timestamp(),
        "ends": found.not_valid_after_utc.timestamp(),
        "key": _digest(found.public_key()),
    }


def _key(file: Path) -> ec.EllipticCurvePrivateKey:
    if file.exists():
        kept = serialization.load_pem_private_key(file.read_bytes(), password=None)
        if not isinstance(kept, ec.EllipticCurvePrivateKey):
            raise TypeError(f"{file} holds no elliptic curve key")
        return kept
    made = ec.generate_private_key(ec.SECP256R1())
    content = made.private_bytes(PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    _write(file, content)
    return made


def _digest(key: Any) -> str:
    spki = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(spki).hexdigest()


def _write(path: Path, content: bytes) -> None:
    """Make `path`, never readable to others and never half written, and on the disk when this returns."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.tmp")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


if __name__ == "__main__":
    found = request(Path(sys.argv[2]), sys.argv[3]) if sys.argv[1] == "request" else read(Path(sys.argv[2]))
    print(json.dumps(found))

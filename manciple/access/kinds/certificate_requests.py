"""certificates.k8s.io/v1: CertificateSigningRequest, its types and the names that mean something.

What is here asks for nothing but the wire's types: the agents of nodes use it. The rules stand in `certificate_rules`.
Source: k8s.io/api/certificates/v1 of Kubernetes 1.36.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from manciple.wire.base import ApiObject, Int32, TimeText, Value, condition_of, pb

GROUP, VERSION = "certificates.k8s.io", "v1"
PACKAGE = "io.k8s.api.certificates.v1"
RESOURCE = f"certificatesigningrequests.{GROUP}"

#: Signers of ours: of clients of the API, and of the agents of nodes.
CLIENT_SIGNER = "kubernetes.io/kube-apiserver-client"
NODE_SIGNER = "kubernetes.io/kube-apiserver-client-kubelet"
#: What the certificate of an agent is for.
NODE_USAGES = ("client auth", "digital signature")

APPROVED, DENIED, FAILED = "Approved", "Denied", "Failed"


class CertificateSigningRequestSpec(Value):
    """What is asked for, and by whom; it never changes.

    request: PKCS#10 as PEM, in base64. expiration_seconds: asked for; the signer may give less. usages: of the key.
    username, uid, groups, extra: who created it, as the API server knows them.

    signer_name: who is asked to sign.
    """

    request: Annotated[str, pb(1, encoding="bytes")] = ""
    signer_name: Annotated[str, pb(7)] = ""
    expiration_seconds: Annotated[Int32 | None, pb(8)] = None
    usages: Annotated[tuple[str, ...], pb(5)] = ()
    username: Annotated[str, pb(2)] = ""
    uid: Annotated[str, pb(3)] = ""
    groups: Annotated[tuple[str, ...], pb(4)] = ()
    extra: Annotated[dict[str, tuple[str, ...]], pb(6, encoding="strings")] = {}


class CertificateSigningRequestCondition(Value):
    """A decision about the request. type: Approved, Denied or Failed, which are always True, or a signer's own."""

    type: Annotated[str, pb(1)] = ""
    status: Annotated[str, pb(6)] = ""
    reason: Annotated[str, pb(2)] = ""
    message: Annotated[str, pb(3)] = ""
    last_update_time: Annotated[TimeText | None, pb(4, encoding="time")] = None
    last_transition_time: Annotated[TimeText | None, pb(5, encoding="time")] = None


class CertificateSigningRequestStatus(Value):
    """The decisions and the certificate. certificate: PEM in base64, once it is signed; it never changes."""

    conditions: Annotated[tuple[CertificateSigningRequestCondition, ...], pb(1, list_keys="type")] = ()
    certificate: Annotated[str, pb(2, encoding="bytes")] = ""


class CertificateSigningRequest(ApiObject):
    """A certificate that somebody asks a signer for; approved or denied first. Cluster scoped."""

    SCHEMA: ClassVar = "io.k8s.api.certificates.v1.CertificateSigningRequest"

    spec: Annotated[CertificateSigningRequestSpec, pb(2)] = CertificateSigningRequestSpec()
    status: Annotated[CertificateSigningRequestStatus, pb(3)] = CertificateSigningRequestStatus()

    def condition(self, type_: str) -> CertificateSigningRequestCondition | None:
        return condition_of(self.status.conditions, type_)

"""What every namespace has: the service account `default`, and the API's authority as a ConfigMap for its pods.

Both are made together with the namespace, in its transaction: a pod that comes next finds them. A controller restores
them afterwards: what somebody deleted or changed, what a namespace of an older installation lacks, an authority that is
another one now. A process that does not have the authority's file (`settings.CA_FILE`) leaves the ConfigMap to those
that do.
Source: pkg/controller/serviceaccount/serviceaccounts_controller.go, pkg/controller/certificates/rootcacertpublisher.
"""

from __future__ import annotations

from collections.abc import Iterable

from django.conf import settings
from msgspec.structs import replace

from manciple.access.kinds.secrets import CONFIG_MAP, ConfigMap
from manciple.access.kinds.service_accounts import DEFAULT_NAME, SERVICE_ACCOUNT, ServiceAccount
from manciple.per_process import PerProcess
from manciple.store import event_log, hooks, objects, sql
from manciple.store.hooks import Write
from manciple.store.objects import Writer
from manciple.wire.base import ObjectMeta
from manciple.wire.identity import SYSTEM, Identity, controller
from manciple.wire.registry import registry

NAMESPACES, SERVICE_ACCOUNTS, CONFIG_MAPS = "namespaces", SERVICE_ACCOUNT.resource, CONFIG_MAP.resource
#: The ConfigMap and its key.
ROOT_CA, AUTHORITY_KEY = "kube-root-ca.crt", "ca.crt"
#: (resource, name) of both: a namespace with nothing else in it is empty.
DEFAULTS = frozenset({(SERVICE_ACCOUNTS, DEFAULT_NAME), (CONFIG_MAPS, ROOT_CA)})

#: Who restores what (upstream: kube-controller-manager's service accounts of these names).
ACCOUNT_CONTROLLER = controller("service-account-controller")
AUTHORITY_CONTROLLER = controller("root-ca-cert-publisher")


def register() -> None:
    hooks.register_rule(complete_new, operations={"CREATE"}, resources={NAMESPACES})


def authority() -> str:
    """The certificate (PEM) of the authority that the API's certificate is signed by; "" where it is not at hand."""
    try:
        return str(settings.CA_FILE.read_text())
    except OSError:
        return ""


def complete_new(writer: Writer, write: Write) -> None:
    """A rule. The installation itself does it: nobody else may write to a namespace that is not there yet."""
    name = write.new.metadata.name
    _create_account(writer, name, identity=SYSTEM)
    _publish(writer, name, authority(), identity=SYSTEM)


#: (a certificate, the revision at which this process saw it in all namespaces that it does not ask about again)
_seen = PerProcess(lambda: ("", 0))
_WITHOUT_ACCOUNT = """
    SELECT n.name FROM store_storedobject n
    LEFT JOIN store_storedobject a ON a.resource = %s AND a.namespace = n.name AND a.name = %s
    WHERE n.resource = %s AND n.namespace = '' AND a.uid IS NULL
"""
_WITH_SUSPECT_CERTIFICATE = """
    SELECT n.name FROM store_storedobject n
    LEFT JOIN store_storedobject c ON c.resource = %s AND c.namespace = n.name AND c.name = %s
    WHERE n.resource = %s AND n.namespace = '' AND (c.uid IS NULL OR c.event_id > %s)
"""


def restore() -> int:
    """Bring every namespace to what it should have; returns how many objects were written.

    The database finds those that lack something, or whose certificate was written since it was last seen.
    """
    certificate = authority()
    known, revision = _seen.value
    now = event_log.latest_revision()
    names = {name for (name,) in sql.fetch(_WITHOUT_ACCOUNT, [SERVICE_ACCOUNTS, DEFAULT_NAME, NAMESPACES])}
    if certificate:
        asked = [CONFIG_MAPS, ROOT_CA, NAMESPACES, revision if known == certificate else 0]
        names |= {name for (name,) in sql.fetch(_WITH_SUSPECT_CERTIFICATE, asked)}
    found = objects.get_many(registry.by_resource(NAMESPACES), [("", name) for name in names])
    alive = [item.name for item in found if not item.deleting]
    written = sum(_restore(name, certificate) for name in _incomplete(alive, certificate))
    _seen.value = (certificate, now)
    return written


def _restore(name: str, certificate: str) -> int:
    with objects.writing(identity=ACCOUNT_CONTROLLER) as writer:
        namespace = writer.get(registry.by_resource(NAMESPACES), "", name)
        if namespace is None or namespace.metadata.deletion_timestamp is not None:
            return 0  # it has begun to end meanwhile, and needs nothing any more
        return _create_account(writer, name) + _publish(writer, name, certificate)


def _incomplete(namespaces: Iterable[str], certificate: str) -> list[str]:
    """Those that lack something, or hold another certificate. Two queries."""
    names = list(namespaces)
    complete = {one.namespace for one in objects.get_many(SERVICE_ACCOUNT, [(name, DEFAULT_NAME) for name in names])}
    if certificate:
        found = objects.get_many(CONFIG_MAP, [(name, ROOT_CA) for name in names])
        complete &= {one.namespace for one in found if _holds(objects.decode(CONFIG_MAP, one.text), certificate)}
    return [name for name in names if name not in complete]


def _holds(config: object, certificate: str) -> bool:
    return isinstance(config, ConfigMap) and config.data == {AUTHORITY_KEY: certificate} and not config.binary_data


def _create_account(writer: Writer, namespace: str, *, identity: Identity = ACCOUNT_CONTROLLER) -> int:
    if writer.get(SERVICE_ACCOUNT, namespace, DEFAULT_NAME) is not None:
        return 0
    meta = ObjectMeta(name=DEFAULT_NAME, namespace=namespace)
    with writer.savepoint(identity=identity):
        writer.create(SERVICE_ACCOUNT, ServiceAccount(api_version="v1", kind="ServiceAccount", metadata=meta))
    return 1


def _publish(writer: Writer, namespace: str, certificate: str, *, identity: Identity = AUTHORITY_CONTROLLER) -> int:
    known = writer.get(CONFIG_MAP, namespace, ROOT_CA) if certificate else None
    if not certificate or _holds(known, certificate):
        return 0
    data = {AUTHORITY_KEY: certificate}
    with writer.savepoint(identity=identity):
        if isinstance(known, ConfigMap):
            writer.update(CONFIG_MAP, replace(known, data=data, binary_data={}))
        else:
            meta = ObjectMeta(name=ROOT_CA, namespace=namespace)
            writer.create(CONFIG_MAP, ConfigMap(api_version="v1", kind="ConfigMap", metadata=meta, data=data))
    return 1

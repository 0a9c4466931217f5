"""Plays one part of an upgrade with the code of the folder that it is started in, on the home that MANCIPLE_HOME names.

    cd VERSION; python .../upgrade_play.py MIGRATIONS PART [POD TO END...]

Pods are made that ask for extended resources by both kinds of names, everybody does what there is to do, the named pods
end, and what there is then is printed as JSON: pods, and what the invariants say.

MIGRATIONS: a JSON object, app -> migration to go back to at the end, as before a downgrade.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

OWN, EVERY = "example.com/gpu", "deviceclass.resource.kubernetes.io/gpu.example.com"


def play(part: str, ended: Sequence[str]) -> dict[str, Any]:
    """Needs the tables."""
    from claims.kinds.pods import Pod
    from inventory.kinds.devices import DeviceClass
    from tests.builders import make_class, make_container, make_devices, make_node, make_pod, make_slice
    from tests.scheduling.cluster import Cluster

    cluster = Cluster()
    if not cluster.all(DeviceClass):
        cluster.create(make_class(extended_resource_name=OWN))
        cluster.create(make_node())
        cluster.create(make_slice(devices=make_devices(16)))
    for name, resource in (("own", OWN), ("every", EVERY)):
        cluster.create(make_pod(f"{part}-{name}", containers=[make_container(limits={resource: "1"})]))
    cluster.settle()
    for name in ended:
        cluster.finish(name)
    cluster.settle()
    pods = {}
    for pod in cluster.all(Pod):
        status = pod.status.extended_resource_claim_status
        claim = cluster.find(_claims(), status.resource_claim_name) if status is not None else None
        pods[pod.metadata.name] = {
            "node": pod.spec.node_name,
            "mapped": [one.resource_name for one in status.request_mappings] if status is not None else [],
            "claim": claim.metadata.uid if claim is not None else "",
            "devices": cluster.devices(claim) if claim is not None else [],
        }
    return {"pods": pods, "violations": cluster.violations(), "own": cluster.device_class().spec.extended_resource_name}


def _claims() -> Any:
    from claims.kinds.resource_claims import ResourceClaim

    return ResourceClaim


def main() -> None:
    """See the module's docstring."""
    sys.path[0] = str(Path.cwd())  # the code of that folder, not of this one
    import django
    from django.core.management import call_command

    migrations, part, *ended = sys.argv[1:]
    django.setup()
    call_command("migrate", verbosity=0)
    print(json.dumps(play(part, ended)))
    for app, migration in json.loads(migrations).items():
        call_command("migrate", app, migration, verbosity=0)


if __name__ == "__main__":
    main()

"""Pods and claims of the laboratory that were deleted, as `claims.endings` would have recorded them."""

from __future__ import annotations

from datetime import datetime, timedelta

from claims.endings import Reason
from claims.models import Ending
from manciple.processes.demolab.pages import ENDED_POD
from manciple.wire.identity import controller
from manciple.wire.resources import CLAIMS, PODS

_SCHEDULER, _NODES = "system:kube-scheduler", controller("node-controller").name
_COLLECTOR = controller("resource-claim-controller").name
_PREEMPTED = "default-scheduler: preempting to accommodate a higher priority pod"
#: (uid, namespace, name, node, why, details, who, claim, minutes ago, minutes that it lived)
PAST = (
    (ENDED_POD, "vision", "clip-sweep-0", "gpu-a03", Reason.PREEMPTED, _PREEMPTED, _SCHEDULER, "clip-sweep-0-gpus", 42,
     190),
    ("0b6f2a1c", "nlp-lab", "llama-finetune-0", "gpu-b08", Reason.SUCCEEDED, "", "bob", "llama-finetune-0-gpus",
     95, 610),
    ("1c7e3b2d", "climate-ml", "downscale-era5-pilot-0", "gpu-d02", Reason.FAILED, "main: OOMKilled, exit code 137",
     "ann", "downscale-era5-pilot-0-gpus", 130, 55),
    ("2d8f4c3e", "teaching", "course-dl-anna-1", "gpu-c02", Reason.DELETED, "", "anna", "course-dl-anna-1-gpus", 260,
     31),
    ("3e905d4f", "robotics", "sim2real-sweep-4", "gpu-a09", Reason.NODE_TAINT,
     "Taint manager: deleting due to NoExecute taint", _NODES, "sim2real-sweep-4-gpus", 400, 1200),
)  # fmt: skip
#: From the end of a pod to that of its claim.
_LATER = timedelta(seconds=20)


def keep(now: datetime) -> None:
    for uid, namespace, name, node, reason, details, who, claim, ago, lived in PAST:
        ended_at = now - timedelta(minutes=ago)
        common = {
            "namespace": namespace,
            "node": node,
            "created_at": ended_at - timedelta(minutes=lived),
            "asked_at": ended_at - timedelta(seconds=30),
            "revision": 1,
        }
        Ending.objects.create(
            resource=PODS, uid=uid, name=name, reason=reason, message=details, owner="", others=[claim], author=who,
            ended_at=ended_at, **common,
        )  # fmt: skip
        Ending.objects.create(
            resource=CLAIMS, uid=f"claim-{uid}", name=claim, reason=Reason.OWNER, message="", owner=f"Pod {name}",
            others=[name], author=_COLLECTOR, ended_at=ended_at + _LATER, **common,
        )  # fmt: skip

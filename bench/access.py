"""What a decision of authorization costs at 1,000 bindings: `python bench/access.py [--seconds S] [--json]`.

A database of its own holds the default roles, 50 roles and 1,000 bindings. Questions go through the whole chain of
authorizers, as requests do. "cold": nothing is remembered of what was decided before; "warm": everything is. "one
subject": all bindings are of one user in one namespace, the worst that a cluster can do to a decision. The budget is
50 microseconds for each of them.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "manciple.settings")
os.environ["MANCIPLE_HOME"] = tempfile.mkdtemp()
os.environ.setdefault("MANCIPLE_LOG_LEVEL", "WARNING")

import django

django.setup()

from django.core.management import call_command  # noqa: E402

from manciple.access import authorization, rbac  # noqa: E402
from manciple.access.authorization import Attributes  # noqa: E402
from manciple.access.bootstrap import ensure_roles  # noqa: E402
from manciple.access.kinds import roles  # noqa: E402
from manciple.access.kinds.roles import PolicyRule, Role, RoleBinding, RoleRef, Subject  # noqa: E402
from manciple.store import objects  # noqa: E402
from manciple.wire.base import ObjectMeta  # noqa: E402
from manciple.wire.identity import SYSTEM, Identity  # noqa: E402

ROLES, BINDINGS, NAMESPACES, USERS, GROUPS = 50, 1000, 100, 200, 50
#: Microseconds.
BUDGET = 50.0
VERBS = ("get", "list", "watch", "create", "update", "patch", "delete")
RESOURCES = ("pods", "pods/log", "configmaps", "secrets", "events", "services", "resourceclaims")

Question = tuple[Identity, Attributes]


def role(name: str, namespace: str, random: Random) -> Role:
    rules = tuple(
        PolicyRule(verbs=tuple(random.sample(VERBS, 3)), api_groups=("",), resources=tuple(random.sample(RESOURCES, 3)))
        for _ in range(6)
    )
    return Role(metadata=ObjectMeta(name=name, namespace=namespace), rules=rules)


def binding(name: str, namespace: str, to: str, *subjects: Subject) -> RoleBinding:
    reference = RoleRef(api_group=roles.GROUP, kind="ClusterRole", name=to)
    return RoleBinding(metadata=ObjectMeta(name=name, namespace=namespace), role_ref=reference, subjects=subjects)


def subject(kind: str, name: str) -> Subject:
    return Subject(kind=kind, api_group=roles.GROUP, name=name)


def fill(random: Random) -> None:
    """The cluster roles, and bindings of users and groups all over the namespaces."""
    with objects.writing(identity=SYSTEM) as writer:
        for number in range(ROLES):
            made = role(f"role-{number}", "", random)
            writer.create(roles.CLUSTER_ROLE, roles.ClusterRole(metadata=made.metadata, rules=made.rules))
        for number in range(BINDINGS):
            who = subject("User", f"user-{random.randrange(USERS)}")
            group = subject("Group", f"group-{random.randrange(GROUPS)}")
            where, to = f"ns-{random.randrange(NAMESPACES)}", f"role-{random.randrange(ROLES)}"
            writer.create(roles.ROLE_BINDING, binding(f"b-{number}", where, to, who, group))


def fill_one() -> None:
    """As many bindings again, each to a role of its own, of one user in one namespace."""
    random = Random(2)
    with objects.writing(identity=SYSTEM) as writer:
        for number in range(BINDINGS):
            writer.create(roles.ROLE, role(f"own-{number}", "one", random))
            reference = RoleRef(api_group=roles.GROUP, kind="Role", name=f"own-{number}")
            meta = ObjectMeta(name=f"own-{number}", namespace="one")
            user = subject("User", "collector")
            writer.create(roles.ROLE_BINDING, RoleBinding(metadata=meta, role_ref=reference, subjects=(user,)))


def questions(random: Random, count: int = 2000) -> list[Question]:
    """Of users in five groups each, in all namespaces; most are refused."""
    found = []
    for _ in range(count):
        groups = tuple(f"group-{random.randrange(GROUPS)}" for _ in range(4))
        who = Identity(f"user-{random.randrange(USERS)}", (*groups, "system:authenticated"))
        plural, _, below = random.choice(RESOURCES).partition("/")
        wanted = Attributes(
            verb=random.choice(VERBS),
            version="v1",
            resource=plural,
            subresource=below,
            namespace=f"ns-{random.randrange(NAMESPACES)}",
            name="x",
        )
        found.append((who, wanted))
    return found


def refused_collector() -> list[Question]:
    """Nothing allows these: every role is looked at."""
    who = Identity("collector", ("system:authenticated",))
    return [(who, Attributes(verb="bind", resource=f"things{number}", namespace="one")) for number in range(200)]


def microseconds(asked: list[Question], *, cold: bool, seconds: float) -> float:
    """CPU time of one decision, in the mean."""
    for who, wanted in asked:
        authorization.decide(who, wanted)
    done, spent, ends = 0, 0.0, time.monotonic() + seconds
    while time.monotonic() < ends:
        if cold:
            rbac.policy().decided = {}
        started = time.thread_time()
        for who, wanted in asked:
            authorization.decide(who, wanted)
        spent += time.thread_time() - started
        done += len(asked)
    return spent / done * 1e6


def change_costs() -> float:
    """Milliseconds until a decision heeds a binding that was just written."""
    who = Identity("newcomer", ("system:authenticated",))
    with objects.writing(identity=SYSTEM) as writer:
        writer.create(roles.ROLE_BINDING, binding("new", "ns-0", "role-0", subject("User", "newcomer")))
    started = time.perf_counter()
    authorization.decide(who, Attributes(verb="get", resource="pods", namespace="ns-0"))
    return (time.perf_counter() - started) * 1e3


def figures(seconds: float) -> Iterator[tuple[str, float, str]]:
    random = Random(1)
    call_command("migrate", verbosity=0)
    ensure_roles()
    fill(random)
    asked = distinct(questions(random))
    started = time.perf_counter()
    rbac.policy()
    yield "list and compile all of it", (time.perf_counter() - started) * 1e3, "ms"
    yield f"a decision at {BINDINGS:,} bindings, cold", microseconds(asked, cold=True, seconds=seconds), "µs"
    yield f"a decision at {BINDINGS:,} bindings, warm", microseconds(asked, cold=False, seconds=seconds), "µs"
    yield "the first decision after a change", change_costs(), "ms"
    fill_one()
    collector = refused_collector()
    yield f"one subject of {BINDINGS:,}, refused, cold", microseconds(collector, cold=True, seconds=seconds), "µs"
    yield f"one subject of {BINDINGS:,}, refused, warm", microseconds(collector, cold=False, seconds=seconds), "µs"


def distinct(asked: list[Question]) -> list[Question]:
    """Each once: of the second nothing would be cold."""
    return list({(who.name, who.groups, wanted): (who, wanted) for who, wanted in asked}.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=1.0, help="for each figure")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = list(figures(options.seconds))
    if options.json:
        print(json.dumps({name: value for name, value, _ in found}))
        return
    print(f"-- access (load average {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores)")
    for name, value, unit in found:
        budget = f"   budget {BUDGET:.0f} µs" if unit == "µs" else ""
        rate = f"   {1e6 / value:>9,.0f}/s" if unit == "µs" else ""
        print(f"{name:<48} {value:8.1f} {unit}{rate}{budget}")


if __name__ == "__main__":
    main()

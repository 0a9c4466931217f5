"""`manciple mirror --in-cluster` in a second Manciple: for its users, with the rights that they have there."""

from __future__ import annotations

import base64
import ssl
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
import yaml

from manciple.api import certificates
from tests.e2e.api_client import Api, submit_form
from tests.e2e.processes import ROOT, Process, Up, wait_for
from tests.e2e.test_mirror import Way, pod

HERE, THERE, ITS_OWN = "rights-here", "rights-there", "rights-mirror"
#: With the rights that a mirror has where it is installed.
MANIFESTS = ROOT / "deploy" / "kubernetes" / "mirror" / "mirror.yaml"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
#: Runs the command as in a pod, whose account is in the folder that is named first.
_AS_POD = """
import sys, pathlib
from manciple.mirror import kubeconfig
kubeconfig.ACCOUNT = pathlib.Path(sys.argv.pop(1))
from manciple.processes.command_line import main
sys.exit(main())
"""


def account(api: Api, namespace: str, name: str) -> None:
    api.made(f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": name}})


def token_of(api: Api, namespace: str, name: str) -> str:
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
    return str(api.made(path, {"spec": {"expirationSeconds": 3600}})["status"]["token"])


def bind(api: Api, role: str, name: str, account_of: str, *, namespace: str = "") -> None:
    """A ClusterRole, everywhere or in a namespace."""
    scope = f"{RBAC}/namespaces/{namespace}/rolebindings" if namespace else f"{RBAC}/clusterrolebindings"
    subject = {"kind": "ServiceAccount", "name": name, "namespace": account_of}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}
    api.made(
        scope, {"metadata": {"name": f"{name}-{role}".replace(":", "-")}, "roleRef": reference, "subjects": [subject]}
    )


@pytest.fixture(scope="module")
def cluster(system: Up) -> Iterator[Api]:
    """Two namespaces with a pod each. ann may read in one, bob in the other, root everything, eve nothing."""
    api = Api(system.kubeconfig)
    for namespace in (HERE, THERE, ITS_OWN):
        api.made("/api/v1/namespaces", {"metadata": {"name": namespace}})
    for namespace in (HERE, THERE):
        api.made(f"/api/v1/namespaces/{namespace}/pods", pod(f"{namespace}-pod", nodeSelector={"disk": "ssd"}))
    for name in ("ann", "bob", "root", "eve", "mirror"):
        account(api, ITS_OWN, name)
    bind(api, "view", "ann", ITS_OWN, namespace=HERE)
    bind(api, "view", "bob", ITS_OWN, namespace=THERE)
    bind(api, "cluster-admin", "root", ITS_OWN)
    (rules,) = (one["rules"] for one in yaml.safe_load_all(MANIFESTS.read_text()) if one["kind"] == "ClusterRole")
    api.made(f"{RBAC}/clusterroles", {"metadata": {"name": "mirror-reader"}, "rules": rules})
    bind(api, "mirror-reader", "mirror", ITS_OWN)
    yield api
    for place in ("clusterrolebindings/root-cluster-admin", "clusterrolebindings/mirror-mirror-reader"):
        api.delete(f"{RBAC}/{place}")
    api.delete(f"{RBAC}/clusterroles/mirror-reader")
    for namespace in (HERE, THERE, ITS_OWN):
        api.delete(f"/api/v1/namespaces/{namespace}")
    left = {HERE, THERE, ITS_OWN}
    wait_for("they are gone", lambda: not left & {one["metadata"]["name"] for one in api.listed("/api/v1/namespaces")})


@pytest.fixture(scope="module")
def way(cluster: Api) -> Iterator[Way]:
    made = Way(cluster.server)
    yield made
    made.close()


@dataclass
class InCluster:
    url: str
    running: Process
    trust: ssl.SSLContext

    def browser(self) -> httpx.Client:
        headers = {"Referer": self.url}  # as browsers send it over TLS, where forms ask for it
        return httpx.Client(base_url=self.url, verify=self.trust, headers=headers, timeout=60)

    def entered(self, token: str) -> httpx.Client:
        browser = self.browser()
        submit_form(browser, "/login", {"token": token})
        return browser

    def listed(self, token: str, namespace: str = "") -> int:
        path = f"/api/v1/namespaces/{namespace}/pods" if namespace else "/api/v1/pods"
        with self.browser() as client:
            return client.get(path, headers={"Authorization": f"Bearer {token}"}).status_code


@pytest.fixture(scope="module")
def mirror(system: Up, cluster: Api, way: Way, tmp_path_factory: pytest.TempPathFactory) -> Iterator[InCluster]:
    folder = tmp_path_factory.mktemp("in-cluster")
    document = yaml.safe_load(system.kubeconfig.read_text())["clusters"][0]["cluster"]
    own = folder / "account"
    own.mkdir()
    (own / "token").write_text(token_of(cluster, ITS_OWN, "mirror"))
    (own / "ca.crt").write_bytes(base64.b64decode(document["certificate-authority-data"]))
    (own / "namespace").write_text(ITS_OWN)
    tls = folder / "tls"
    tls.mkdir()
    files = certificates.ensure(tls)
    there = urlsplit(way.url)
    command = ["-c", _AS_POD, str(own), "mirror", "--in-cluster", "--context", "prod", "--listen", "127.0.0.1:0"]
    command += ["--home", str(folder / "home"), "--tls-cert", str(files.certificate), "--tls-key", str(files.key)]
    env = {"KUBERNETES_SERVICE_HOST": str(there.hostname), "KUBERNETES_SERVICE_PORT": str(there.port)}
    running = Process([sys.executable, *command], env=env, forked=False).start()
    url = running.line(r"sign in at (https://127\.0\.0\.1:\d+)").group(1)
    running.line("Stop with Ctrl-C")
    yield InCluster(url, running, ssl.create_default_context(cafile=files.authority))
    assert running.stop() == 0, "\n".join(running.output)


def shown(browser: httpx.Client) -> set[str]:
    page = browser.get("/pods").text
    return {f"{namespace}-pod" for namespace in (HERE, THERE) if f"{namespace}-pod" in page}


def test_each_user_sees_what_the_cluster_lets_them_see(mirror: InCluster, cluster: Api) -> None:
    sees: dict[str, tuple[str, ...]] = {"ann": (HERE,), "bob": (THERE,), "root": (HERE, THERE), "eve": ()}
    for name, namespaces in sees.items():
        token = token_of(cluster, ITS_OWN, name)
        for namespace in (HERE, THERE):
            assert mirror.listed(token, namespace) == (200 if namespace in namespaces else 403), (name, namespace)
        assert mirror.listed(token) == (200 if name == "root" else 403)
        with closing(mirror.entered(token)) as browser:
            wanted = {f"{namespace}-pod" for namespace in namespaces}
            wait_for(f"the pods of {name}", lambda: shown(browser) == wanted)  # noqa: B023 - called at once
            own = browser.get(f"/pods/{HERE}/{HERE}-pod")
            assert (own.status_code == 200) == (HERE in namespaces), own.status_code
            if name == "ann":
                assert THERE not in own.text


def test_nobody_else_comes_in(mirror: InCluster, system: Up) -> None:
    with mirror.browser() as browser:
        assert browser.get("/readyz").text == "ok"
        assert browser.get("/pods").status_code == 302
        assert browser.get("/api/v1/pods").status_code in (401, 403)
        for headers in ({"Authorization": "Bearer x"}, {"X-Remote-User": "root"}, {"Impersonate-User": "root"}):
            assert browser.get("/api/v1/pods", headers=headers).status_code in (401, 403), headers
    own = [path for path in Path(mirror_home(mirror)).iterdir() if path.name.startswith("kubeconfig")]
    assert not own, "nobody owns it"


def mirror_home(mirror: InCluster) -> str:
    command: Any = mirror.running.command
    return str(command[command.index("--home") + 1])


def test_writes_are_refused_whoever_asks(mirror: InCluster, cluster: Api) -> None:
    token = token_of(cluster, ITS_OWN, "root")
    with mirror.browser() as browser:
        path = f"/api/v1/namespaces/{HERE}/pods/{HERE}-pod"
        answer = browser.delete(path, headers={"Authorization": f"Bearer {token}"})
    assert answer.status_code == 403
    assert "--context prod" in answer.json()["message"]
    assert cluster.find(path) is not None


def test_a_token_that_is_revoked_and_a_cluster_that_is_away_end_what_was_allowed(
    mirror: InCluster, cluster: Api, way: Way
) -> None:
    """Takes as long as answers count, twice."""
    ann, bob = (token_of(cluster, ITS_OWN, name) for name in ("ann", "bob"))
    with closing(mirror.entered(ann)) as of_ann, closing(mirror.entered(bob)) as of_bob:
        wait_for("bob to see his pod", lambda: f"{THERE}-pod" in of_bob.get("/pods").text)
        cluster.delete(f"/api/v1/namespaces/{ITS_OWN}/serviceaccounts/bob")
        wait_for("bob's session to end", lambda: of_bob.get("/pods").status_code == 302)
        wait_for("bob's token to be refused", lambda: mirror.listed(bob, THERE) == 401)
        wait_for("ann to see her pod", lambda: f"{HERE}-pod" in of_ann.get("/pods").text)
        way.cut()
        wait_for("nothing to be shown", lambda: of_ann.get("/pods").status_code == 503)
        assert f"{HERE}-pod" not in of_ann.get("/pods").text
        wait_for("nothing to be listed", lambda: mirror.listed(ann, HERE) == 503)
        way.mend()
        wait_for("ann to see her pod again", lambda: f"{HERE}-pod" in of_ann.get("/pods").text)
        wait_for("her token to count again", lambda: mirror.listed(ann, HERE) == 200)
        assert mirror.listed(bob, THERE) == 401
    said = "\n".join(mirror.running.output)
    assert ann not in said
    assert bob not in said

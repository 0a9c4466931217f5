"""Run the driver: publish its devices, register with the node agent, prepare claims, until SIGTERM or SIGINT."""

from __future__ import annotations

import argparse
import base64
import fcntl
import os
import signal
import ssl
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import grpc
import httpx
import yaml

from tests.plugin_driver.devices import Devices
from tests.plugin_driver.kube import VERSIONS, Kube
from tests.plugin_driver.messages import Messages, compiled
from tests.plugin_driver.orders import Journal, read_orders
from tests.plugin_driver.services import Plugin
from tests.plugin_driver.slices import Informer, SliceController, Store

SERVICES = "v1.DRAPlugin,v1beta1.DRAPlugin,v1alpha1.DRAResourceHealth"


def parser() -> argparse.ArgumentParser:
    command = argparse.ArgumentParser(prog="python -m tests.plugin_driver", description=__doc__)
    command.add_argument("--driver", required=True, metavar="NAME", help="the driver's name, a DNS subdomain")
    command.add_argument("--node", required=True, metavar="NAME", help="the node that it runs on")
    command.add_argument("--kubeconfig", required=True, type=Path, metavar="FILE", help="server and token")
    command.add_argument(
        "--plugin-dir", required=True, type=Path, metavar="DIR", help="has plugins_registry/, plugins/"
    )
    command.add_argument("--cdi-dir", required=True, type=Path, metavar="DIR", help="where its CDI files are written")
    command.add_argument("--orders", required=True, type=Path, metavar="FILE", help="how calls are to end (JSON)")
    command.add_argument("--journal", required=True, type=Path, metavar="FILE", help="where calls are written down")
    command.add_argument("--descriptors", type=Path, metavar="FILE", help="compiled messages, made where absent")
    command.add_argument("--uid", default="", help="of the driver's pod: two instances may then be there at once")
    command.add_argument("--services", default=SERVICES, help="what it serves and lists (default: %(default)s)")
    command.add_argument("--api", default="v1", choices=VERSIONS, help="the version of resource.k8s.io to try first")
    command.add_argument("--list-watch", action="store_true", help="list and watch, as informers before 1.35")
    command.add_argument("--sync-delay", type=float, default=30.0, metavar="SECONDS", help="after a change by others")
    command.add_argument("--describe", action="store_true", help="write the metadata of KEP-5304")
    return command


def connect(path: Path) -> httpx.Client:
    """A client with the server, CA and token of a kubeconfig file."""
    document = yaml.safe_load(path.read_text())
    cluster, user = document["clusters"][0]["cluster"], document["users"][0]["user"]
    authority = base64.b64decode(cluster.get("certificate-authority-data", "")).decode()
    return httpx.Client(
        base_url=cluster["server"],
        verify=ssl.create_default_context(cadata=authority) if authority else True,
        headers={"Authorization": f"Bearer {user['token']}", "User-Agent": "plugin-driver"},
        timeout=30,
    )


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """One call at a time among all instances."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def serve(path: Path, handlers: Sequence[grpc.GenericRpcHandler]) -> Callable[[], None]:
    """Serve at a Unix socket, in place of a stale one; returns what ends it and removes the socket."""
    path.unlink(missing_ok=True)
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=16))
    server.add_generic_rpc_handlers(tuple(handlers))
    server.add_insecure_port(f"unix:{path}")
    server.start()

    def stop() -> None:
        path.unlink(missing_ok=True)
        server.stop(grace=0.5).wait()

    return stop


def publish(options: argparse.Namespace, kube: Kube, journal: Journal, stop: threading.Event) -> None:
    """Start the informer and the controller of the driver's slices; returns once the informer has its state."""
    store = Store()
    selector = f"spec.driver={options.driver},spec.nodeName={options.node}"
    informer = Informer(kube, selector, store, watch_list=not options.list_watch)
    threading.Thread(target=informer.run, args=(stop,), daemon=True).start()
    while not informer.synced.wait(0.1) and not stop.is_set():
        pass
    controller = SliceController(
        kube=kube,
        driver=options.driver,
        node=options.node,
        wanted=lambda: read_orders(options.orders).pools,
        journal=journal,
        store=store,
        delay=options.sync_delay,
    )
    threading.Thread(target=controller.run, args=(stop,), daemon=True).start()


def told_to_stop() -> threading.Event:
    """Set by a thread to which the interpreter's own C handler sends the signal's number.

    A Python handler would run in the main thread alone, which may wait in a lock while another thread gets the signal,
    and might find the event's lock held by the very thread that it interrupts.
    """
    stop = threading.Event()
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)

    def wait() -> None:
        os.read(reading, 1)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    threading.Thread(target=wait, daemon=True).start()
    return stop


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    stop = told_to_stop()
    journal = Journal(options.journal)
    messages = Messages(compiled(options.descriptors))
    data = options.plugin_dir / "plugins" / options.driver
    data.mkdir(parents=True, exist_ok=True)
    suffix = f"-{options.uid}" if options.uid else ""
    socket = data / f"dra{suffix}.sock"
    mutex = threading.Lock()

    def serialized() -> AbstractContextManager[Any]:
        return locked(data / "serialize.lock") if options.uid else mutex

    def client() -> Kube:
        return Kube(connect(options.kubeconfig), messages, version=options.api, record=journal.write)

    plugin = Plugin(
        name=options.driver,
        endpoint=str(socket),
        services=options.services.split(","),
        kube=client(),
        devices=Devices(options.driver, options.cdi_dir, data, describes=options.describe),
        messages=messages,
        journal=journal,
        orders=options.orders,
        serialized=serialized,
        stopping=stop,
    )
    # First the services, then the registration that makes them known.
    ends = [serve(socket, plugin.handlers())]
    registry = options.plugin_dir / "plugins_registry" / f"{options.driver}{suffix}-reg.sock"
    ends.append(serve(registry, [plugin.registration()]))
    journal.write(call="started")
    publish(options, client(), journal, stop)
    stop.wait()
    for end in reversed(ends):
        end()
    return 0


if __name__ == "__main__":
    sys.exit(main())

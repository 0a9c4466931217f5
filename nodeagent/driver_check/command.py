"""`manciple driver check SOCKET`: checks a driver of the kubelet's plugin protocol without Kubernetes, and reports.

Exits with 0 where everything that was checked passed, with 1 where something failed, with 2 for a wrong command line.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import yaml

from nodeagent.config import CDI_DIRS, ListenAddress, node_name
from nodeagent.driver_check.api import CheckApi, ServedApi
from nodeagent.driver_check.checks import CHECKS
from nodeagent.driver_check.report import CheckReport, CheckResult, lines_of, run_checks
from nodeagent.driver_check.subject import CheckOptions, DriverUnderTest

#: Lines of a driver's log that are shown where something failed.
SHOWN: Final = 20


class DriverCommand:
    """A driver that is started by a command line. log: where its output goes."""

    def __init__(self, words: Sequence[str], *, environment: Mapping[str, str], log: Path) -> None:
        self._words = words
        self._environment = environment
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Raises: OSError where there is no such program."""
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(
                self._words,
                env={**os.environ, **self._environment},
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def kill(self) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def stop(self, *, seconds: float) -> bool:
        if self._process is None:
            return True
        self._process.terminate()
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            return False
        return True

    def said(self) -> str:
        """The last of what it wrote."""
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-SHOWN:]) if self._log.exists() else ""


def parser() -> argparse.ArgumentParser:
    """The command line, documented by `--help` and in docs/reference/commands.md."""
    command = argparse.ArgumentParser(
        prog="manciple driver check",
        description="Checks a driver of the kubelet's plugin protocol without Kubernetes, and reports.",
        epilog="Start the driver with the kubeconfig that is written, or let --run start it.",
    )
    add = command.add_argument
    add("socket", type=Path, metavar="SOCKET", help="its registration socket, in plugins_registry/")
    add(
        "--node-name",
        type=node_name,
        default="node-1",
        metavar="NAME",
        help="the node that it is for (default: %(default)s)",
    )
    searched = " and ".join(map(str, CDI_DIRS))
    cdi = f"where runtimes look for its CDI files; repeatable (default: {searched})"
    add("--cdi-dir", action="append", type=Path, metavar="DIR", help=cdi)
    run = "starts the driver, again for checks of restarts; may contain {kubeconfig}, {node}, {cdi_dir}, {socket}"
    add("--run", metavar="COMMAND", help=f"{run} (default: start it yourself)")
    add("--parameters", type=Path, metavar="FILE", help="opaque parameters that claims carry for it (YAML)")
    add(
        "--kubeconfig",
        type=Path,
        metavar="FILE",
        help="where the driver's kubeconfig is written (default: a temporary file)",
    )
    where = "where the driver's API server listens, over plain HTTP (default: any free port of loopback)"
    add("--listen", default="127.0.0.1:0", metavar="ADDRESS:PORT", help=where)
    limit = "the timeout of a call, as of a kubelet (default: %(default)g)"
    add("--call-seconds", type=float, default=45.0, metavar="S", help=limit)
    wait = "how long the driver may take to start, to publish and to report (default: %(default)g)"
    add("--wait", type=float, default=60.0, metavar="S", help=wait)
    add("--slow", action="store_true", help="also run checks that take a minute or two")
    add("--only", action="append", default=[], metavar="ID", help="this check, and what it needs; repeatable")
    add("--list", action="store_true", help="list the checks, and run none")
    add("--json", action="store_true", help="report as JSON")
    return command


def main(arguments: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    if "--list" in words:
        print("\n".join(f"{check.id.ljust(24)} {check.title}" for check in CHECKS))
        return 0
    options = parser().parse_args(words)
    try:
        _refuse_unknown(options.only)
        parameters = yaml.safe_load(options.parameters.read_text()) if options.parameters else None
        listen = ListenAddress.parse(options.listen)
        with tempfile.TemporaryDirectory(prefix="driver-check-") as folder:
            return _run(options, parameters, listen, Path(folder))
    except (ValueError, OSError, yaml.YAMLError) as error:
        print(f"manciple driver check: {error}", file=sys.stderr)
        return 2


def _refuse_unknown(only: Sequence[str]) -> None:
    """Raises: ValueError."""
    if unknown := set(only) - {check.id for check in CHECKS}:
        raise ValueError(f"--only: there is no check {', '.join(sorted(unknown))}; --list names them")


def _run(options: argparse.Namespace, parameters: Any, listen: ListenAddress, folder: Path) -> int:
    """Raises: OSError."""
    api = CheckApi(options.node_name)
    served = ServedApi(api, host=listen.host, port=listen.port)
    kubeconfig = options.kubeconfig or folder / "kubeconfig"
    served.write_kubeconfig(kubeconfig)
    served.start()
    process = _process(options, kubeconfig, folder)
    subject = DriverUnderTest(api, _check_options(options, parameters), process)
    tell = sys.stderr if options.json else sys.stdout
    if process is None:
        print(f"Start the driver with --kubeconfig {kubeconfig} for node {options.node_name}", file=sys.stderr)
    try:
        with _running(process):
            report = report_on(subject, options.only, tell=lambda line: print(line, file=tell, flush=True))
    finally:
        served.stop()
    print(report.as_json() if options.json else f"\n{report.summary()}")
    if process is not None and not report.passed and (said := process.said()):
        print(f"\nThe driver's last words:\n{said}", file=sys.stderr)
    return 0 if report.passed else 1


def _check_options(options: argparse.Namespace, parameters: Any) -> CheckOptions:
    return CheckOptions(
        socket=options.socket.absolute(),
        cdi_dirs=[folder.absolute() for folder in options.cdi_dir or CDI_DIRS],
        parameters=parameters,
        call_seconds=options.call_seconds,
        wait_seconds=options.wait,
        slow=options.slow,
    )


def _process(options: argparse.Namespace, kubeconfig: Path, folder: Path) -> DriverCommand | None:
    if options.run is None:
        return None
    places = {
        "{kubeconfig}": str(kubeconfig),
        "{node}": options.node_name,
        "{socket}": str(options.socket.absolute()),
        "{cdi_dir}": str((options.cdi_dir or CDI_DIRS)[-1].absolute()),
    }
    words = shlex.split(options.run)
    for name, value in places.items():
        words = [word.replace(name, value) for word in words]
    environment = {"KUBECONFIG": str(kubeconfig), "NODE_NAME": options.node_name}
    return DriverCommand(words, environment=environment, log=folder / "driver.log")


@contextmanager
def _running(process: DriverCommand | None) -> Iterator[None]:
    """Raises: OSError."""
    if process is not None:
        process.start()
    try:
        yield
    finally:
        if process is not None:
            process.kill()


def report_on(subject: DriverUnderTest, only: Sequence[str], *, tell: Any) -> CheckReport:
    """tell: called with each line as it comes."""
    results: list[CheckResult] = []
    for result in run_checks(subject, CHECKS, only=only):
        results.append(result)
        for line in lines_of(result):
            tell(line)
    subject.disconnect()
    known = "registration.info" in {result.id for result in results if result.verdict == "passed"}
    info = subject.info if known else None
    return CheckReport(
        driver=info.name if info else "", services=info.supported_versions if info else (), results=tuple(results)
    )


if __name__ == "__main__":
    sys.exit(main())

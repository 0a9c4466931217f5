"""The `manciple` command: every verb of this program under one name, and what `manage.py` runs.

    manciple up                    a management command of Django's (`manage.py up` in a checkout)
    manciple worker                Celery's, with the options that our worker needs
    manciple node join URL         the agent's programs, which never load Django; so do those of `driver`

A verb is one word or two. Its module is imported when it is asked for: `manciple --help` imports none of them. `--home
DIR` and `--config FILE`, wherever they stand, are taken out before Django starts: its settings are read from there.
"""

from __future__ import annotations

import difflib
import importlib
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn

from manciple import configuration, frames, layout, memory
from manciple.configuration import ConfigurationRefused
from manciple.mirror import folders
from manciple.processes import database_file, home
from manciple.processes.database_file import DatabaseRefused
from manciple.refusals import StartRefused

#: Options of every verb, and what in the environment stands for each.
EVERYWHERE: Final[Mapping[str, str]] = {"--home": "MANCIPLE_HOME", "--config": configuration.VARIABLE}
#: What our workers are started with. They need not know of each other.
WORKER_OPTIONS: Final = ("--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel", "INFO")
#: Verbs that stop on Ctrl-C by themselves once they listen.
_INTERRUPTIBLE: Final = frozenset({"up", "serve", "demo", "screenshots"})
#: Verbs that tell of broken keys themselves, or need none.
_WITHOUT_KEYS: Final = frozenset({"doctor", "support_bundle", "help", "backup"})

#: Runs with what stands behind the verb; returns the exit status.
Run = Callable[[Sequence[str]], int]


@dataclass(frozen=True, slots=True)
class Verb:
    """name: "up", "node join". does: one line for `--help`. module: an argparse program, "" for one of Django's.

    parser: the name of the function in `module` that makes its parser, for completion.
    """

    name: str
    does: str
    run: Run
    module: str = ""
    parser: str = "parser"

    @property
    def words(self) -> list[str]:
        return self.name.split()


def _django(name: str) -> Run:
    return lambda rest: _run_django(name, rest)


def _run_django(name: str, rest: Sequence[str]) -> int:
    configuration.apply()
    _prepare_for(name)
    with settings_read():
        _execute(name, rest)
    return 0


@contextmanager
def settings_read() -> Iterator[None]:
    """Django's settings are read within. Raises: ConfigurationRefused for those that do not go together."""
    from django.core.exceptions import ImproperlyConfigured  # noqa: PLC0415 - not for `manciple node`

    try:
        yield
    except ImproperlyConfigured as error:
        raise ConfigurationRefused([str(error)]) from error


def _execute(name: str, rest: Sequence[str]) -> None:
    from django.core.management import execute_from_command_line  # noqa: PLC0415 - not for `manciple node`
    from django.db import DatabaseError  # noqa: PLC0415 - as above

    if name in _INTERRUPTIBLE:
        database_file.check_configured(whole=True)
    try:
        execute_from_command_line([layout.COMMAND, name, *rest])
    except DatabaseError as error:
        database_file.check_configured(whole=True)
        _explain(error)
        raise


def _explain(error: Exception) -> None:
    """Raises: DatabaseRefused for an error that is about the database as a whole, not about one statement."""
    from django.db import DatabaseError, OperationalError, connection  # noqa: PLC0415 - as above
    from django.db.migrations.loader import MigrationLoader  # noqa: PLC0415 - as above

    # psycopg has no SQLSTATE for a connection that was never made, or broke.
    is_away = isinstance(error, OperationalError) and getattr(error.__cause__, "sqlstate", None) is None
    if connection.vendor == "postgresql" and is_away:
        where = connection.settings_dict
        address = f"{where['HOST'] or 'localhost'}:{where['PORT'] or 5432}"
        raise DatabaseRefused(
            f"PostgreSQL at {address} cannot be reached: {str(error).strip()}\n"
            "Start the server that MANCIPLE_DATABASE_URL names, or correct the address."
        ) from error
    if not _is_about_tables(error):
        return
    with suppress(DatabaseError):
        loader = MigrationLoader(connection)
        applied, known = loader.applied_migrations, loader.disk_migrations
        # An earlier version may have had apps that are gone.
        if later := sorted(".".join(one) for one in applied if one not in known and one[0] in loader.migrated_apps):
            why = f"it was migrated by a later version, which has {', '.join(later[:3])}: run that version"
        elif missing := [one for one in known if one not in applied]:
            why = f"migrations are not applied ({len(missing)}): run `manciple migrate` (`manciple up` does it, too)"
        else:
            return
        raise DatabaseRefused(f"the database has other tables than this version needs: {why}\n({error})") from error


def _is_about_tables(error: Exception) -> bool:
    """Whether a table or a column is missing."""
    if (state := getattr(error.__cause__, "sqlstate", None)) is not None:
        return state in ("42P01", "42703")
    return any(text in str(error) for text in ("no such table", "no such column", "has no column named"))


def _prepare_for(name: str) -> None:
    """What must be so before Django's settings are read. Raises: StartRefused, ConfigurationRefused."""
    in_production = os.environ.get("MANCIPLE_DATABASE_URL") or os.environ.get("MANCIPLE_REDIS_URL")
    folder = Path(os.environ.get("MANCIPLE_HOME") or layout.default_home())
    if name not in _INTERRUPTIBLE:
        if not in_production and name not in _WITHOUT_KEYS:
            home.check_keys(home.Home(folder.expanduser().resolve()))
        return
    if context := folders.context_of(folder.expanduser()):
        raise StartRefused(f"{folder} is the mirror of {context}: only `manciple mirror` runs on it")
    # Until they listen for it themselves. Python's own handler raises KeyboardInterrupt wherever an import is at,
    # and some places there swallow it.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if name != "serve":  # its terminal is for what a person must know
        os.environ.setdefault("MANCIPLE_LOG_LEVEL", "WARNING")
    try:
        home.prepare(folder, with_key=not in_production)
    except OSError as error:
        reason = f"the home {folder} cannot be written ({error.strerror}): name another with --home DIR"
        raise ConfigurationRefused([reason]) from error


def _celery(name: str, *options: str) -> Run:
    """A command of Celery's, without its whole program, whose shell takes 7 MiB that a worker never needs."""

    def run(rest: Sequence[str]) -> int:
        configuration.apply()
        import django  # noqa: PLC0415 - as above

        with settings_read():
            django.setup()
        if name == "worker":
            from django.db import connection  # noqa: PLC0415 - as above

            from manciple.processes import keys  # noqa: PLC0415 - needs Django's models

            keys.check_sealed()
            connection.close()  # this thread needs it no more
        from celery.bin.base import CLIContext  # noqa: PLC0415 - as above

        from manciple.celery import app  # noqa: PLC0415 - needs Django's settings

        command = getattr(importlib.import_module(f"celery.bin.{name}"), name)
        command.params.extend(app.user_options[name])
        context = CLIContext(app=app, no_color=False, workdir=None)
        command.main(args=[*options, *rest], prog_name=f"manciple {name}", obj=context)
        return 0

    return run


def _program(module: str, *, first: str = "") -> Run:
    def run(rest: Sequence[str]) -> int:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # as above, until it listens itself
        status: int = importlib.import_module(module).main([*filter(None, [first]), *rest])
        return status

    return run


def _of_django(does: Mapping[str, str]) -> tuple[Verb, ...]:
    return tuple(Verb(name, told, _django(name)) for name, told in does.items())


def _pass_on(rest: Sequence[str]) -> int:
    return _run_django(rest[0] if rest else "help", rest[1:])


#: Under their headings, as `manciple --help` lists them.
VERBS: Final[Mapping[str, tuple[Verb, ...]]] = {
    "Run": (
        *_of_django(
            {
                "up": "the whole system in one process, with simulated nodes",
                "serve": "an API process with the dashboard",
            }
        ),
        Verb("worker", "a worker: scheduling, controllers, sweeps", _celery("worker", *WORKER_OPTIONS)),
        Verb("beat", "nothing, for units of earlier versions: workers keep the intervals", _celery("beat")),
        *_of_django({"demo": "a realistic laboratory in an empty home"}),
    ),
    "Look into a Kubernetes cluster": (
        Verb("why", "why a pod or a claim waits", _program("manciple.mirror.why"), "manciple.mirror.why"),
        Verb(
            "devices",
            "its devices, who holds them, and what is free",
            _program("manciple.mirror.devices"),
            "manciple.mirror.devices",
        ),
        Verb(
            "mirror",
            "a read-only copy of it with the dashboard, kept current",
            _program("manciple.processes.mirror"),
            "manciple.processes.mirror",
        ),
        Verb(
            "end_gates",
            "removes the gates of steered pods that were left at them",
            _program("manciple.mirror.steering.end_gates"),
            "manciple.mirror.steering.end_gates",
        ),
    ),
    "Nodes and drivers": (
        Verb(
            "node join",
            "make this machine a node",
            _program("nodeagent.__main__", first="join"),
            "nodeagent.node.joining",
        ),
        Verb("node run", "the agent of a node", _program("nodeagent.__main__", first="run"), "nodeagent.options"),
        *_of_django({"node_token": "issue, list and revoke tokens with which machines join"}),
        Verb(
            "driver check",
            "check a driver of the kubelet's plugin protocol, without Kubernetes",
            _program("nodeagent.driver_check.command"),
            "nodeagent.driver_check.command",
        ),
        Verb("driver serve", "serve a driver in Python to a kubelet", _program("nodeagent.serve"), "nodeagent.serve"),
        Verb(
            "driver controller",
            "the controller of a driver that allocates itself",
            _program("manciple.controller_kit.command"),
            "manciple.controller_kit.command",
        ),
    ),
    "Install and keep": _of_django(
        {
            "migrate": "bring the database's tables up to date",
            "bootstrap": "what a new installation needs once: roles, administrator, kubeconfig files",
            "reindex": "rebuild the index tables from the documents",
            "reseal": "encrypt Secrets with the newest key",
            "prune": "remove old events that no object points at",
            "backup": "a backup of the database",
            "restored": "once, after the database was set back, before anything is started on it",
        }
    ),
    "People and credentials": _of_django(
        {
            "invite": "a link by which somebody sets their password",
            "unlock": "end a lockout after failed attempts to sign in",
            "token": "issue, list and revoke bearer tokens",
            "certificate": "issue and revoke client certificates",
            "signing_keys": "the keys that sign tokens of service accounts",
            "audit": "export, follow and prune the audit trail",
        }
    ),
    "Look into it": (
        Verb(
            "config",
            "`config check`: what is wrong with the settings, what is in effect and where it comes from",
            _program("manciple.processes.config_check"),
            "manciple.processes.config_check",
        ),
        *_of_django(
            {
                "doctor": "what is wrong with this installation, and what to do",
                "support_bundle": "what somebody who helps needs to know, in a file without secrets",
                "check_invariants": "check that no device is given twice, and everything else that must hold",
                "controllers": "list what runs in the workers",
            }
        ),
        Verb(
            "completion",
            "a script for bash, zsh or fish that completes these words",
            _program("manciple.processes.completion"),
            "manciple.processes.completion",
        ),
        Verb("django", "any other command of Django's: shell, dbshell, showmigrations", _pass_on),
    ),
}


def verbs() -> Iterator[Verb]:
    for under in VERBS.values():
        yield from under


def find(words: Sequence[str]) -> Verb | None:
    """The verb that a command line begins with; hyphens are as good as underscores."""
    first, two = "", ""
    if words:
        first = words[0].replace("-", "_")
        two = " ".join([first, *words[1:2]])
    known = {verb.name: verb for verb in verbs()}
    return known.get(two) or known.get(first)


def take_options(arguments: Iterable[str]) -> list[str]:
    """The arguments without those of `EVERYWHERE`, which go to the environment as absolute paths."""
    rest: list[str] = []
    words = iter(arguments)
    for word in words:
        option, equals, value = word.partition("=")
        if option in EVERYWHERE:
            given = value if equals else next(words, "")
            os.environ[EVERYWHERE[option]] = str(Path(given).expanduser().resolve())
        else:
            rest.append(word)
    return rest


def help_text() -> str:
    widest = max(len(verb.name) for verb in verbs())
    lines = ["usage: manciple VERB ...", "", "`manciple VERB --help` tells more.", ""]
    for heading, under in VERBS.items():
        lines += [f"{heading}:", *(f"  {verb.name.ljust(widest)}  {verb.does}" for verb in under), ""]
    lines += [
        f"Every verb takes --home DIR, which holds what an installation keeps (default {layout.default_home()}),",
        f"and --config FILE, a configuration file (default {configuration.USUAL}, where there is one).",
    ]
    return "\n".join(lines)


def kubectl_plugin() -> int:
    """`kubectl-manciple`, which `kubectl manciple` runs: the verbs that look into a cluster."""
    own = {verb.name: verb for verb in VERBS["Look into a Kubernetes cluster"]}
    words = sys.argv[1:]
    if words and words[0].replace("-", "_") in own:
        return main(words)
    asks = not words or words[0] in ("help", "--help", "-h")
    lines = ["usage: kubectl manciple VERB ...", "", *(f"  {name.ljust(9)} {verb.does}" for name, verb in own.items())]
    print("\n".join(lines), file=sys.stdout if asks else sys.stderr)
    return 0 if asks else 2


def main(arguments: Sequence[str] | None = None) -> int:
    """`manciple`, and `python -m manciple`. Returns the exit status."""
    memory.start()
    frames.make_room_in_threads()
    os.umask(home.UMASK)
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "manciple.settings")
    words = take_options(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] in ("help", "--help", "-h"):
        print(help_text())
        return 0
    if words[0] == "--version":
        print(f"manciple {layout.version()}")
        return 0
    verb = find(words)
    if verb is None:
        print(f"manciple: {_unknown(words)}", file=sys.stderr)
        return 2
    if layout.INSTALLED and configuration.USUAL.exists():
        os.environ.setdefault(configuration.VARIABLE, str(configuration.USUAL))
    return _run_or_refuse(lambda: verb.run(words[len(verb.words) :]))


def _run_or_refuse(run: Callable[[], int]) -> int:
    try:
        return frames.with_room(run)
    except ConfigurationRefused as refusal:
        listed = (
            refusal.problems[0] if len(refusal.problems) == 1 else "".join(f"\n  {one}" for one in refusal.problems)
        )
        print(f"manciple: the configuration is wrong: {listed}", file=sys.stderr)
        return 2
    except StartRefused as refusal:
        print(f"manciple: {refusal}", file=sys.stderr)
        return 1
    except PermissionError as error:
        advice = "run this as its owner, or name another home with --home DIR"
        print(f"manciple: uid {os.geteuid()} may not use {error.filename}: {advice}", file=sys.stderr)
        return 1


def _unknown(words: Sequence[str]) -> str:
    known = [verb.name for verb in verbs()]
    if more := [name for name in known if name.startswith(f"{words[0]} ")]:
        return f"say which: {', '.join(more)}"
    close = difflib.get_close_matches(words[0], known, n=1)
    meant = f"did you mean `manciple {close[0]}`?" if close else "`manciple --help` lists all verbs"
    return f'there is no verb "{words[0]}": {meant}'


def manage(arguments: Sequence[str]) -> NoReturn:
    """What `manage.py` of a checkout does: Django's commands alone."""
    memory.start()
    frames.make_room_in_threads()
    os.umask(home.UMASK)
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "manciple.settings")
    words = take_options(arguments)
    sys.exit(_run_or_refuse(lambda: _run_django(words[0] if words else "help", words[1:])))

"""Lists the Python files and templates that run for one page: `python -m tests.page_files [ADDRESS …]`.

A reader who wants to understand a page opens these files. Counted is a warm GET of an administrator through Django's
test client, on the demo's laboratory: what each of several GETs after the first runs. What happens once in a process or
after a change (imports, reading all devices, compiling expressions, a rehearsal whose result is kept) belongs to the
caches, not to the page; `--first` counts the first GET of a new process, which fills them.

A file counts if at least one of its functions is called: methods, lambdas, comprehensions and generators included;
module and class bodies, which run during an import, excluded. All of the request counts: middleware and context
processors too. The report also says how many files run for this page but not for one without a cluster (`/account`);
`--own` lists only those.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from http import HTTPStatus
from pathlib import Path
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any
from unittest import mock

if TYPE_CHECKING:
    from django.test import Client

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = (
    "manciple",
    "inventory",
    "claims",
    "networking",
    "workloads",
    "scheduling",
    "insight",
    "dashboard",
    "nodeagent",
)
#: The pages' own code; everything else is the system that they show.
DASHBOARD = ("dashboard/",)
#: The pages with limits: the device grid, a waiting pod, the workbench of a class.
PAGES = ("/devices", "/pods/climate-ml/downscale-era5-full-1", "/classes/c/gpu-h200")
#: A page that shows nothing of the cluster: what runs for it runs for every page.
EMPTY_PAGE = "/account"
#: Of a code object: its frame has locals of its own, so it is neither a module nor a class body.
_HAS_OWN_LOCALS = 0x2
#: A rehearsal's result is kept for a time: some of these GETs rehearse, and what they run does not count.
_WARM_GETS = 6
#: Seconds that a rehearsal may take.
_PATIENCE = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PageFiles:
    """What one GET of a page ran. Paths are relative to the repository, template names as Django has them."""

    #: file -> the qualified names of its functions that were called
    functions: Mapping[str, frozenset[str]]
    templates: frozenset[str]

    @property
    def dashboard(self) -> list[str]:
        """The pages' own files."""
        return sorted(file for file in self.functions if file.startswith(DASHBOARD))

    def also_in(self, other: PageFiles) -> PageFiles:
        """What both ran."""
        both = {file: names & other.functions.get(file, frozenset()) for file, names in self.functions.items()}
        functions = {file: names for file, names in both.items() if names}
        return PageFiles(functions=functions, templates=self.templates & other.templates)

    def without(self, other: PageFiles) -> PageFiles:
        """Only the files and templates that the other page does not use."""
        functions = {file: names for file, names in self.functions.items() if file not in other.functions}
        return PageFiles(functions=functions, templates=self.templates - other.templates)


class _Recorder:
    """Records the functions of ours that are called in this thread."""

    def __init__(self) -> None:
        self.called: set[CodeType] = set()
        self._is_ours: dict[CodeType, bool] = {}

    @contextmanager
    def recording(self) -> Iterator[None]:
        before = sys.getprofile()
        sys.setprofile(self._profile)
        try:
            yield
        finally:
            sys.setprofile(before)

    def functions(self) -> Mapping[str, frozenset[str]]:
        names: dict[str, set[str]] = defaultdict(set)
        for code in self.called:
            names[str(Path(code.co_filename).relative_to(ROOT))].add(code.co_qualname)
        return {file: frozenset(functions) for file, functions in names.items()}

    def _profile(self, frame: FrameType, event: str, _argument: object) -> None:
        code = frame.f_code
        if event != "call" or code in self.called:
            return
        is_ours = self._is_ours.get(code)
        if is_ours is None:
            is_ours = self._is_ours[code] = _is_function_of_ours(code)
        if is_ours:
            self.called.add(code)


def _is_function_of_ours(code: CodeType) -> bool:
    path = Path(code.co_filename)
    is_inside = path.is_relative_to(ROOT) and path.relative_to(ROOT).parts[0] in PACKAGES
    return is_inside and bool(code.co_flags & _HAS_OWN_LOCALS)


def files_of_page(client: Client, path: str, *, first: bool = False) -> PageFiles:
    """What a warm GET of the page runs; with `first`, the next GET."""
    recorded = _record(client, path)
    return recorded if first else reduce(PageFiles.also_in, (_record(client, path) for _ in range(_WARM_GETS)))


def _record(client: Client, path: str) -> PageFiles:
    from manciple.wire.limits import Deadline

    end = Deadline.after(_PATIENCE)
    recorder = _Recorder()
    # On a busy machine a rehearsal would go on in the next GET, and the one after that.
    patient = mock.patch.object(Deadline, "after", return_value=end)
    with patient, recorder.recording():
        response: Any = client.get(path)
    if response.status_code != HTTPStatus.OK:
        raise RuntimeError(f"{path} answers {response.status_code}")
    templates = frozenset(template.name for template in response.templates if template.origin.loader is not None)
    return PageFiles(functions=recorder.functions(), templates=templates)


def layer(file: str) -> str:
    """The package of docs/explanation/architecture.md that the file belongs to; of the pages' own code, the folder."""
    first, second, *deeper = file.split("/")
    return f"{first}/{second}" if deeper else first


def summary(path: str, files: PageFiles, common: PageFiles) -> str:
    """common: what a page without a cluster runs."""
    functions = sum(map(len, files.functions.values()))
    rest = files.without(common)
    return (
        f"{path}: {len(files.functions)} files, {len(files.dashboard)} of them in {' and '.join(DASHBOARD)}; "
        f"{functions} functions; {len(files.templates)} templates; "
        f"{len(rest.functions)} files ({len(rest.dashboard)}) do not run for {EMPTY_PAGE}"
    )


def listing(files: PageFiles, *, functions: bool = False) -> Iterator[str]:
    """The lines that list a page's files by layer, the pages' own first, each with the number of functions that ran."""
    layers: dict[str, list[str]] = defaultdict(list)
    for file in files.functions:
        layers[layer(file)].append(file)
    for name in sorted(layers, key=lambda name: (not f"{name}/".startswith(DASHBOARD), name)):
        yield f"  {name}: {len(layers[name])}"
        for file in sorted(layers[name]):
            yield f"    {len(files.functions[file]):>3}  {file}"
            if functions:
                yield from (f"           {function}" for function in sorted(files.functions[file]))
    yield f"  templates: {len(files.templates)}"
    yield from (f"         {template}" for template in sorted(files.templates))


def administrator() -> Client:
    """Signed in, on the laboratory, which replaces what is in the database."""
    from django.contrib.auth.models import User
    from django.test import Client

    from manciple.per_process import reset_all
    from manciple.processes.demolab.views import save_views
    from tests.laboratory import furnish

    furnish()
    reset_all()  # what filling the laboratory left in caches, a web process does not have
    user = User.objects.create_user("admin", is_staff=True, is_superuser=True)
    save_views(user)
    client = Client()
    client.force_login(user)
    return client


@contextmanager
def _own_database() -> Iterator[None]:
    """Django on an empty database, outside of any test."""
    from manciple.processes import home

    with tempfile.TemporaryDirectory(prefix="manciple-page-files-") as folder:
        os.environ["DJANGO_SETTINGS_MODULE"] = "manciple.settings"
        os.environ["MANCIPLE_HOME"] = folder
        os.environ.setdefault("MANCIPLE_LOG_LEVEL", "ERROR")
        home.prepare(Path(folder))

        import django

        django.setup()
        from django.core.management import call_command
        from django.test.utils import setup_test_environment

        setup_test_environment()  # answers name their templates
        call_command("migrate", verbosity=0, interactive=False)
        yield


def main(options: argparse.Namespace) -> None:
    with _own_database():
        client = administrator()
        pages = {path: files_of_page(client, path, first=options.first) for path in options.addresses}
        common = files_of_page(client, EMPTY_PAGE)
    for path, files in pages.items():
        print(summary(path, files, common))
        for line in listing(files.without(common) if options.own else files, functions=options.functions):
            print(line)
        print()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("addresses", nargs="*", default=PAGES, metavar="ADDRESS", help=f"default: {' '.join(PAGES)}")
    parser.add_argument("--first", action="store_true", help="the first GET in this process, not a warm one")
    parser.add_argument("--own", action="store_true", help=f"list only what {EMPTY_PAGE} does not run as well")
    parser.add_argument("--functions", action="store_true", help="name the functions, too")
    main(parser.parse_args())

"""Compares how all pages look, and what they answer, before and after a change of their code.

    python -m tests.compare_screenshots take BEFORE --home HOME --tree CHECKOUT-BEFORE
    python -m tests.compare_screenshots take AFTER --home HOME --tree CHECKOUT-AFTER
    python -m tests.compare_screenshots compare BEFORE AFTER --into REPORT

`take` serves a copy of one home from a checkout by a stopped clock (tests/still_laboratory.py; a home that does not
exist is filled first), keeps the answer of every address of the laboratory, and runs `manage.py screenshots` on it with
the browser's clock stopped as well: every page at 1440 x 900, light and dark, and the main pages on a phone; `--whole`
shows also what is below. Then only what is random differs from run to run (CSRF tokens, nonces, the port, identifiers
of requests, which are left out of answers): compare two runs of one checkout first. The list of pages is that of the
checkout in which `take` is started. Demos that are served with all processes (`manage.py screenshots` alone) differ in
ages, in usage and in what the scheduler did meanwhile.

`compare` counts the pixels whose colour differs by more than TOLERANCE and writes REPORT/index.html: each picture with
more than `--pixels` of them as before, after and differences, and as a diff each answer that differs in more than white
space. It ends with 1 if anything differs or is missing.
"""

from __future__ import annotations

import argparse
import base64
import difflib
import html
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.still_laboratory import MOMENT, USER, StillLaboratory, served

ROOT = Path(__file__).resolve().parents[1]
#: Of 255, in any of red, green and blue.
TOLERANCE = 2
#: Of screenshots, beside which the answers lie.
ANSWERS = "answers"
#: Lines of one answer's diff in the report.
MOST_LINES = 200
#: What is random in an answer or names this run.
_RANDOM = (
    (re.compile(r"127\.0\.0\.1:\d+"), "HOST"),
    (re.compile(r'(csrfmiddlewaretoken" value="|"X-CSRFToken": "|csp-nonce" content="|nonce="|csrf=")[^"]*'), r"\1"),
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}"), "UUID"),
)
_STYLE = """body { font: 14px sans-serif; margin: 2em } img { max-width: 100%; border: 1px solid #999 }
pre { background: #f4f4f4; padding: 1em; overflow: auto }"""

#: Counts the pixels that differ, and draws before, after and differences beside each other.
_COMPARE = """async ([before, after, tolerance, draws]) => {
  const open = async (data) => createImageBitmap(await (await fetch(`data:image/png;base64,${data}`)).blob());
  const [one, other] = await Promise.all([open(before), open(after)]);
  const width = Math.max(one.width, other.width), height = Math.max(one.height, other.height);
  const pixels = (picture) => {
    const context = new OffscreenCanvas(width, height).getContext("2d", { willReadFrequently: true });
    context.drawImage(picture, 0, 0);
    return context.getImageData(0, 0, width, height);
  };
  const a = pixels(one).data, drawn = pixels(other), b = drawn.data;
  let count = 0;
  for (let at = 0; at < a.length; at += 4) {
    const difference = Math.max(...[0, 1, 2, 3].map((part) => Math.abs(a[at + part] - b[at + part])));
    const differs = difference > tolerance;
    count += differs;
    const grey = 255 - (255 - (b[at] + b[at + 1] + b[at + 2]) / 3) / 4;
    [b[at], b[at + 1], b[at + 2], b[at + 3]] = differs ? [220, 0, 60, 255] : [grey, grey, grey, 255];
  }
  if (count <= draws) return [count, ""];
  const canvas = new OffscreenCanvas(width * 3 + 20, height), context = canvas.getContext("2d");
  context.drawImage(one, 0, 0);
  context.drawImage(other, width + 10, 0);
  context.putImageData(drawn, 2 * width + 20, 0);
  const bytes = new Uint8Array(await (await canvas.convertToBlob()).arrayBuffer());
  let text = "";
  for (let at = 0; at < bytes.length; at += 32768) text += String.fromCharCode(...bytes.subarray(at, at + 32768));
  return [count, btoa(text)];
}"""


# Taking them ---------------------------------------------------------------------------------------------------------


def take(options: argparse.Namespace) -> int:
    into: Path = options.into.resolve()
    (into / ANSWERS).mkdir(parents=True, exist_ok=True)
    with served(options.home.resolve(), options.tree) as laboratory:
        count = _keep_answers(laboratory, into / ANSWERS, options.only)
        print(f"{count} answers in {into / ANSWERS}", flush=True)
        if options.answers:
            return 0
        command = [sys.executable, "manage.py", "screenshots", "--into", str(into), "--only", options.only]
        where = ["--web", laboratory.web, "--password", laboratory.password, "--clock", MOMENT.isoformat()]
        subprocess.run(
            [*command, *where, *(["--whole"] if options.whole else [])], cwd=ROOT, check=True, stdout=subprocess.DEVNULL
        )
    print(f"{len(list(into.glob('*.png')))} screenshots in {into}")
    return 0


def _keep_answers(laboratory: StillLaboratory, into: Path, only: str) -> int:
    """A file for each address, parts of pages and files to download included: status, where it leads, and text."""
    import httpx

    from tests.e2e.api_client import submit_form

    addresses = {address.name: address for address in _addresses() if only in address.name}
    with httpx.Client(base_url=laboratory.web, timeout=60) as client:
        submit_form(client, "/login", {"username": USER, "password": laboratory.password})
        for address in addresses.values():
            answer = client.get(address.path)
            text = answer.text
            for pattern, constant in _RANDOM:
                text = pattern.sub(constant, text)
            head = f"{address.path}\n{answer.status_code} {answer.headers.get('location', '')}\n"
            (into / f"{address.name}.txt").write_text(head + text)
    return len(addresses)


def _addresses() -> Sequence[Any]:
    import django

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "manciple.settings")
    django.setup()
    from manciple.processes.demolab.pages import every_page

    return every_page()


# Comparing them ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Picture:
    """A screenshot that both sides have. pixels: how many differ. drawing: a PNG, where they are more than allowed."""

    name: str
    pixels: int
    drawing: bytes


def compare(options: argparse.Namespace) -> int:
    into: Path = options.into
    into.mkdir(parents=True, exist_ok=True)
    names, missing = _pairs(options.before, options.after, "*.png")
    pictures = list(_pictures(options.before, options.after, names, options.pixels))
    texts, missing_texts = _pairs(options.before / ANSWERS, options.after / ANSWERS, "*.txt")
    diffs = {name: lines for name in texts if (lines := _diff(options.before, options.after, name))}
    differing = [picture for picture in pictures if picture.pixels > options.pixels]
    for picture in differing:
        (into / picture.name).write_bytes(picture.drawing)
    (into / "index.html").write_text(_report(differing, diffs, [*missing, *missing_texts]))
    for picture in sorted(pictures, key=lambda picture: -picture.pixels):
        if picture.pixels:
            print(f"{picture.pixels:>9,} pixels  {picture.name}")
    for name, lines in diffs.items():
        print(f"{len(lines):>9,} lines   {ANSWERS}/{name}")
    for name in (*missing, *missing_texts):
        print(f"  missing on one side: {name}")
    print(
        f"{len(differing)} of {len(names)} screenshots have more than {options.pixels} other pixels; "
        f"{len(diffs)} of {len(texts)} answers differ: {into / 'index.html'}"
    )
    return 1 if differing or diffs or missing or missing_texts or not (names or texts) else 0


def _pairs(before: Path, after: Path, pattern: str) -> tuple[list[str], list[str]]:
    """Names of files that are in both folders, and of those in one. None where a side has no such files."""
    first, second = ({path.name for path in folder.glob(pattern)} for folder in (before, after))
    return (sorted(first & second), sorted(first ^ second)) if first and second else ([], [])


def _pictures(before: Path, after: Path, names: Sequence[str], most: int) -> Iterator[Picture]:
    from tests.e2e.pages.browser import launched

    with launched() as browser:
        page = browser.new_page()
        for name in names:
            first, second = (folder / name for folder in (before, after))
            if first.read_bytes() == second.read_bytes():
                yield Picture(name, 0, b"")
                continue
            both = [base64.b64encode(path.read_bytes()).decode() for path in (first, second)]
            pixels, drawing = page.evaluate(_COMPARE, [*both, TOLERANCE, most])
            yield Picture(name, pixels, base64.b64decode(drawing))


def _diff(before: Path, after: Path, name: str) -> list[str]:
    """The lines of both answers that differ in more than white space."""
    first, second = (_lines((folder / ANSWERS / name).read_text()) for folder in (before, after))
    if first == second:
        return []
    return [line for line in difflib.unified_diff(first, second, lineterm="", n=0) if not line.startswith("@@")][2:]


def _lines(text: str) -> list[str]:
    """Of HTML one for each tag and each text between tags: templates break lines where they like."""
    parts = (" ".join(part.split()) for part in re.split(r"(?=<)|(?<=>)", text))
    return [part for part in parts if part]


def _report(pictures: Sequence[Picture], diffs: Mapping[str, Sequence[str]], missing: Sequence[str]) -> str:
    parts = [f"<!doctype html><meta charset=utf-8><title>Differences</title><style>{_STYLE}</style>"]
    parts.append(f"<h1>{len(pictures)} screenshots, {len(diffs)} answers differ</h1>")
    parts += [f"<p>Missing on one side: {html.escape(name)}</p>" for name in missing]
    for picture in sorted(pictures, key=lambda picture: -picture.pixels):
        parts.append(f"<h2>{picture.name}: {picture.pixels:,} pixels</h2><p>Before, after, differences</p>")
        parts.append(f'<a href="{picture.name}"><img src="{picture.name}" loading="lazy"></a>')
    for name, lines in diffs.items():
        shown = html.escape("\n".join(lines[:MOST_LINES]))
        parts.append(f"<h2>{name}: {len(lines):,} lines</h2><pre>{shown}</pre>")
    return "\n".join(parts)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    taking = commands.add_parser("take", help="keep screenshots and answers of one checkout")
    taking.add_argument("into", type=Path)
    taking.add_argument("--home", type=Path, required=True, help="the laboratory that both checkouts show")
    taking.add_argument("--tree", type=Path, default=ROOT, help="the checkout whose code runs; this one by default")
    taking.add_argument("--only", default="", help="only pages whose name contains it")
    taking.add_argument("--whole", action="store_true", help="whole pages, not only what a window shows of them")
    taking.add_argument("--answers", action="store_true", help="only answers, which takes seconds, and no screenshots")
    taking.set_defaults(run=take)
    comparing = commands.add_parser("compare", help="say what differs")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    comparing.add_argument("--into", type=Path, required=True, help="folder of the report")
    comparing.add_argument("--pixels", type=int, default=0, help="so many may differ")
    comparing.set_defaults(run=compare)
    options = parser.parse_args()
    status: int = options.run(options)
    return status


if __name__ == "__main__":
    sys.exit(main())

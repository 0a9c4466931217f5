"""`make docs`: the generated parts of docs/reference: settings.md and commands.md, from their declarations.

A page keeps its text before and after the generated part, which stands between two comments.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from manciple import layout
from manciple.declared_settings import SETTINGS
from manciple.processes import completion
from manciple.processes.command_line import EVERYWHERE, VERBS, Verb

REFERENCE: Final = Path(__file__).resolve().parents[1] / "docs" / "reference"
END: Final = "\n<!-- End of the generated part. -->\n"
SETTINGS_HEAD: Final = """\
| variable | value | default | meaning |
| --- | --- | --- | --- |
| `MANCIPLE_CONFIG` | path | `/etc/manciple/manciple.toml` for an installed `manciple`, none in a checkout | \
a TOML file with the settings below; `--config FILE` of every command sets it |
"""
#: Django documents the options of its own command; those of a contributor's are in `--help`.
WITHOUT_OPTIONS: Final = frozenset({"migrate", "screenshots"})
#: Commands of `manage.py` that need a checkout, so they are no verbs.
OF_A_CHECKOUT: Final = (Verb("screenshots", "screenshots of every page from the demo's data", lambda _: 0),)


def settings() -> Iterator[str]:
    yield SETTINGS_HEAD
    for setting in SETTINGS.values():
        default = setting.default_text or shown(setting.default)
        yield f"| `{setting.name}` | {setting.type.shape} | {default} | {setting.meaning} |\n"


def shown(default: object) -> str:
    match default:
        case bool():
            return str(int(default))
        case float():
            return f"{default:g}"
        case "" | () | {}:
            return "none"
        case tuple():
            return f"`{','.join(default)}`"
        case str():
            return f"`{default}`"
    return str(default)


def undescribed() -> Iterator[str]:
    """Settings whose default depends on the machine, without a text that says how."""
    return (setting.name for setting in SETTINGS.values() if setting.default is None and not setting.default_text)


#: An item of an option -> the first command that lists it.
Listed = dict[str, str]


def commands() -> Iterator[str]:
    listed: Listed = {}
    for heading, verbs in VERBS.items():
        yield f"## {heading}\n\n"
        for verb in verbs:
            yield from command(f"manciple {verb.name}", verb, listed)
    yield "## Only in a checkout\n\n"
    for verb in OF_A_CHECKOUT:
        yield from command(f"manage.py {verb.name}", verb, listed)


def command(name: str, verb: Verb, listed: Listed) -> Iterator[str]:
    parser = None if verb.name in WITHOUT_OPTIONS else completion.parser_of(verb)
    yield f"### `{name}`\n\n"
    yield f"{sentence(parser.description if parser and parser.description else verb.does)}\n\n"
    if parser and (lines := list(arguments(name, parser, listed, indent=""))):
        yield "\n".join([*lines, "", ""])


def arguments(command: str, parser: argparse.ArgumentParser, listed: Listed, *, indent: str) -> Iterator[str]:
    """List items; those of a subcommand stand below its own. At the end, options that an earlier command describes."""
    repeated: dict[str, dict[str, str]] = {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {choice.dest: choice.help for choice in action._choices_actions}
            for name, below in action.choices.items():
                yield item(indent, name, helps.get(name) or "")
                yield from arguments(f"{command} {name}", below, listed, indent=f"{indent}  ")
        elif not set(action.option_strings) & {*completion.LEFT_OUT, *EVERYWHERE, "--help"} and not isinstance(
            action, argparse._VersionAction
        ):
            line = item("", spelled(action), (action.help or "") % {**vars(action), "prog": parser.prog})
            described = listed.setdefault(line, command)
            if described == command or not action.option_strings:
                yield f"{indent}{line}"
            else:
                repeated.setdefault(described, {})[f"`{action.option_strings[0]}`"] = line
    for described, options in repeated.items():
        together = f"- {', '.join(options)}: as for `{described}`"
        yield from (f"{indent}{line}" for line in ([together] if len(options) > 1 else options.values()))


def spelled(action: argparse.Action) -> str:
    choices = "{" + ",".join(map(str, action.choices)) + "}" if action.choices else ""
    value = str(action.metavar or choices or action.dest.upper())
    if not action.option_strings:
        return value
    option = ", ".join(action.option_strings)
    return option if action.nargs == 0 else f"{option} {value}"


def item(indent: str, name: str, meaning: str) -> str:
    """meaning: with the same paths on every machine."""
    text = " ".join(meaning.replace(f"{layout.RESOURCES}/", "./").split())
    return f"{indent}- `{name}`: {text}" if text else f"{indent}- `{name}`"


def sentence(text: str) -> str:
    """The first paragraph, as a sentence."""
    text = " ".join(text.strip().split("\n\n")[0].split())
    return text[:1].upper() + text[1:].removesuffix(".") + "."


#: Page -> its generated part.
PAGES: Final[Mapping[str, tuple[str, Callable[[], Iterator[str]]]]] = {
    "settings.md": ("<!-- Written by `make docs` from manciple/declared_settings.py. -->\n\n", settings),
    "commands.md": ("<!-- Written by `make docs` from the commands' own parsers. -->\n\n", commands),
}


def regenerated(name: str, page: str) -> str:
    """The page with its generated part written again."""
    begin, parts = PAGES[name]
    before, _, rest = page.partition(begin)
    _, _, after = rest.partition(END)
    return "".join([before, begin, "".join(parts()).rstrip("\n"), "\n", END, after])


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "manciple.settings")
    for name in PAGES:
        path = REFERENCE / name
        path.write_text(regenerated(name, path.read_text()))

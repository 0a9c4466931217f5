"""`manciple completion SHELL`: a script that completes verbs and options.

The words are written into the script when it is made, from the verbs' own parsers, so completing starts no Python:

    source <(manciple completion bash)
"""

from __future__ import annotations

import argparse
import importlib
import warnings
from collections.abc import Iterator, Mapping, Sequence

from manciple.processes.command_line import EVERYWHERE, Verb, verbs

SHELLS = ("bash", "zsh", "fish")
#: Options of every Django command, of no use to operators.
LEFT_OUT = frozenset(
    {"--force-color", "--no-color", "--pythonpath", "--settings", "--skip-checks", "--traceback", "--verbosity"}
)

_BASH = """\
_manciple() {{
    local current="${{COMP_WORDS[COMP_CWORD]}}" place="" word
    for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
        [[ $word == -* ]] || place="${{place:+$place }}$word"
    done
    case "$place" in
{cases}
    esac
}}
complete -o default -F _manciple manciple
"""
_CASE = '        {pattern}) COMPREPLY=($(compgen -W "{words}" -- "$current")) ;;'
_ZSH = "autoload -U +X bashcompinit && bashcompinit\n"
_FISH = "complete -c manciple -n '{condition}' {what}"


def parser() -> argparse.ArgumentParser:
    command = argparse.ArgumentParser(prog="manciple completion", description="Prints a script for a shell.")
    command.add_argument("shell", choices=SHELLS)
    return command


def main(arguments: Sequence[str]) -> int:
    print(script(parser().parse_args(arguments).shell), end="")
    return 0


def script(shell: str) -> str:
    if shell == "fish":
        return "\n".join([*_fish(), ""])
    return (_ZSH if shell == "zsh" else "") + _BASH.format(cases="\n".join(_cases()))


def words_after(first: str) -> list[str]:
    """What may follow the words `first`, "" for the beginning: the next words of verbs."""
    return list(dict.fromkeys(verb.words[len(first.split())] for verb in verbs() if _follows(verb, first)))


def _follows(verb: Verb, first: str) -> bool:
    head = first.split()
    return len(verb.words) > len(head) and verb.words[: len(head)] == head


def options() -> Mapping[str, list[str]]:
    """Verb -> its words: options, and the actions of one that has several."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a home that is not made yet
        return {verb.name: sorted({*EVERYWHERE, *_words(parser_of(verb))} - LEFT_OUT) for verb in verbs()}


def parser_of(verb: Verb) -> argparse.ArgumentParser | None:
    """None for Celery's verbs and for `django`."""
    if verb.module:
        made: argparse.ArgumentParser = getattr(importlib.import_module(verb.module), verb.parser)()
        return made
    if verb.name not in _django_commands():
        return None
    from django.core.management import load_command_class  # noqa: PLC0415 - once Django is set up

    command = load_command_class(_django_commands()[verb.name], verb.name)
    return command.create_parser("manciple", verb.name)


def _django_commands() -> Mapping[str, str]:
    import django  # noqa: PLC0415 - as above
    from django.core.management import get_commands  # noqa: PLC0415

    django.setup()
    return get_commands()


def _words(parser: argparse.ArgumentParser | None) -> Iterator[str]:
    for action in parser._actions if parser else ():
        yield from (option for option in action.option_strings if option.startswith("--"))
        if not action.option_strings and action.choices is not None:
            yield from map(str, action.choices)
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from _words(below)


def _cases() -> Iterator[str]:
    firsts = sorted({verb.words[0] for verb in verbs() if len(verb.words) > 1})
    yield _CASE.format(pattern='""', words=" ".join([*words_after(""), "--version", "--help"]))
    for first in firsts:
        yield _CASE.format(pattern=f'"{first}"', words=" ".join(words_after(first)))
    for name, words in options().items():
        yield _CASE.format(pattern=f'"{name}"*', words=" ".join(words))


def _fish() -> Iterator[str]:
    first = "__fish_use_subcommand"
    for verb in verbs():
        head, *rest = verb.words
        does = verb.does.replace("'", "")
        if rest:
            seen = f"__fish_seen_subcommand_from {head}"
            yield _FISH.format(condition=first, what=f"-a {head}")
            yield _FISH.format(condition=seen, what=f"-a {rest[0]} -d '{does}'")
        else:
            yield _FISH.format(condition=first, what=f"-a {head} -d '{does}'")
    for name, words in options().items():
        condition = " && ".join(f"__fish_seen_subcommand_from {word}" for word in name.split())
        for word in words:
            what = f"-l {word[2:]}" if word.startswith("--") else f"-a {word}"
            yield _FISH.format(condition=condition, what=what)

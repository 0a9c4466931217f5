"""What can be done from the find box: `drain gpu-a17`, `delete vision/clip`, `new pod`.

A verb leads to the page that says what it would do; nothing is done from here. Whoever may not do it is not offered it.
Behind a verb stands what it is done to, found by name as everything is; the verb may also stand behind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from urllib.parse import quote, urlencode

from claims.devices.published import address_of
from dashboard.kit import links
from dashboard.tools.find.names import BY_RESOURCE, DEVICE
from dashboard.tools.find.sought import EXACT, PREFIX, Hit, HitSection, Sought
from manciple.people import Person
from manciple.wire.resources import CLAIMS, CLASSES, NAMESPACES, NODES, PODS, QUOTAS, TAINT_RULES, TEMPLATES

#: Things of one kind that a verb is offered for.
OFFERED = 5
#: Letters of a verb that are enough to mean it.
ENOUGH = 2
_YAML = (PODS, CLAIMS, TEMPLATES, NODES, CLASSES, QUOTAS, NAMESPACES, TAINT_RULES)

#: (resource, namespace, name), or a device's key behind DEVICE
Thing = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectVerb:
    """word: as it is typed, and shown with a capital; on: what it is done to; verb: the right that it needs, "" for
    none but to see."""

    word: str
    on: Sequence[str]
    url: Callable[[Thing], str]
    verb: str = ""
    asks: bool = True  # whether something is to be said before it is done: "Drain gpu-a17…"

    def may(self, person: Person, resource: str, namespace: str = "") -> bool:
        if not self.verb:
            return True
        wanted = TAINT_RULES if resource == DEVICE else resource
        return person.may(self.verb, wanted, namespace) if namespace else person.may_somewhere(self.verb, wanted)


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """Something to do without an object. does: what a script does with it, where it is no page."""

    title: str
    url: str
    icon: str = "i-do"
    does: str = ""
    may: Callable[[Person], bool] = field(default=lambda _person: True)


_ONE = {
    PODS: "a pod",
    CLAIMS: "a claim",
    TEMPLATES: "a template",
    NODES: "a node",
    CLASSES: "a class",
    QUOTAS: "a quota",
    NAMESPACES: "a namespace",
    TAINT_RULES: "a taint rule",
    DEVICE: "a device",
}


def _page(thing: Thing) -> str:
    return links.object_url(thing[0], thing[1], thing[2])


def _tab(name: str) -> Callable[[Thing], str]:
    return lambda thing: f"{_page(thing)}?tab={name}"


def _below(word: str) -> Callable[[Thing], str]:
    return lambda thing: f"{_page(thing)}/{word}"


def _act(word: str) -> Callable[[Thing], str]:
    """Of a node, or of a device."""

    def url(thing: Thing) -> str:
        if thing[0] == DEVICE:
            _, driver, pool, name, node = thing
            return f"/devices/act/{word}?{urlencode({'at': address_of((driver, pool, name, node))})}"
        return f"{_page(thing)}?change={word}"

    return url


def _delete(thing: Thing) -> str:
    return f"{_page(thing)}?delete=1" if thing[0] == NAMESPACES else f"{_page(thing)}/delete"


VERBS: Sequence[ObjectVerb] = (
    ObjectVerb(word="cordon", on=(NODES,), url=_act("cordon"), verb="update"),
    ObjectVerb(word="cordon", on=(DEVICE,), url=_act("cordon"), verb="create"),
    ObjectVerb(word="uncordon", on=(NODES,), url=_act("uncordon"), verb="update"),
    ObjectVerb(word="drain", on=(NODES,), url=_act("drain"), verb="update"),
    ObjectVerb(word="drain", on=(DEVICE,), url=_act("drain"), verb="create"),
    ObjectVerb(word="taint", on=(NODES,), url=_act("taint"), verb="update"),
    ObjectVerb(word="taint", on=(DEVICE,), url=_act("taint"), verb="create"),
    ObjectVerb(word="untaint", on=(DEVICE,), url=_act("untaint"), verb="delete"),
    ObjectVerb(
        word="delete", on=(PODS, CLAIMS, TEMPLATES, CLASSES, TAINT_RULES, NAMESPACES), url=_delete, verb="delete"
    ),
    ObjectVerb(word="release", on=(CLAIMS,), url=_below("release"), verb="*"),
    ObjectVerb(
        word="duplicate",
        on=(PODS,),
        url=lambda thing: f"/pods/new?like={quote('/'.join(thing[1:]))}",
        verb="create",
    ),
    ObjectVerb(word="logs", on=(PODS,), url=_tab("logs"), asks=False),
    ObjectVerb(word="rehearse", on=(PODS,), url=lambda thing: f"/what-if?pod={quote('/'.join(thing[1:]))}", asks=False),
    ObjectVerb(word="history", on=_YAML, url=_tab("history"), asks=False),
    ObjectVerb(word="yaml", on=_YAML, url=lambda thing: links.yaml_url(*thing), asks=False),
)

COMMANDS: Sequence[Command] = (
    Command(title="New pod", url="/pods/new", may=lambda person: person.may_somewhere("create", PODS)),
    Command(title="New class", url="/classes/new", may=lambda person: person.may("create", CLASSES)),
    Command(title="New taint rule", url="/taint-rules/new", may=lambda person: person.may("create", TAINT_RULES)),
    Command(title="New namespace", url="/namespaces", may=lambda person: person.may("create", NAMESPACES)),
    Command(title="Invite somebody", url="/people", may=lambda person: person.administers),
    Command(title="Switch between light and dark", url="/account", icon="i-theme", does="theme"),
    Command(title="Show the keys", url="/keys", icon="i-key", does="keys"),
    Command(title="Sign out", url="/account", icon="i-x", does="sign-out"),
)


def done_with(text: str, person: Person) -> Iterator[HitSection]:
    """What the text may mean as something to do; the most certain first."""
    hits = [*_acts(text, person), *_commands(text, person)]
    if hits:
        found = sorted(hits, key=lambda one: one.rank)
        yield HitSection("Do", "i-do", tuple(found[: 2 * OFFERED]), len(found) > 2 * OFFERED)


def _acts(text: str, person: Person) -> Iterator[Hit]:
    words = text.split()
    if len(words) == 1:
        yield from _hints(words[0], person)
    elif words:
        for at, rest in ((words[0], words[1:]), (words[-1], words[:-1])):
            for verb in _meant(at):
                yield from _on(verb, " ".join(rest), person)


def _meant(word: str) -> Iterator[ObjectVerb]:
    if len(word) >= ENOUGH:
        yield from (verb for verb in VERBS if verb.word.startswith(word.lower()))


def _hints(word: str, person: Person) -> Iterator[Hit]:
    """That there are such verbs: choosing one writes it, and what it is done to is written behind."""
    on: dict[str, list[str]] = {}
    for verb in _meant(word):
        on.setdefault(verb.word, []).extend(_ONE[one] for one in verb.on if verb.may(person, one))
    for found, named in on.items():
        if named:
            whom = named[0] if len(named) == 1 else f"{', '.join(named[:-1])} or {named[-1]}"
            url = f"/find?{urlencode({'q': f'{found} '})}"
            yield Hit(PREFIX, _shown(found), "", " …", url, whom, ("verb", found))


def _shown(word: str) -> str:
    return word.upper() if word == "yaml" else word.capitalize()


def _on(verb: ObjectVerb, rest: str, person: Person) -> Iterator[Hit]:
    for resource in verb.on:
        if not verb.may(person, resource):
            continue
        kind = BY_RESOURCE[resource]
        for one in kind.search(Sought(rest), person)[0][:OFFERED]:
            thing = one.object
            if resource != DEVICE and thing[1] and not verb.may(person, resource, thing[1]):
                continue
            place = f"{one.aside}, " if one.aside and resource != DEVICE else ""
            behind = f"{one.after}{'…' if verb.asks else ''}"
            yield Hit(
                EXACT if one.rank == EXACT else PREFIX,
                f"{_shown(verb.word)} {one.before}",
                one.match,
                behind,
                verb.url(thing),
                f"{place}{_ONE[resource].removeprefix('a ')}",
            )


def _commands(text: str, person: Person) -> Iterator[Hit]:
    wanted = text.lower()
    for one in COMMANDS:
        if not any(part.startswith(wanted) for part in (one.title.lower(), *one.title.lower().split()[1:])):
            continue
        if len(wanted) < ENOUGH or not one.may(person):
            continue
        at = one.title.lower().find(wanted)
        before, match, after = one.title[:at], one.title[at : at + len(wanted)], one.title[at + len(wanted) :]
        rank = EXACT if wanted == one.title.lower() else PREFIX
        yield Hit(rank, before, match, after, one.url, "", ("does", one.does) if one.does else ())

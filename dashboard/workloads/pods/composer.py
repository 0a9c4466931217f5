"""The YAML of a pod, or of a Job of such pods, and its form, in step: whichever side changed, the other one follows.

`compose` takes what both sides say and the text that both last agreed on (`base`). Fields that differ from that text
were changed in the form, and are put into the YAML; all others follow the YAML. Only what changed is written, so that
comments, and whatever the form has no field for, stay as they are; `kept` names it.

The devices are those of one request in one claim, from a template in the same text, or those of one extended resource.
Whatever asks for devices in another way is the YAML's business (`AS_WRITTEN`). Pure: what classes have to offer, and
which templates exist, are arguments.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from dashboard.kit.differences import YamlProblem, divided, has_content, read_yaml, rewritten
from insight.class_traits import ClassTraits
from manciple.wire.quantity import whole
from manciple.wire.validation import DNS_SUBDOMAIN_MAX, is_device_resource_name

#: field of the form -> what stands there
Values = Mapping[str, str]

#: The names of the pod's entry for its devices, and of the request in the claim.
ENTRY, REQUEST = "devices", "device"
#: Characters of a pod's name that its template's begins with: what follows may get a number, `-2`.
_LONGEST_STEM = DNS_SUBDOMAIN_MAX - len(f"-{ENTRY}") - 5
#: Where the devices come from.
SOURCES = CLASS, RESOURCE, TEMPLATE, NONE, AS_WRITTEN = ("class", "resource", "template", "none", "yaml")
#: How a Job counts its pods: any of them, or one for each index.
ALIKE, INDEXED = "NonIndexed", "Indexed"
#: The fields, with what an empty pod has in them.
FIELDS: Values = {
    "kind": "Pod", "parallelism": "", "completions": "", "completion_mode": ALIKE, "backoff_limit": "",
    "time_limit": "",
    "name": "", "namespace": "", "image": "", "command": "", "cpu": "", "memory": "", "tolerations": "",
    "devices": NONE, "device_class": "", "model": "", "count": "1", "together": "", "least": "", "share": "",
    "share_of": "", "device_tolerations": "", "resource": "", "amount": "1", "template": "",
}  # fmt: skip
#: What it can be, and the API that serves it.
POD, JOB = KINDS = ("Pod", "Job")
_VERSIONS = {POD: "v1", JOB: "batch/v1"}
#: Numbers of a Job's spec, by what the API calls them.
NUMBERS_OF_JOB = {"parallelism": "parallelism", "completions": "completions", "backoff_limit": "backoffLimit"}
OF_JOB = (*NUMBERS_OF_JOB, "completion_mode")
#: Fields in which a mistake is written and cannot be read back, each with a value that can.
_READABLE: Values = {**dict.fromkeys((*NUMBERS_OF_JOB, "count", "amount"), "2"), "time_limit": "1h"}
#: Those of the request, and of an extended resource.
_OF_REQUEST = ("device_class", "model", "count", "together", "least", "share", "share_of", "device_tolerations")
_OF_RESOURCE = ("resource", "amount")

_STRING = r"""(?:"(?:[^"\\]|\\.)*"|'[^'"\\]*')"""
_HAS = r"(?:{string} in device\.{map}\[{string}\] && )?"
_MODEL = re.compile(
    _HAS.format(string=_STRING, map="attributes")
    + rf"device\.attributes\[(?P<domain>{_STRING})\]\.(?P<name>productName|model) == (?P<value>{_STRING})"
)
_LEAST = re.compile(
    _HAS.format(string=_STRING, map="capacity")
    + rf"device\.capacity\[(?P<domain>{_STRING})\]\.(?P<name>\w*[mM]em\w*)"
    + rf"\.compareTo\(quantity\((?P<value>{_STRING})\)\) >= 0"
)
_TOLERATION = re.compile(
    r"(?P<key>[^=:\s]+)(?P<equals>=(?P<value>[^:\s]*))?(?::(?P<effect>NoSchedule|PreferNoSchedule|NoExecute))?"
)
#: In place of a taint's key: every taint.
ANY_TAINT = "*"


class NotReadable(ValueError):
    """Why the form cannot follow a text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Composed:
    """text: the YAML; base: the text that both sides agree on; values: of the form; kept: what the form has no field
    for, as paths; problem: why the form does not follow, "" if it does; template: that the pod's claim comes from, if
    it is in the text.
    """

    text: str
    base: str
    values: Values
    kept: Sequence[str] = ()
    problem: str = ""
    template: Mapping[str, Any] | None = None

    @property
    def in_json(self) -> str:
        """The values, by the names under which a browser sends them."""
        return json.dumps({"class" if name == "device_class" else name: value for name, value in self.values.items()})


@dataclass(slots=True, eq=False)
class Part:
    """A document, or (`tree` None) comments alone. before: the tree that the text has; gone: it is left out."""

    text: str
    tree: Any
    before: Any = None
    gone: bool = False


@dataclass(slots=True)
class Draft:
    """A text's documents. document, template: those that the form is about, the Pod or Job and the claim's."""

    parts: list[Part]
    document: dict[str, Any]
    template: dict[str, Any] | None = None
    values: dict[str, str] = field(default_factory=dict)
    kept: list[str] = field(default_factory=list)

    @property
    def pod(self) -> dict[str, Any]:
        """What has the pod's spec: the Pod, or the Job's template."""
        return self.document if self.document.get("kind") == POD else _holder(self.document, "spec", "template")


def compose(
    posted: Values,
    text: str,
    base: str,
    *,
    traits: Callable[[str], ClassTraits | None],
    settle: Callable[[dict[str, Any]], str] = lambda template: str(template["metadata"]["name"]),
) -> Composed:
    """posted: of the form; what it leaves out is unchanged. settle: names a template that the form writes."""
    try:
        draft = read(text)
    except NotReadable as problem:
        return Composed(text=text, base=base, values=posted, problem=str(problem))
    try:
        agreed: Values = read(base).values if base else draft.values
    except NotReadable:
        agreed = draft.values
    asked = {name: _canonical(name, posted[name]) if name in posted else agreed[name] for name in FIELDS}
    chosen = {name: asked[name] if asked[name] != agreed[name] else draft.values[name] for name in ("devices", "kind")}
    idle = _idle(chosen["devices"], chosen["kind"])
    changed = {name: value for name, value in asked.items() if value != agreed[name] and name not in idle}
    merged = draft.values | changed
    kept = draft.kept
    if changed:
        text = _write(draft, merged, traits, settle)
        draft = read(text)
        kept = draft.kept
        # A mistake made in the form is in the text by now, but did not come from there.
        mistaken = {name for name in changed if draft.values[name] != merged[name]} & _READABLE.keys()
        if mistaken:
            mended = merged | {name: _READABLE[name] for name in mistaken}
            kept = read(_write(read(text), mended, traits, settle)).kept
    # What somebody is typing stays as they type it, where it means the same.
    follows = {name for name in FIELDS if name not in {*changed, *idle} and draft.values[name] != agreed[name]}
    shown = {name: draft.values[name] if name in follows or name not in posted else posted[name] for name in FIELDS}
    return Composed(text=text, base=text, values=shown, kept=kept, template=draft.template)


def _idle(source: str, kind: str) -> set[str]:
    """Fields that say nothing of such a kind, or of devices from there: they keep what was chosen before."""
    of = {CLASS: _OF_REQUEST, RESOURCE: _OF_RESOURCE, TEMPLATE: ("template",)}
    idle = {name for other, names in of.items() if other != source for name in names}
    return idle | ({*OF_JOB} if kind != JOB else set())


def _canonical(name: str, text: str) -> str:
    """As it would be read again."""
    text = text.strip()
    if name == "kind":
        return text if text in KINDS else POD
    if name == "time_limit":
        seconds = seconds_of(text)
        return text if seconds is None else limit_of(seconds)
    if name == "command":
        return shlex.join(words_of(text))
    if name in ("tolerations", "device_tolerations"):
        return "\n".join(text.replace(",", "\n").split())
    return text


def words_of(command: str) -> list[str]:
    """As a shell would split it."""
    try:
        return shlex.split(command)
    except ValueError:  # its quotes do not match
        return command.split()


_LIMIT = re.compile(
    r"(?:(?P<days>\d{1,6})d)?(?:(?P<hours>\d{1,6})h)?(?:(?P<minutes>\d{1,8})m)?(?:(?P<seconds>\d{1,10})s?)?"
)
_SECONDS = {"days": 86_400, "hours": 3600, "minutes": 60, "seconds": 1}


def seconds_of(limit: str) -> int | None:
    """`90`, `90s`, `1h30m` and `2d` in seconds; None for no limit, and for what is none."""
    found = _LIMIT.fullmatch(limit.replace(" ", "")) if limit else None
    if found is None:
        return None
    return sum(_SECONDS[unit] * int(number) for unit, number in found.groupdict().items() if number) or None


def limit_of(seconds: int) -> str:
    """In the largest units that it is whole in: `2h`, `90m`, `45s`."""
    unit = next(unit for unit in ("days", "hours", "minutes", "seconds") if seconds % _SECONDS[unit] == 0)
    return f"{seconds // _SECONDS[unit]}{unit[0]}"


# Reading --------------------------------------------------------------------------------------------------------------


def read(text: str) -> Draft:
    """Raises: NotReadable."""
    parts = list[Part]()
    for before, part in divided(text):
        try:
            tree = read_yaml(part) if has_content(part) else None
            parts.append(Part(part, tree, deepcopy(tree)))
        except YamlProblem as problem:
            line = problem.finding["line"] + before
            raise NotReadable(f"The YAML cannot be read: line {line}: {problem.finding['message']}") from None
    found = [one.tree for one in parts if _at(one.tree, "kind") in KINDS]
    if len(found) > 1:
        raise NotReadable(f"The form shows one pod or Job, and the YAML has {len(found)}.")
    if not found and any(one.tree is not None for one in parts):
        raise NotReadable("The YAML has no pod and no Job.")
    if not found:
        found = [{"apiVersion": "v1", "kind": POD, "metadata": {}, "spec": {"restartPolicy": "Never"}}]
        parts = [Part("", found[0])]
    draft = Draft(parts, found[0])
    _read_pod(draft)
    return draft


def _read_pod(draft: Draft) -> None:
    whole_left, values = deepcopy(draft.document), dict(FIELDS)
    values["kind"] = whole_left["kind"]
    for name in ("apiVersion", "kind"):
        whole_left.pop(name, None)
    values["name"] = _taken_text(whole_left, "metadata", "name")
    values["namespace"] = _taken_text(whole_left, "metadata", "namespace")
    limit = _at(whole_left, "spec", "activeDeadlineSeconds")
    if isinstance(limit, int) and not isinstance(limit, bool) and limit > 0:
        values["time_limit"] = limit_of(_take(whole_left, "spec", "activeDeadlineSeconds"))
    left = whole_left
    if values["kind"] == JOB:
        for name, path in NUMBERS_OF_JOB.items():
            values[name] = _taken_text(whole_left, "spec", path)
        values["completion_mode"] = _taken_text(whole_left, "spec", "completionMode") or ALIKE
        template = _at(whole_left, "spec", "template")
        left = template if isinstance(template, dict) else {}
    if _at(left, "spec", "restartPolicy") == "Never":
        _take(left, "spec", "restartPolicy")
    container = ("spec", "containers", 0)
    _take(left, *container, "name")
    values["image"] = _taken_text(left, *container, "image")
    command = _at(left, *container, "command")
    if isinstance(command, list) and all(isinstance(one, str) for one in command):
        values["command"] = shlex.join(_take(left, *container, "command"))
    for name in ("cpu", "memory"):
        values[name] = _taken_text(left, *container, "resources", "requests", name)
    values["tolerations"] = _taken_tolerations(_at(left, "spec"))
    entries = _at(left, "spec", "resourceClaims")
    entry = entries[0] if isinstance(entries, list) and len(entries) == 1 else None
    named = entry.get("resourceClaimTemplateName") if isinstance(entry, dict) else None
    used = [{"name": entry.get("name")}] if isinstance(entry, dict) else None
    others = [one.tree for one in draft.parts if one.tree is not None and one.tree is not draft.document]
    if (
        isinstance(named, str)
        and _at(left, *container, "resources", "claims") == used
        and set(entry or ()) == {"name", "resourceClaimTemplateName"}
    ):
        draft.template = next((one for one in others if _names(one, named)), None)
        values["devices"], values["template"] = (CLASS, "") if draft.template else (TEMPLATE, named)
        _take(left, "spec", "resourceClaims")
        _take(left, *container, "resources", "claims")
        if draft.template:
            others.remove(draft.template)
            rest = deepcopy(draft.template)
            if not _read_request(rest, values):
                values |= {name: FIELDS[name] for name in _OF_REQUEST} | {"devices": AS_WRITTEN}
                rest = deepcopy(draft.template)
            draft.kept += [f"template {path}" for path in _leaves(rest)]
    elif entries:
        values["devices"] = AS_WRITTEN
    else:
        _read_resource(_at(left, *container, "resources"), values)
    draft.kept[:0] = _leaves(whole_left)
    draft.kept += [f"{_at(one, 'kind')} {_at(one, 'metadata', 'name') or ''}".strip() for one in others]
    draft.values = values


def _read_resource(resources: Any, values: dict[str, str]) -> None:
    """Takes the limit of an extended resource, where it is the only one, and whatever is requested is the same."""
    limits, requests = (_at(resources, part) for part in ("limits", "requests"))
    names = _device_resources(limits) | _device_resources(requests)
    if not names:
        return
    (name, *others) = sorted(names)
    amount = _at(limits, name)
    if others or not isinstance(amount, int | str) or _at(requests, name) not in (None, amount):
        values["devices"] = AS_WRITTEN
        return
    values |= {"devices": RESOURCE, "resource": name, "amount": _taken_text(limits, name)}
    _take(requests, name)


def _device_resources(amounts: Any) -> set[str]:
    """The names among them by which containers get devices."""
    return {name for name in amounts if is_device_resource_name(str(name))} if isinstance(amounts, dict) else set()


def _names(document: Any, name: str) -> bool:
    found: tuple[Any, Any] = (_at(document, "kind"), _at(document, "metadata", "name"))
    return found == ("ResourceClaimTemplate", name)


def _read_request(rest: dict[str, Any], values: dict[str, str]) -> bool:
    """Takes from a template what the form has fields for. False if its claim is of another shape."""
    devices = _at(rest, "spec", "spec", "devices")
    requests = _at(devices, "requests")
    request = requests[0] if isinstance(requests, list) and len(requests) == 1 else None
    exactly = _at(request, "exactly")
    if not isinstance(exactly, dict) or _at(exactly, "allocationMode") not in (None, "ExactCount"):
        return False
    for name in ("apiVersion", "kind"):
        rest.pop(name, None)
    for name in ("name", "namespace"):
        _take(rest, "metadata", name)
    called = _take(request, "name")
    _take(exactly, "allocationMode")
    values["device_class"] = _taken_text(exactly, "deviceClassName")
    values["count"] = _taken_text(exactly, "count") or "1"
    values["device_tolerations"] = _taken_tolerations(exactly)
    for name, pattern in (("model", _MODEL), ("least", _LEAST)):
        found = _selector(exactly, pattern)
        if found is not None:
            domain, value = (_unquoted(found[2][part]) for part in ("domain", "value"))
            values[name] = f"{domain}/{found[2]['name']}={value}" if name == "model" else value
            del exactly["selectors"][found[0]]
    amounts = _at(exactly, "capacity", "requests")
    if isinstance(amounts, dict) and amounts:
        values["share_of"] = next(iter(amounts))
        values["share"] = _taken_text(exactly, "capacity", "requests", values["share_of"])
    constraints = _at(devices, "constraints")
    if isinstance(constraints, list) and len(constraints) == 1 and _joins(constraints[0], called):
        values["together"] = constraints[0]["matchAttribute"]
        _take(devices, "constraints")
    return True


def _joins(constraint: Any, request: Any) -> bool:
    """Whether it is about all devices of the request, and nothing else than an equal attribute."""
    attribute, requests = _at(constraint, "matchAttribute"), _at(constraint, "requests")
    return (
        isinstance(attribute, str)
        and requests in (None, [], [request])
        and set(constraint) <= {"matchAttribute", "requests"}
    )


def _selector(exactly: Mapping[str, Any], pattern: re.Pattern[str]) -> tuple[int, str, re.Match[str]] | None:
    """(place, expression, match) of the first selector that is of this form."""
    selectors = _at(exactly, "selectors")
    for place, one in enumerate(selectors if isinstance(selectors, list) else ()):
        expression = _at(one, "cel", "expression")
        if isinstance(expression, str) and (match := pattern.fullmatch(expression.strip())):
            return place, expression, match
    return None


def _unquoted(text: str) -> str:
    return text[1:-1] if text.startswith("'") else str(json.loads(text))


def _taken_tolerations(holder: Any) -> str:
    """A line for each toleration that has one; the others are left."""
    tolerations = _at(holder, "tolerations")
    if not isinstance(tolerations, list):
        return ""
    lines = [(_line_of(one), one) for one in tolerations]
    left = [one for line, one in lines if not line]
    if left:
        holder["tolerations"] = left
    else:
        holder.pop("tolerations")
    return "\n".join(line for line, _ in lines if line)


def _line_of(toleration: Any) -> str:
    """`key=value:Effect`, `key:Effect`, `key`; "" for what this cannot say. A mistaken line comes back as typed."""
    if not isinstance(toleration, dict) or not set(toleration) <= {"key", "operator", "value", "effect"}:
        return ""
    key, value, effect = (str(toleration.get(name) or "") for name in ("key", "value", "effect"))
    if set(toleration) == {"key"} and toleration_of(key) is None:
        return key
    exists = toleration.get("operator") == "Exists"
    line = f"{key or (ANY_TAINT if exists else '')}{'' if exists else f'={value}'}{f':{effect}' if effect else ''}"
    return line if toleration_of(line) == {one: said for one, said in toleration.items() if said} else ""


def toleration_of(line: str) -> dict[str, str] | None:
    """None if it cannot be read."""
    match = _TOLERATION.fullmatch(line)
    if match is None:
        return None
    operator = {"operator": "Equal", "value": match["value"]} if match["equals"] else {"operator": "Exists"}
    key = {} if match["key"] == ANY_TAINT else {"key": match["key"]}
    return {name: text for name, text in (key | operator | {"effect": match["effect"]}).items() if text}


def _at(tree: Any, *path: str | int) -> Any:
    for step in path:
        if isinstance(tree, dict):
            tree = tree.get(step)
        elif isinstance(tree, list) and isinstance(step, int) and step < len(tree):
            tree = tree[step]
        else:
            return None
    return tree


def _take(tree: Any, *path: str | int) -> Any:
    holder = _at(tree, *path[:-1])
    return holder.pop(path[-1], None) if isinstance(holder, dict) else None


def _taken_text(tree: Any, *path: str | int) -> str:
    """Nothing is taken that a field cannot show."""
    found = _at(tree, *path)
    if isinstance(found, dict | list | bool):
        return ""
    _take(tree, *path)
    return "" if found is None else str(found)


def _leaves(tree: Any, path: str = "") -> Iterator[str]:
    """The paths of what is left, without empty holders; a list of plain values is one of them."""
    if isinstance(tree, dict) and not (path and not tree):
        for name, one in tree.items():
            yield from _leaves(one, f"{path}.{name}" if path else name)
    elif isinstance(tree, list) and any(isinstance(one, dict) for one in tree):
        for place, one in enumerate(tree):
            yield from _leaves(one, f"{path}[{place}]")
    elif tree not in (None, {}, []):
        yield path


# Writing --------------------------------------------------------------------------------------------------------------


def _write(
    draft: Draft,
    values: Values,
    traits: Callable[[str], ClassTraits | None],
    settle: Callable[[dict[str, Any]], str],
) -> str:
    """The text with these values in it."""
    fresh = draft.values
    changed = {name for name in FIELDS if values[name] != fresh[name]}
    if "kind" in changed:
        _become(draft.document, values["kind"])
    document, pod = draft.document, draft.pod
    meta = _holder(document, "metadata")
    _set(meta, "name", values["name"], keep=True)
    _set(meta, "namespace", values["namespace"])
    if "time_limit" in changed:
        seconds = seconds_of(values["time_limit"])
        _set(_holder(document, "spec"), "activeDeadlineSeconds", values["time_limit"] if seconds is None else seconds)
    of_job = {*OF_JOB} & changed if values["kind"] == JOB else set()
    for name in of_job & {*NUMBERS_OF_JOB}:
        number = whole(values[name])
        written = values[name] if number is None else number
        _set(_holder(document, "spec"), NUMBERS_OF_JOB[name], written, keep=number == 0)
    if "completion_mode" in of_job:
        mode = values["completion_mode"]
        _set(_holder(document, "spec"), "completionMode", "" if mode == ALIKE else mode)
    container = _container(pod)
    if "image" in changed or "image" not in container:
        container["image"] = values["image"]
    if "command" in changed:
        _set(container, "command", words_of(values["command"]))
    for name in ("cpu", "memory"):
        if name in changed:
            _set(_holder(container, "resources", "requests"), name, values[name])
    if "tolerations" in changed:
        _write_tolerations(_holder(pod, "spec"), values["tolerations"])
    _write_devices(draft, values, changed, traits, settle)
    if isinstance(resources := container.get("resources"), dict):
        for name in ("requests", "limits", "claims"):
            _set(resources, name, resources.get(name))
        _set(container, "resources", resources)
    return _text(draft)


def _become(document: dict[str, Any], kind: str) -> None:
    """Make the Pod a Job of such pods, or the Job the Pod that it is of; what both have stays."""
    document["apiVersion"], document["kind"] = _VERSIONS[kind], kind
    spec = _holder(document, "spec")
    limit = spec.pop("activeDeadlineSeconds", None)
    if kind == JOB:
        if spec.get("restartPolicy") not in ("Never", "OnFailure"):
            spec["restartPolicy"] = "Never"
        document["spec"] = {"template": {"spec": spec}}
    else:
        inner = _at(spec, "template", "spec")
        document["spec"] = inner if isinstance(inner, dict) else {"restartPolicy": "Never"}
    _set(document["spec"], "activeDeadlineSeconds", limit)


def _write_devices(
    draft: Draft,
    values: Values,
    changed: set[str],
    traits: Callable[[str], ClassTraits | None],
    settle: Callable[[dict[str, Any]], str],
) -> None:
    source, pod = values["devices"], draft.pod
    spec, container = _holder(pod, "spec"), _container(pod)
    if "devices" in changed and source != AS_WRITTEN:
        _take_devices(spec)
        if draft.template is not None:
            _part(draft, draft.template).gone = True
            draft.template = None
        if source in (CLASS, TEMPLATE):
            resources = _holder(container, "resources")
            resources["claims"] = [*(resources.get("claims") or ()), {"name": ENTRY}]
            spec["resourceClaims"] = [{"name": ENTRY, "resourceClaimTemplateName": values["template"]}]
    if source == TEMPLATE:
        spec["resourceClaims"][0]["resourceClaimTemplateName"] = values["template"]
    if source == RESOURCE and {"devices", *_OF_RESOURCE} & changed:
        _write_resource(_holder(container, "resources"), draft.values["resource"], values)
    if source != CLASS:
        return
    template, own = draft.template, own_template(draft.values["name"])
    if template is None:
        template = draft.template = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaimTemplate",
            "metadata": {"name": own},
            "spec": {"spec": {"devices": {"requests": [{"name": REQUEST, "exactly": {}}]}}},
        }
        draft.parts.insert(draft.parts.index(_part(draft, draft.document)), Part("", template))
        changed = {*changed, *_OF_REQUEST}
    _write_request(template["spec"]["spec"]["devices"], values, changed, traits)
    meta = _holder(template, "metadata")
    _set(meta, "namespace", values["namespace"])
    if re.fullmatch(rf"{re.escape(own)}(-\d+)?", str(meta.get("name"))):
        meta["name"] = own_template(values["name"])
        meta["name"] = settle(template)
        spec["resourceClaims"][0]["resourceClaimTemplateName"] = meta["name"]


def _take_devices(spec: dict[str, Any]) -> None:
    """Takes out whatever asks for devices."""
    entries = {_at(one, "name") for one in spec.pop("resourceClaims", None) or ()}
    for container in spec["containers"]:
        if isinstance(resources := _at(container, "resources"), dict):
            claims = resources.get("claims") or ()
            _set(resources, "claims", [one for one in claims if _at(one, "name") not in entries])
            for part in ("limits", "requests"):
                for name in _device_resources(resources.get(part)):
                    del resources[part][name]


def _write_resource(resources: dict[str, Any], before: str, values: Values) -> None:
    """Nothing before its name is chosen."""
    number = whole(values["amount"])
    for part in ("limits", "requests"):
        if part == "limits" or before in (resources.get(part) or ()):
            amounts = _holder(resources, part)
            amounts.pop(before, None)
            _set(amounts, values["resource"], values["amount"] if number is None else number, keep=True)
            amounts.pop("", None)


def own_template(name: str) -> str:
    """The template's name, which follows that of the pod.

    A long name is cut, so that one that a pod may have is one for a template too, with room for a number. One that no
    pod may have stays whole: a pod that cannot be read reports no error, its template does.
    """
    if _LONGEST_STEM < len(name) <= DNS_SUBDOMAIN_MAX:
        name = name[:_LONGEST_STEM].rstrip("-.")
    return f"{name}-{ENTRY}" if name else ENTRY


def _write_request(
    devices: dict[str, Any], values: Values, changed: set[str], traits: Callable[[str], ClassTraits | None]
) -> None:
    exactly = devices["requests"][0]["exactly"]
    if "device_class" in changed:
        exactly["deviceClassName"] = values["device_class"]
    if "count" in changed:
        number = whole(values["count"])
        _set(exactly, "count", "" if values["count"] == "1" else values["count"] if number is None else number)
    known = traits(values["device_class"]) or ClassTraits()
    if "model" in changed:
        attribute, _, model = values["model"].partition("=")
        guard = known.models and sum(n for (name, _), n in known.models.items() if name == attribute) < known.devices
        _write_selector(
            exactly,
            _MODEL,
            _expression("attributes", attribute, f" == {json.dumps(model)}", guard=bool(guard)) if model else "",
        )
    if {"least", "device_class"} & changed:
        least, found = values["least"], _selector(exactly, _LEAST)
        memory = known.memory or (f"{_unquoted(found[2]['domain'])}/{found[2]['name']}" if found else "")
        test = f".compareTo(quantity({json.dumps(least)})) >= 0"
        guard = known.capacities[memory] < known.devices
        _write_selector(exactly, _LEAST, _expression("capacity", memory, test, guard=guard) if least and memory else "")
    if {"share", "share_of"} & changed:
        amounts = _holder(exactly, "capacity", "requests")
        old = next(iter(amounts), "")
        named = values["share_of"] or old or next(iter(known.shares), "")
        if old and old != named:
            del amounts[old]
        if named:
            _set(amounts, named, values["share"])
        if not amounts:
            del exactly["capacity"]
    if "device_tolerations" in changed:
        _write_tolerations(exactly, values["device_tolerations"])
    if "together" in changed:
        attribute = values["together"]
        _set(
            devices,
            "constraints",
            [{"requests": [devices["requests"][0]["name"]], "matchAttribute": attribute}] if attribute else [],
        )


def _expression(of: str, name: str, test: str, *, guard: bool) -> str:
    """What a selector asks of an attribute or capacity. guard: devices without it are left out, where asking would
    be an error."""
    domain, _, short = name.partition("/")
    holder = f"device.{of}[{json.dumps(domain)}]"
    return f"{f'{json.dumps(short)} in {holder} && ' if guard else ''}{holder}.{short}{test}"


def _write_selector(exactly: dict[str, Any], pattern: re.Pattern[str], expression: str) -> None:
    selectors = list(exactly.get("selectors") or ())
    found = _selector(exactly, pattern)
    written = [{"cel": {"expression": expression}}] if expression else []
    place = found[0] if found else len(selectors)
    selectors[place : place + 1] = written
    _set(exactly, "selectors", selectors)


def _write_tolerations(holder: dict[str, Any], lines: str) -> None:
    others = [one for one in holder.get("tolerations") or () if not _line_of(one)]
    _set(holder, "tolerations", [toleration_of(line) or {"key": line} for line in lines.split("\n") if line] + others)


def _set(holder: dict[str, Any], name: str, value: Any, *, keep: bool = False) -> None:
    """keep: an empty value, too."""
    if value or keep:
        holder[name] = value
    else:
        holder.pop(name, None)


def _holder(tree: dict[str, Any], *path: str) -> dict[str, Any]:
    """The mapping there; made where there is none."""
    for name in path:
        if not isinstance(tree.get(name), dict):
            tree[name] = {}
        tree = tree[name]
    return tree


def _container(pod: dict[str, Any]) -> dict[str, Any]:
    """The first one; made where there is none."""
    spec = _holder(pod, "spec")
    if (
        not isinstance(spec.get("containers"), list)
        or not spec["containers"]
        or not isinstance(spec["containers"][0], dict)
    ):
        spec["containers"] = [{"name": "main"}]
    container: dict[str, Any] = spec["containers"][0]
    return container


def _part(draft: Draft, document: dict[str, Any]) -> Part:
    return next(one for one in draft.parts if one.tree is document)


def _text(draft: Draft) -> str:
    """Only documents that changed are rewritten."""
    texts = (
        one.text if one.tree == one.before else rewritten(one.text, one.tree) for one in draft.parts if not one.gone
    )
    return "\n---\n".join(text.removesuffix("\n") for text in texts) + "\n"

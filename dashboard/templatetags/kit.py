"""The tags and filters of every template, the components of pages (`/kit` shows them), and the links and sentences that
views write with the same functions.

{% card "Latest events" id="events" topics="events:" %}…{% endcard %}
{% empty_state "i-dev" "No driver yet" %}<p>…</p>{% endempty_state %}
{% mark "warn" %}                        a severity, beside words that say it
{{ row.devices|counted:"device" }}       1 device, 5,000 devices
{{ names|listed:3 }}                     a, b, c and 2 more
{% names holders 3 more=row.hidden %}    the same with links
{% figure row.free "free" %}             a number, or that it is not known here
{% meter limit.percent state="full" %}   a share of a limit, beside its numbers
{% bar row.parts label=row.label %}      counts by state
{% fact "Claims" held.claims %}          a term and its value, within a <dl>
{% icon "i-pod" 13 %}  {% help "dashboard#times" "Times" %}  {% time event.at %}  {% ago pod.created "ago" %}

Times of day are those of Django's current zone, which is the reader's while a page is drawn
(`dashboard.kit.preferences`).

Links lead to the pages of objects without a model instance at hand: `reverse()` of the routes in the sections'
`urls.py`. Instances of the index models know their page themselves (`get_absolute_url`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, tzinfo
from functools import lru_cache
from itertools import accumulate
from typing import Any
from urllib.parse import urlencode

from django import template
from django.conf import settings
from django.forms.utils import flatatt
from django.template import Context
from django.urls import NoReverseMatch, reverse
from django.utils import timezone
from django.utils.html import escape, format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe
from django.utils.text import slugify

from dashboard.kit.lists import ListQuery, Table
from dashboard.kit.mirrored import LISTED, UNKNOWN, MirrorHeader, header
from inventory import models
from manciple import layout
from manciple.durations import duration, moment
from manciple.gaps import Gap
from workloads.kinds.summaries import SUMMARIES

register = template.Library()

# Sentences ------------------------------------------------------------------------------------------------------------


def counted(number: int, singular: str, plural: str = "") -> str:
    """`1 device`, `5,000 devices`; plural: where it takes more than an s, or where a verb follows the noun.

    `counted(n, "claim holds", "claims hold")` is `1 claim holds` or `2 claims hold`.
    """
    return f"{number:,} {singular if number == 1 else plural or f'{singular}s'}"


@register.filter("counted")
def counted_filter(number: int, words: str) -> str:
    """words: `device`; or the singular and the plural, as in `claim holds,claims hold`."""
    singular, _, plural = words.partition(",")
    return counted(number, singular, plural)


@register.filter
def listed(names: Sequence[str], most: int = 0, *, more: int = 0) -> str:
    """`a, b and 3 more`. most: names that are written, 0 for all; more: how many there are besides `names`."""
    shown = names[:most] if most else names
    more += len(names) - len(shown)
    return ", ".join(shown) + (f" and {more:,} more" if more else "")


def joined(names: Sequence[str], most: int = 0) -> str:
    """`a, b and c`; `a, b and 3 more`. most: names that are written, 0 for all."""
    shown = [*names[:most], f"{len(names) - most:,} more"] if most and len(names) > most else names
    return " and ".join(filter(None, (", ".join(shown[:-1]), *shown[-1:])))


def said_by(component: str, author: str) -> str:
    """Who wrote an Event, and chose the component in it. author: "" if the component stands for itself."""
    return f"{author}, as {component or 'nobody'}" if author else component


# Links ----------------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=16_384)
def page_url(route: str, *args: str) -> str:
    """`reverse(route, args=args)`, cached: lists link each row several times, and draw the same rows again.

    "" for a name that no object can have, such as one with a slash in an Event.
    """
    try:
        return reverse(route, args=args)
    except NoReverseMatch:
        return ""


def pod_url(namespace: str, name: str) -> str:
    return page_url("pod", namespace, name)


def claim_url(namespace: str, name: str) -> str:
    return page_url("claim", namespace, name)


def template_url(namespace: str, name: str) -> str:
    return page_url("template", namespace, name)


@lru_cache(maxsize=16_384)
def device_url(driver: str, pool: str, device: str, node: str = "") -> str:
    try:
        return models.device_url(driver, pool, device, node)
    except NoReverseMatch:
        return ""


def device_in_grid_url(driver: str, pool: str, device: str, node: str = "") -> str:
    """The grid with the device's panel open."""
    suffix = f"?node={node}" if models.is_ambiguous(pool, node) else ""
    return f"{page_url('devices')}?{urlencode({'at': f'{driver}/{pool}/{device}{suffix}'})}"


def node_url(name: str) -> str:
    return page_url("node", name)


def class_url(name: str) -> str:
    return page_url("class-edit", name)


def driver_url(name: str) -> str:
    return page_url("driver", name)


def namespace_url(name: str) -> str:
    return page_url("namespace", name)


def incident_url(name: str) -> str:
    return page_url("incident", name)


def workload_url(plural: str, namespace: str, name: str) -> str:
    """plural: `deployments`."""
    return page_url("workload", plural, namespace, name)


def autoscaler_url(namespace: str, name: str) -> str:
    return page_url("autoscaler", namespace, name)


def quota_url(namespace: str, name: str) -> str:
    return page_url("quota", namespace, name)


def taint_rule_url(name: str) -> str:
    return page_url("taint-rule", name)


def role_url(name: str, namespace: str = "") -> str:
    """Without a namespace a ClusterRole's."""
    return page_url("role", name) + (f"?{urlencode({'ns': namespace})}" if namespace else "")


def access_url(user: str) -> str:
    """What a user of the API may do; a service account under the name that it has there."""
    return f"{page_url('access')}?{urlencode({'user': user})}"


def person_url(name: str) -> str:
    return f"{page_url('people')}?{urlencode({'who': name})}"


def yaml_url(resource: str, namespace: str, name: str) -> str:
    """Any object as YAML. resource: `resourceclaims.resource.k8s.io`."""
    return page_url("yaml", resource, name) + (f"?{urlencode({'ns': namespace})}" if namespace else "")


def object_url(resource: str, namespace: str, name: str) -> str:
    """The page of an object, "" where its kind has none."""
    in_namespace: dict[str, Callable[[str, str], str]] = {
        "pods": pod_url,
        "resourceclaims.resource.k8s.io": claim_url,
        "resourceclaimtemplates.resource.k8s.io": template_url,
        "resourcequotas": quota_url,
        "horizontalpodautoscalers.autoscaling": autoscaler_url,
        "roles.rbac.authorization.k8s.io": lambda namespace, name: role_url(name, namespace),
    }
    of_cluster = {
        "deviceclasses.resource.k8s.io": class_url,
        "devicetaintrules.resource.k8s.io": taint_rule_url,
        "nodes": node_url,
        "namespaces": namespace_url,
        "clusterroles.rbac.authorization.k8s.io": role_url,
    }
    if resource in in_namespace:
        return in_namespace[resource](namespace, name)
    if resource in SUMMARIES:
        return workload_url(resource.partition(".")[0], namespace, name)
    return of_cluster[resource](name) if resource in of_cluster else ""


def manual_url(place: str) -> str:
    """place: a page of the manual, with one of its headings or without: `dashboard#times`."""
    name, _, heading = place.partition("#")
    return page_url("manual-page", name) + (f"#{heading}" if heading else "")


for _tag in (
    *(pod_url, claim_url, template_url, quota_url, workload_url, autoscaler_url),
    *(device_url, device_in_grid_url, yaml_url),
):
    register.simple_tag(_tag)
for _filter in (
    *(page_url, manual_url, node_url, class_url, driver_url, namespace_url),
    *(role_url, access_url, person_url, incident_url, taint_rule_url),
):
    register.filter(_filter.__name__, _filter)


# Times ----------------------------------------------------------------------------------------------------------------


@register.filter("duration")
def duration_filter(seconds: float | None) -> str:
    return duration(seconds) if seconds is not None else ""


@register.filter
def age(value: datetime | str | None, *, now: datetime | None = None) -> str:
    """How long ago; empty where no time is known."""
    since = moment(value)
    return duration(((now or datetime.now(UTC)) - since).total_seconds()) if since else ""


@register.filter
def clock(value: datetime | str | None, *, now: datetime | None = None) -> str:
    """`10:20:04` today, `Thu 10:20` within a week, `2026-11-13 10:20` before."""
    at = moment(value)
    if at is None:
        return ""
    at = timezone.localtime(at)
    days = (timezone.localtime(now or datetime.now(UTC)).date() - at.date()).days
    if days == 0:
        return f"{at:%H:%M:%S}"
    return f"{at:%a %H:%M}" if 0 < days < 7 else f"{at:%Y-%m-%d %H:%M}"  # noqa: PLR2004 - days of a week


def zone_label(zone: tzinfo, *, now: datetime) -> str:
    """`Europe/Berlin (UTC+1)`, `Asia/Kolkata (UTC+5:30)`, `UTC`."""
    name, difference = str(zone), offset(now.astimezone(zone))
    return name if name == difference else f"{name} ({difference})"


def offset(at: datetime) -> str:
    """How far a time is from UTC: `UTC`, `UTC+1`, `UTC-3:30`."""
    minutes = round((at.utcoffset() or UTC.utcoffset(at)).total_seconds() / 60)
    if not minutes:
        return "UTC"
    hours, rest = divmod(abs(minutes), 60)
    return f"UTC{'+' if minutes > 0 else '-'}{hours}" + (f":{rest:02}" if rest else "")


@register.simple_tag
def ago(value: datetime | str | None, after: str = "") -> SafeString | str:
    """How long ago, which ages.js keeps true. after: what stands behind it, such as "ago"."""
    at = moment(value)
    if at is None:
        return ""
    behind = format_html(' data-after=" {}"', after) if after else ""
    shown = f"{age(at)} {after}".rstrip()
    return format_html('<span class="age" data-ago="{}"{}>{}</span>', _exact(at), behind, shown)


@register.simple_tag
def time_of_server() -> str:
    """By whose clock ages are counted."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _exact(at: datetime) -> str:
    return at.isoformat(timespec="seconds").replace("+00:00", "Z")


@register.simple_tag
def time(value: datetime | str | None) -> SafeString | str:
    """The short form, with the exact time for whoever points at it."""
    at = moment(value)
    if at is None:
        return ""
    local = timezone.localtime(at)
    exact = f"{local:%Y-%m-%d %H:%M:%S} {offset(local)}"
    return format_html('<time datetime="{}" title="{}">{}</time>', _exact(at), exact, clock(at))


@register.simple_tag
def zone() -> str:
    """The name of the zone in which the page's times are: `Europe/Berlin`."""
    return timezone.get_current_timezone_name()


@register.simple_tag
def zone_and_offset() -> str:
    """`Europe/Berlin (UTC+1)`."""
    return zone_label(timezone.get_current_timezone(), now=datetime.now(UTC))


# Components -----------------------------------------------------------------------------------------------------------


@register.simple_tag
def icon(name: str, size: int) -> SafeString:
    """size: in pixels. Words beside it say what it means, so it is hidden from who hears the page."""
    return format_html('<svg width="{}" height="{}" aria-hidden="true"><use href="#{}"/></svg>', size, size, name)


@register.filter
def number(value: Any) -> Any:
    """With thousands apart; what is no whole number stays as it is."""
    return f"{value:,}" if isinstance(value, int) else value


@register.simple_tag(takes_context=True)
def figure(context: Context, value: int | str, of: str) -> str:
    """A count that a mirror may not know: `{% figure 7 "free" %}` is "7" where all that it depends on is known, "7+"
    where there may be more, and a dash where it is not known. of: a state of devices, or a topic (`kit.mirrored`).
    """
    return _counted_so_far(value, of.split(" ", 1)[0], context.get("mirror"))


def _counted_so_far(number: int | str, what: str, mirror: MirrorHeader | None) -> str:
    """Such as "1,204"; in a mirror that does not know all of it "1,204+", or a dash. A number in words stays."""
    if mirror is None or not mirror.lacks(what):
        return f"{number:,}" if isinstance(number, int) else number
    return f"{number:,}+" if number and isinstance(number, int) and what.partition(":")[0] in LISTED else UNKNOWN


def known_figure(number: int, what: str) -> str:
    """As the tag `figure` draws it."""
    return _counted_so_far(number, what, header() if settings.MIRROR else None)


def known_count(number: int, noun: str, *, of: str = "") -> str:
    """`1 node`, `1,204 nodes`, `1,204+ nodes`. of: the key of what is counted, unless it is called like that."""
    said = known_figure(number, of or f"{noun}s")
    return f"{said} {noun if said == '1' else f'{noun}s'}"


@register.simple_tag(takes_context=True)
def unknown(context: Context, of: str) -> Sequence[Gap]:
    """Why a mirror does not know all of a list: `{% unknown "claims:" as gaps %}`."""
    header: MirrorHeader | None = context.get("mirror")
    return header.lacks(of.split(" ", 1)[0]) if header is not None and of else ()


@register.simple_tag
def names(links: Sequence[str | tuple[str, str]], most: int = 0, more: int = 0, css: str = "link") -> SafeString:
    """The same with links: (name, address), or a name alone. more: how many there are besides `links`; css: of a link,
    `ent` for objects in tables."""
    class_ = format_html(' class="{}"', css) if css else ""
    drawn = [
        format_html("{}", one) if isinstance(one, str) else format_html('<a{} href="{}">{}</a>', class_, one[1], one[0])
        for one in (links[:most] if most else links)
    ]
    return mark_safe(listed(drawn, more=more + len(links) - len(drawn)))  # noqa: S308 - each part is escaped


#: Severity -> its character.
_MARKS = {"ok": "✓", "info": "i", "warn": "!", "err": "\N{MULTIPLICATION SIGN}", "none": "\N{EN DASH}"}


@register.simple_tag
def mark(severity: str, character: str = "") -> SafeString:
    """A severity: ok, info, warn, err, none. It is hidden from screen readers: words beside it say the same."""
    return format_html('<span class="sev {}" aria-hidden="true">{}</span>', severity, character or _MARKS[severity])


@register.simple_tag
def meter(percent: float, state: str = "") -> SafeString:
    """The share of a limit that is used, beside its numbers. percent: above 100 is drawn as 100; state: full, over."""
    return format_html(
        '<span class="meter{}" aria-hidden="true" style="--p:{}"><i></i></span>',
        f" {state}" if state else "",
        min(percent, 100),
    )


@register.simple_block_tag(takes_context=True)
def aside(context: Context, content: str) -> str:
    """Within a card: the elements at the right end of its head. A text alone is the card's own parameter."""
    context.render_context["card_aside"] = mark_safe(content.strip())  # noqa: S308 - the template's own
    return ""


@register.simple_block_tag(takes_context=True)
def card(context: Context, content: str, title: str, **given: Any) -> SafeString:
    """A part of a page with a title: `{% card "Pods" id="node-pods" topics="nodes" css="mb" aside=… help=… %}`.

    id: with it the part is followed live, and linked to; topics: what touches it (`dashboard.kit.live`). name: of the
    title's id where the card has no id. help: a place of the manual, as for `{% help %}`. level: of the title, 2 by
    default. action: an address; the card is then a form that is posted there. Anything else becomes an attribute, with
    dashes for underscores: `data_keep=True`.
    """
    id_, name = given.pop("id", ""), given.pop("name", "")
    heading = f"h-{name or id_ or slugify(title)}"
    level, css = given.pop("level", 2), given.pop("css", "")
    attributes = {"class": f"sheet {css}".rstrip(), "id": id_, "data-topics": given.pop("topics", "")}
    tag, token = ("form", context.get("csrf_token", "")) if "action" in given else ("section", "")
    if tag == "form":
        attributes |= {"method": "post", "action": given.pop("action")}
    help_, text = given.pop("help", ""), given.pop("aside", "")
    beside = (
        format_html('<span class="aside">{}</span>', text) if text else context.render_context.get("card_aside", "")
    )
    context.render_context["card_aside"] = ""
    attributes |= {key.replace("_", "-"): value for key, value in given.items()}
    return format_html(
        '<{}{} aria-labelledby="{}">{}<header><h{} id="{}">{}{}</h{}>{}</header>{}</{}>',
        tag,
        flatatt({key: value for key, value in attributes.items() if value not in ("", None, False)}),
        heading,
        format_html('<input type="hidden" name="csrfmiddlewaretoken" value="{}">', token) if token else "",
        level,
        heading,
        title,
        help_link(help_, title) if help_ else "",
        level,
        beside,
        mark_safe(content),  # noqa: S308 - the template's own
        tag,
    )


@register.simple_block_tag
def empty_state(content: str, icon_name: str, title: str, level: int = 3) -> SafeString:
    """What stands in the place of rows: why there are none, and what to do about it. level: of the title."""
    return format_html(
        '<div class="empty">{}<h{}>{}</h{}>{}</div>',
        icon(icon_name, 26) if icon_name else "",
        level,
        title,
        level,
        mark_safe(content),  # noqa: S308 - the template's own
    )


@register.filter
def with_code(text: str) -> SafeString:
    """`request `gpu` waits` -> `request <code>gpu</code> waits`; everything is escaped."""
    parts = [
        f"<code>{escape(part)}</code>" if index % 2 else escape(part) for index, part in enumerate(text.split("`"))
    ]
    return mark_safe("".join(parts))  # noqa: S308 - every part is escaped above


@register.filter
def without_code(text: str) -> str:
    """The same for attributes, which have no elements: "request `gpu` waits" -> "request gpu waits"."""
    return text.replace("`", "")


@register.simple_tag
def command() -> str:
    """The command of this installation: `manciple`, in a checkout `manage.py`."""
    return layout.COMMAND


@register.simple_tag
def node_command() -> str:
    """The node agent's command: `manciple-agent`, in a checkout `python -m nodeagent`."""
    return layout.NODE_COMMAND


@register.simple_tag
def list_url(query: ListQuery, **changes: Any) -> str:
    return query.url(**changes)


@register.simple_tag(name="help")
def help_link(place: str, word: str) -> SafeString:
    """place: a part of the documentation. word: what it explains, for who hears the page."""
    said = f"What is meant by “{word}”"
    return format_html('<a class="help" href="{}" title="{}" aria-label="{}">?</a>', manual_url(place), said, said)


@register.simple_tag
def fact(term: str, value: Any) -> SafeString:
    """A term and what it is, within a `<dl>`."""
    return format_html("<dt>{}</dt><dd>{}</dd>", term, value)


@register.simple_tag
def heads(*columns: str) -> SafeString:
    """columns: a title each, with classes before it: `"Claim"`, `"num: Age"`; one that is not shown: `"sr: Act"`."""
    cells = []
    for column in columns:
        classes, _, title = column.rpartition(": ")
        if classes == "sr":  # the cell itself stays, and with it the line below
            classes, title = "", format_html('<span class="sr">{}</span>', title)
        cells.append((format_html(' class="{}"', classes) if classes else "", title))
    return format_html("<thead><tr>{}</tr></thead>", format_html_join("", '<th scope="col"{}>{}</th>', cells))


@register.simple_tag
def pick(table: Table[Any], at: str, name: str) -> SafeString | str:
    """The row's first cell; nothing in a list whose rows nobody acts on. at: what the form sends."""
    if not table.acts:
        return ""
    return format_html(
        '<td class="pick"><input type="checkbox" name="pick" value="{}" form="bulk" aria-label="Choose {}"></td>',
        at,
        name,
    )


#: (state, count), or (state, word, count) where whoever points at the mark reads "4 free".
Part = tuple[str, int] | tuple[str, str, int]


@register.simple_tag
def bar(parts: Sequence[Part], label: str = "") -> SafeString:
    """label: what the bar says to those who do not see it; without one the page says it in words beside it."""
    parts = list(parts)
    befores = accumulate((part[-1] for part in parts), initial=0)
    marks = format_html_join(
        "",
        '<span class="mark" data-s="{}" style="--v:{};--b:{};--i:{}"{}></span>',
        (
            (part[0], part[-1], before, place, _title(part))
            for place, (part, before) in enumerate(zip(parts, befores, strict=False))
        ),
    )
    said = format_html('role="img" aria-label="{}"', label) if label else SafeString('aria-hidden="true"')
    total = sum(part[-1] for part in parts)
    # A cross wants room. Said here, because to ask with :has() costs every change of a tile all tiles' styles.
    kinds = "bar broken" if any(part[0] == "bad" for part in parts) else "bar"
    return format_html('<div class="{}" {} style="--of:{};--n:{}">{}</div>', kinds, said, total, len(parts), marks)


def _title(part: Part) -> SafeString:
    _, *words, count = part
    return format_html(' title="{} {}"', count, words[0]) if words else SafeString()

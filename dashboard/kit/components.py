"""`/kit`: every component of the templates, drawn in both themes beside the source that draws it. For administrators.

`dashboard.templatetags.kit` has the components. One that is not in `EXAMPLES` fails a test.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.http import HttpRequest, HttpResponse
from django.template import Context, Template
from django.utils.safestring import SafeString, mark_safe
from django.views.decorators.http import require_safe

from dashboard.kit.guards import administrators_only
from dashboard.kit.rendering import PageContext, render_page
from manciple.store.event_log import latest_revision

THEMES = ("light", "dark")
#: component -> sources that show it
EXAMPLES: dict[str, tuple[str, ...]] = {
    "card": (
        '{% card "Latest events" name="kit-events" aside="of 3 nodes" %}<p class="pad">Its content.</p>{% endcard %}',
        '{% card "Waiting time" name="kit-waits" help="dashboard#reading-charts" %}'
        '{% aside %}<a class="aside link" href="#">All events</a>{% endaside %}<p class="pad">Its content.</p>'
        "{% endcard %}",
    ),
    "empty_state": (
        '{% empty_state "i-dev" "No driver yet" %}<p>A driver appears here once it publishes a ResourceSlice.</p>'
        '<a class="btn" href="#">Show all</a>{% endempty_state %}',
    ),
    "mark": (
        '<span class="state">{% mark "ok" %}Running</span>',
        '<span class="state">{% mark "info" %}Normal</span>',
        '<span class="state brass">{% mark "warn" %}being deleted</span>',
        '<span class="state red">{% mark "err" %}does not exist</span>',
        '<span class="state">{% mark "none" %}not started</span>',
    ),
    "counted": ('{{ 1|counted:"device" }}, {{ 5000|counted:"device" }}, {{ 2|counted:"claim holds,claims hold" }}',),
    "number": ("{{ 5000|number }}",),
    "figure": ('{% figure 5000 "free" %} devices are free',),
    "listed": ("{{ nodes|listed:2 }}",),
    "names": ("{% names linked 2 more=4 %}",),
    "meter": (
        '<div class="meters"><span class="soft">pods</span>{% meter 40 %}<span class="num">4 of 10</span>'
        '<span class="soft">claims</span>{% meter 100 state="full" %}<span class="num brass">8 of 8</span>'
        '<span class="soft">cpu</span>{% meter 130 state="over" %}<span class="num red">13 of 10</span></div>',
    ),
    "bar": ('{% bar parts label="4 free, 3 held, 1 tainted" %}',),
    "icon": ('{% icon "i-pod" 16 %} {% icon "i-dev" 16 %} {% icon "i-node" 16 %} {% icon "i-alert" 16 %}',),
    "help": ('Waiting time{% help "dashboard#reading-charts" "Waiting time" %}',),
    "time": ("{% time at %}, {% ago at 'ago' %}, {{ at|age }}, {{ at|clock }}, {{ 11520|duration }}",),
    "with_code": ("{{ sentence|with_code }}",),
    "without_code": ("{{ sentence|without_code }}",),
    "fact": ('<dl class="kv">{% fact "Claims" 12 %}</dl>',),
    "heads": ('<table class="tbl">{% heads "Claim" "num: Age" %}<tr><td>team-a/gpus<td class="num">3 min</table>',),
}
_VALUES = {
    "nodes": ("gpu-a01", "gpu-a02", "gpu-a03"),
    "linked": (("gpu-a01", "#"), ("gpu-a02", "#")),
    "parts": (("free", "free", 4), ("held", "held", 3), ("bad", "tainted", 1)),
    "at": "2026-01-02T03:04:05Z",
    "sentence": "Request `gpu` needs 8 devices on one node.",
}


@dataclass(frozen=True, slots=True)
class DrawnExample:
    """drawn: (theme, HTML)."""

    source: str
    drawn: Sequence[tuple[str, SafeString]]

    @classmethod
    def of(cls, source: str) -> DrawnExample:
        html = Template(source).render(Context(_VALUES))
        # An id is on a page once.
        return cls(source, [(theme, mark_safe(html.replace("kit-", f"kit-{theme}-"))) for theme in THEMES])  # noqa: S308


@dataclass(frozen=True, slots=True, kw_only=True)
class KitContext(PageContext):
    """components: (name, what it draws)."""

    components: Sequence[tuple[str, Sequence[DrawnExample]]]


@administrators_only
@require_safe
def show_kit(request: HttpRequest) -> HttpResponse:
    drawn = [(name, [*map(DrawnExample.of, sources)]) for name, sources in EXAMPLES.items()]
    context = KitContext(place="kit", revision=latest_revision(), components=drawn)
    return render_page(request, "kit/components.html", context)

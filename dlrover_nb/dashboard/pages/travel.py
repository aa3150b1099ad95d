"""Time travel through one run: the source of its moments, the scrubber, and the part that it replaces.

The scrubber is a form and links, each with its moment in the address: so it works without scripts.
``history.js`` then asks for the part of the moment alone. A moment is written as seconds since the start.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from dlrover_nb.core.client.past.comparison import end_s
from dlrover_nb.core.client.past.recorded_moment import happenings_of, moment_of
from dlrover_nb.core.errors import InvalidValueError, shown
from dlrover_nb.dashboard.pages.lists import link
from dlrover_nb.dashboard.pages.replays import REPLAYS, Reading
from dlrover_nb.widgets import theme, units
from dlrover_nb.widgets.blocks import escape
from dlrover_nb.widgets.past.moment import moment_view, moment_words

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dlrover_nb.core.client.past.history_queries import RunHistory
    from dlrover_nb.core.driver.past.time_travel import Replay
    from dlrover_nb.core.structs.views.moment import Happening, Moment

MOST_LINKS = 200
# How much before the moment the throughput is shown, in seconds; the first: all of it.
SPANS = {"": "all until then", "600": "10 minutes", "3600": "an hour", "21600": "6 hours", "86400": "a day"}
_BUTTON = (
    f"font:inherit;padding:6px 12px;min-height:36px;background:{theme.SURFACE};color:{theme.INK};"
    f"border:1px solid {theme.EDGE};border-radius:4px;cursor:pointer;display:inline-block;"
    "text-decoration:none;box-sizing:border-box;line-height:normal"
)


@dataclass(frozen=True, slots=True)
class Past:
    """What can be shown of a run's past.

    Parameters
    ----------
    replay
        Of its journal; None: the database alone is here.
    """

    history: RunHistory
    replay: Replay | None

    @property
    def start_s(self) -> float:
        """When the run was submitted."""
        return self.history.run.started_at_s

    @property
    def first_s(self) -> float:
        """The first moment that can be shown."""
        return self.start_s if self.replay is None else self.replay.first_s

    @property
    def last_s(self) -> float:
        """The last one."""
        return end_s(self.history) if self.replay is None else self.replay.last_s

    @property
    def happenings(self) -> tuple[Happening, ...]:
        """What happened, oldest first."""
        return happenings_of(self.history) if self.replay is None else self.replay.happenings

    def at(self, at_s: float) -> Moment:
        """Return the run at a moment, in seconds since 1970."""
        return moment_of(self.history, at_s) if self.replay is None else self.replay.at(at_s)

    def within(self, at_s: float) -> float:
        """Return a moment, or the nearest one that can be shown."""
        return min(max(at_s, self.first_s), self.last_s)


def past_of(history: RunHistory) -> Past | Reading:
    """Return the past of a run, or how far the reading of its journal is."""
    replay = REPLAYS.ask(history.run.job, history.run.run)
    return replay if isinstance(replay, Reading) else Past(history, replay)


def asked_moment(query: Mapping[str, str], past: Past) -> float:
    """Return the moment that an address names, in seconds since 1970; the last one where it names none.

    Raises
    ------
    InvalidValueError
        When it is no number of seconds.
    """
    text = query.get("at", "")
    if not text:
        return past.last_s
    try:
        since_s = float(text)
    except ValueError:
        since_s = float("nan")
    if not units.known(since_s):
        raise InvalidValueError(f"at must be seconds since the start, got {shown(text)}; leave it out")
    return past.within(past.start_s + since_s)


def asked_span_s(query: Mapping[str, str]) -> float | None:
    """Return how much before the moment an address asks for, in seconds; None for all.

    Raises
    ------
    InvalidValueError
        When it is none of those that there are.
    """
    text = query.get("span", "")
    if text not in SPANS:
        choices = ", ".join(filter(None, SPANS))
        raise InvalidValueError(f"span must be one of {choices} seconds, got {shown(text)}; leave it out")
    return float(text) if text else None


def part_html(past: Past, at_s: float, span_s: float | None = None) -> str:
    """Return the part of one moment; it holds the moment in words for those who do not see it change."""
    moment = past.at(at_s)
    before = [each for each in past.happenings if each.at_s <= at_s]
    words = moment_words(moment, past.start_s, before[-1] if before else None)
    view = moment_view(moment, past.start_s, past.history.run.job, span_s)
    return f'<div data-words="{escape(words)}" data-at="{_seconds(at_s - past.start_s)}">{view.html()}</div>'


def scrubber_html(
    past: Past, at_s: float, span_s: float | None = None, *, root: str, keep: Mapping[str, str]
) -> str:
    """Return the scrubber at a moment, with links to the moments where something happened."""
    run, start_s = past.history.run.run, past.start_s
    chosen = "" if span_s is None else f"{span_s:g}"
    spanned = {"span": chosen} if chosen else {}
    marks = past.happenings[-MOST_LINKS:]
    times = [each.at_s for each in marks]
    before = max((t for t in times if t < at_s), default=None)
    after = min((t for t in times if t > at_s), default=None)

    def href(moment_s: float) -> str:
        return (
            f"{root}/history?{urlencode({**keep, 'run': run, **spanned, 'at': _seconds(moment_s - start_s)})}"
        )

    hidden = "".join(
        f'<input type="hidden" name="{escape(name)}" value="{escape(value)}">'
        for name, value in {**keep, "run": run}.items()
    )
    options = "".join(f'<option value="{_seconds(t - start_s)}"></option>' for t in dict.fromkeys(times))
    chips = "".join(
        f'<li><a href="{escape(href(each.at_s))}" data-at="{_seconds(each.at_s - start_s)}">'
        f"{units.elapsed(each.at_s - start_s)}</a> <strong>{escape(each.kind)}</strong> "
        f"{escape(each.words)}</li>"
        for each in marks
    )
    left_out = len(past.happenings) - len(marks)
    note = f"<p>{left_out} earlier ones are not listed.</p>" if left_out else ""
    return (
        f'<form method="get" action="{escape(root)}/history" id="travel" '
        f'data-part="{escape(root)}/history/at">'
        f'{hidden}<label for="travel-at">Moment, from the start to the end of the run</label>'
        f'<input type="range" id="travel-at" name="at" min="{_seconds(past.first_s - start_s)}" '
        f'max="{_seconds(past.last_s - start_s)}" step="any" value="{_seconds(at_s - start_s)}" '
        f'list="travel-marks" aria-valuetext="{units.elapsed(at_s - start_s)} after the start" '
        f'style="width:100%;min-height:36px;margin:4px 0"><datalist id="travel-marks">{options}</datalist>'
        f"{_step('travel-before', 'Before', before, href)} {_step('travel-after', 'After', after, href)} "
        f"{_span_choice(chosen)} "
        f'<button style="{_BUTTON}">Show</button> '
        f'<output for="travel-at">{units.elapsed(at_s - start_s)}</output></form>'
        f"<details open><summary>Moments where something happened ({len(marks)})</summary>{note}"
        f'<ol id="travel-moments" tabindex="0" aria-label="Moments where something happened" '
        f'style="max-height:180px;overflow:auto;margin:4px 0;padding-left:20px">{chips}</ol></details>'
    )


def _span_choice(chosen: str) -> str:
    options = "".join(
        f'<option value="{value}"{" selected" if value == chosen else ""}>{words}</option>'
        for value, words in SPANS.items()
    )
    return (
        f'<label style="white-space:nowrap">Throughput of '
        f'<select id="travel-span" name="span" style="{_BUTTON}">{options}</select></label>'
    )


def _step(name: str, words: str, moment_s: float | None, href: object) -> str:
    """Return the link to the moment before or after; without one it is said, and leads nowhere."""
    assert callable(href)
    if moment_s is None:
        return f'<a id="{name}" role="link" aria-disabled="true" style="{_BUTTON}">{words}</a>'
    return f'<a id="{name}" href="{escape(href(moment_s))}" style="{_BUTTON}">{words}</a>'


def _seconds(since_s: float) -> str:
    return f"{since_s:.3f}"


def reading_html(reading: Reading, again: str) -> str:
    """Return that the journal is being read, with a link to look again."""
    return f"<p>{escape(reading.words)} {link(again, 'Load this page again')} for its moments.</p>"

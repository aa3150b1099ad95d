"""Colors that are seen in every theme, and that follow it."""

import re

from support.cases import for_each
from support.jobs import builders as b

from dlrover_nb.widgets import theme
from dlrover_nb.widgets.charts import CHARTS
from dlrover_nb.widgets.jobs.status import status_view
from dlrover_nb.widgets.past.html_report import report_html
from dlrover_nb.widgets.svg import palette
from dlrover_nb.widgets.svg.palette import CYCLE, INK, PALE

WHITE, NEAR_BLACK = "#ffffff", "#111111"  # of JupyterLab's two themes


def luminance(color):
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return sum(weight * p for weight, p in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one, other):
    """Return the contrast of two colors as WCAG defines it."""
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


@for_each("color", sorted({*CYCLE, INK, PALE}))
def test_a_color_of_marks_is_seen_on_white_and_on_near_black(color):
    assert contrast(color, WHITE) >= 3
    assert contrast(color, NEAR_BLACK) >= 3


def test_the_colors_of_a_palette_differ():
    assert len({*CYCLE}) == len(CYCLE)
    assert {
        value for value in vars(palette).values() if isinstance(value, str) and value.startswith("#")
    } >= {*CYCLE}


@for_each("name", sorted(CHARTS))
def test_a_drawing_has_no_paper_and_no_ink_of_its_own(name):
    svg = CHARTS[name].static(b.snapshot(), b.series()).svg
    assert f'fill="{theme.SVG_BG}"/>' in svg
    assert f'fill="{theme.SVG_INK}"' in svg
    assert not re.search(r'<rect [^>]*fill="#fff', svg)


def test_a_view_defines_each_variable_that_it_uses():
    html = status_view(b.snapshot(), b.series()).html()
    assert set(re.findall(r"var\((--dl-\w+)", html)) <= {*re.findall(r"(--dl-\w+):", html)}


def test_a_report_alone_follows_the_system():
    assert "prefers-color-scheme:dark" in report_html(b.snapshot(), b.series())
    assert "prefers-color-scheme" not in status_view(b.snapshot(), b.series()).html()

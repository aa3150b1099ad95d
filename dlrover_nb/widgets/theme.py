"""Colors and widths of every view, taken from the front end: JupyterLab's, VS Code's, else light.

A kernel cannot know whether its page is dark, and a saved notebook is opened under another theme than it was
written in. So no view has a color of its own: each names a CSS variable of `_COLORS`, whose value the page
computes from the variables of its front end, also when the theme is switched. A front end that defines none
shows a light card. Rejected: `prefers-color-scheme` in notebooks, since JupyterLab's theme is independent of
the system's; a report, which is a page of its own, follows it.

Lines, markers and areas of live figures are drawn on a canvas from plain colors. Those are in `palette`,
chosen to be seen on white and on near-black.
"""

from __future__ import annotations

# by name: JupyterLab's variable, VS Code's, the light color of any other page, the dark one of a report
_COLORS = {
    "bg": ("jp-layout-color0", "vscode-editor-background", "#ffffff", "#111111"),
    "ink": ("jp-content-font-color1", "vscode-editor-foreground", "#1a1a1a", "#f0f0f0"),
    "muted": ("jp-content-font-color2", "vscode-descriptionForeground", "#57606a", "#b3b3b3"),
    "edge": ("jp-border-color1", "vscode-panel-border", "#d0d7de", "#616161"),
    "grid": ("jp-border-color2", "vscode-editorIndentGuide-background1", "#e1e4e8", "#424242"),
    "surface": ("jp-layout-color2", "vscode-textCodeBlock-background", "#f0f2f4", "#2a2a2a"),
    "warn": ("jp-error-color1", "vscode-errorForeground", "#b34700", "#ff8a65"),
}


def color(name: str, *, alone: bool = False) -> str:
    """Return a color for use in CSS; `alone`: in a drawing that is also shown without a card around it."""
    return f"var(--dl-{name},{_COLORS[name][2]})" if alone else f"var(--dl-{name})"


BG, INK, MUTED, EDGE, GRID = map(color, ("bg", "ink", "muted", "edge", "grid"))
SURFACE, WARN = color("surface"), color("warn")
SVG_BG, SVG_INK, SVG_GRID = (color(name, alone=True) for name in ("bg", "ink", "grid"))
ATTENTION = "rgba(230,159,0,0.18)"  # over any background: a row that needs attention

VARIABLES = {
    f"--dl-{name}": f"var(--{lab},var(--{code},{light}))" for name, (lab, code, light, _) in _COLORS.items()
}
INLINE = ";".join(f"{name}:{value}" for name, value in VARIABLES.items())  # of a style attribute

REPORT_CSS = (
    ":root{color-scheme:light dark}body{background:#f6f8fa}"
    "@media (prefers-color-scheme:dark){body{background:#000}.dlrover-card{"
    + "".join(f"--dl-{name}:{dark}!important;" for name, (_, _, _, dark) in _COLORS.items())
    + "}}"
)

# A page of our own follows the system. It has no front end's variables, and so defines those of the first.
DARK_PAGE = (
    ":root{color-scheme:light dark}@media (prefers-color-scheme:dark){:root{"
    + "".join(f"--{lab}:{dark};" for lab, _, _, dark in _COLORS.values())
    + "}html,body{background:#111111}}"
)

# Two parts stand side by side where both have room for this, else below each other: one column below some
# 700 px of output. A media query would ask for the window, of which a sidebar takes a part.
ANY = {"min-width": "0"}  # Panel gives a layout the width of all that it holds in a row
PAGE = {
    "background": BG,
    "color": INK,
    "padding": "10px",
    "font-size": "13px",
    "overflow-x": "clip",  # empty elements of Bokeh's titles and tools reach over the edge
    **ANY,
}
HALF = {"min-width": "min(320px,100%)"}
WRAP = {"flex-wrap": "wrap", **ANY}

# What Bokeh draws on the canvas around the data: `--bk-` variables are inherited by all parts of a figure.
FIGURES = {
    **dict.fromkeys(("--bk-background-fill-color", "--bk-border-fill-color"), BG),
    **dict.fromkeys(
        (
            "--bk-text-color",  # the title
            "--bk-axis-label-text-color",
            "--bk-major-label-text-color",
            "--bk-label-text-color",  # the legend
            "--bk-axis-line-color",
            "--bk-major-tick-line-color",
        ),
        INK,
    ),
    **dict.fromkeys(
        ("--bk-grid-line-color", "--bk-outline-line-color", "--bk-minor-tick-line-color"),
        GRID,
    ),
}

# Panel's own style sheets read these, and else what they take for the theme.
PANEL = {
    "--design-background-color": BG,
    "--design-background-text-color": INK,
    "--design-surface-color": SURFACE,
    "--design-surface-text-color": INK,
}
# The title of a narrow figure: it has one line.
FIGURE = {**HALF, "container-type": "inline-size"}
TITLE = "@container (max-width:420px){:host{--bk-text-font-size:10px}}"
# A legend is built of elements, with the colors of the moment it was built, in one row however long. 70 px:
# the y axis, left of it.
LEGEND = (
    ":host{background:none!important;max-width:calc(100% - 70px)}"
    f".bk-item .bk-label{{color:{INK}!important;white-space:normal}}.bk-item{{min-width:0}}"
    ".bk-grid{display:flex;flex-wrap:wrap;width:auto;gap:0 12px!important}"
)

# Text as wide as its place: a wide table then gets a scroll bar of its own.
TEXT = ".bk-clearfix{display:block!important}"

# Bokeh sets its colors on each widget anew, so nothing of them can be inherited.
WIDGETS = (
    f":host{{--background-color:{BG};--color:{INK};--border-color:{EDGE};--disabled-background-color:{SURFACE};"
    f"--disabled-color:{MUTED};color:{INK}}}"
    f".bk-input,.bk-input[disabled]{{background-color:{BG};color:{INK};border-color:{EDGE};opacity:1}}"
    "select:not([multiple]).bk-input.bk-input{padding-right:24px;"  # its arrow, in the color of the text
    "background:linear-gradient(45deg,transparent 50%,currentColor 50%) right 13px center/5px 5px,"
    f"linear-gradient(-45deg,transparent 50%,currentColor 50%) right 8px center/5px 5px,{BG};"
    "background-repeat:no-repeat}"
    f".bk-input option{{background-color:{BG};color:{INK}}}"
    f".bk-btn.bk-btn-default{{background-color:{SURFACE};color:{INK};border:1px solid {EDGE}}}"
    ".bk-btn.bk-btn-primary{background-color:#0072B2;color:#fff}"
    ".bk-btn.bk-btn-success{background-color:#00734f;color:#fff}"
    ".bk-btn:disabled,.bk-btn.bk-disabled{opacity:0.55}"
)

# What screen readers alone get.
UNSEEN = "position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%);white-space:nowrap"

# A row of buttons as heads of pages: the chosen one is bold and underlined.
TABS = (
    f".bk-btn-group{{flex-wrap:wrap;border-bottom:1px solid {EDGE};gap:0 6px}}"
    ".bk-btn-group .bk-btn.bk-btn-default{background:none;border:0;border-bottom:3px solid transparent;"
    "border-radius:0;box-shadow:none;padding:6px 8px;flex-grow:0}"
    f".bk-btn-group .bk-btn.bk-btn-default.bk-active{{font-weight:700;border-bottom-color:{INK}}}"
    # The place of a page that is on its way: some lines without words.
    ":host(.dlrover-opens)::after{content:'';display:block;height:220px;margin:12px 0;opacity:.6;"
    f"background:repeating-linear-gradient({EDGE} 0 14px,transparent 14px 34px)}}"
    "@media (prefers-reduced-motion:no-preference){:host(.dlrover-opens)::after{"
    "animation:dlrover-opens 1.2s ease-in-out infinite alternate}}"
    "@keyframes dlrover-opens{from{opacity:.3}to{opacity:.7}}"
)

# Canvases are not painted by CSS: when the text color has changed, all figures of the page are drawn again.
# The transition notices every cause, a switched theme or a changed setting of the system.
REPAINT = (
    f'<i aria-hidden="true" style="color:{INK};transition:color 1ms" ontransitionend="'
    "for(const d of Bokeh.documents)for(const m of d._all_models.values())"
    "if(m.type==='Figure')m.change.emit()\"></i>"
)

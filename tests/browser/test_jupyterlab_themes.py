"""The live view and the saved one in JupyterLab's two themes: loaded in either, and switched by the menu."""

import json
from pathlib import Path

import pytest
from support.browser.chromium import broken_rules, picture
from support.browser.lab_notebook import Live, Notebook
from support.browser.looks import cut_off, is_on, is_painted, legends
from support.waiting import LIMIT_S, until

pytestmark = [
    pytest.mark.browser,
    pytest.mark.filterwarnings("default"),  # playwright's event loop warns of itself
]

CELLS = {
    "load": "%load_ext dlrover_nb",
    "connect": "%dlrover connect sim --machines 4 --speed 60",
    "submit": """%%dlrover submit ads
epochs: 100000
plan:
  worker: {count: 2, cpu: 1, memory_mib: 2048}
  ps: {count: 1, cpu: 1, memory_mib: 2048}""",
    "watch": "%dlrover watch ads",
}
OTHER = {"light": "dark", "dark": "light"}


@pytest.mark.release
@pytest.mark.parametrize("loaded", ["dark", "light"])
def test_both_views_follow_the_theme_as_loaded_and_as_switched(page, axe, lab, loaded):
    set_theme(lab, loaded)
    notebook = Notebook(page, lab, CELLS)
    assert notebook.theme() == loaded
    for name in ("load", "connect", "submit", "watch"):
        notebook.run(name)
    live = Live(notebook, "watch")
    live.output.wait_for(timeout=LIMIT_S * 1000)
    live.says("p1 (")
    live.accepts("p1").wait_for()
    is_live(page, axe, live, loaded)
    for theme in (OTHER[loaded], loaded, OTHER[loaded]):
        notebook.switch_theme(theme)
        is_live(page, axe, live, theme)

    kept = notebook.cell("watch").locator(".dlrover-static")
    until(lambda: "p1" in kept.text_content(), "the proposal in the copy that is saved")
    notebook.save()
    notebook.reload()
    assert notebook.theme() == OTHER[loaded]
    for theme in (OTHER[loaded], loaded):
        if theme != notebook.theme():
            notebook.switch_theme(theme)
        is_kept(page, axe, kept, theme)


def set_theme(lab, name):
    """Choose the theme as a person's settings keep it."""
    folder = Path(lab.environment["JUPYTER_CONFIG_DIR"], "lab/user-settings/@jupyterlab/apputils-extension")
    folder.mkdir(parents=True)
    (folder / "themes.jupyterlab-settings").write_text(json.dumps({"theme": f"JupyterLab {name.title()}"}))


def is_live(page, axe, live, theme):
    until(lambda: is_painted(live.output, theme), f"live figures in the {theme} theme")
    until(
        lambda: legends(live.output)[0] and not legends(live.output)[1], "samples of all entries of legends"
    )
    until(lambda: not cut_off(live.output), lambda: f"a whole view, where {cut_off(live.output)} is cut off,")
    picture(page, f"lab-live-{theme}")
    assert broken_rules(page, axe, ".dlrover-live-on") == []


def is_kept(page, axe, kept, theme):
    kept.locator("svg").first.wait_for()
    until(lambda: is_on(kept, theme), f"the saved view in the {theme} theme")
    assert not cut_off(kept)
    kept.scroll_into_view_if_needed()
    picture(page, f"lab-saved-{theme}")
    assert broken_rules(page, axe, ".dlrover-static") == []

"""What JupyterLab asks is answered, by the text that a person sees on its buttons."""

import pytest
from support.browser.lab_notebook import Notebook
from support.waiting import until

pytestmark = [
    pytest.mark.browser,
    pytest.mark.filterwarnings("default"),  # playwright's event loop warns of itself
]


@pytest.mark.release  # of the helper alone, and each notebook of the other tests uses it
def test_the_question_for_a_kernel_is_answered_and_the_next_cell_runs(new_page, lab):
    notebook = Notebook(new_page(), lab, {"one": "1 + 1", "two": "'the answer is', 6 * 7"})
    page = notebook.page
    page.get_by_role("menuitem", name="Kernel", exact=True).click()
    page.locator(".lm-Menu-itemLabel").get_by_text("Change Kernel…", exact=True).click()
    asked = page.locator(".jp-Dialog")
    until(lambda: asked.filter(has_text="Select Kernel").count(), what="the question")
    notebook.run("two")
    assert asked.count() == 0
    notebook.shows("two", "42")

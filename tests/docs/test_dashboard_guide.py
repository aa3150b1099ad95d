"""The guide of the dashboard and its reference say what the code does: tables, settings, signature, pages."""

import importlib.util
import json
import re
import time
from pathlib import Path

import pytest
import yaml

from dlrover_nb.core.commands.table import COMMANDS
from dlrover_nb.dashboard.alerts.senders import SIGNATURE, signature
from dlrover_nb.dashboard.api_v1.handler import PER_PERSON
from dlrover_nb.dashboard.pages import PAGES
from dlrover_nb.dashboard.settings import ServeSettings, read_settings
from dlrover_nb.dashboard.sign_in.by_password import N_FREE
from dlrover_nb.dashboard.sign_in.oidc import read_oidc

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs/how-to/dashboard.md").read_text()
SETTINGS = re.findall(r"^```yaml\n(clusters:.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)


def tool(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def made():
    return tool("make_serve_tables").files()


def test_the_page_of_verbs_has_both_forms_of_those_that_differ():
    verbs = dict(part.split("\n", 1) for part in tool("docs_reference").verbs_page().split("\n## ")[1:])
    assert {verb for verb, text in verbs.items() if "In a notebook:" in text} == {"connect", "server"}
    assert "usage: %dlrover server" in verbs["server"]
    assert "  dlrover-nb server tokens" in verbs["server"]
    assert "| `stop` | `end --now` |" in verbs["Old names"]


@pytest.mark.parametrize("path", ["docs/how-to/dashboard.md", "docs/reference/serve.md"])
def test_tables_say_what_the_code_says(made, path):
    assert (ROOT / path).read_text() == made[path], "run python tools/make_serve_tables.py"


def test_every_action_and_every_key_has_a_row(made):
    for action, of_any, own in ((row.action, row.of_others, row.of_own) for row in COMMANDS):
        assert f"\n| {action} | {of_any} | {own} |\n" in made["docs/how-to/dashboard.md"]
    for key in ServeSettings.__dataclass_fields__:
        assert f"\n| `{key}` | " in made["docs/reference/serve.md"]


@pytest.mark.parametrize("text", SETTINGS, ids=lambda text: text.split("\n")[1])
def test_the_settings_of_the_guide_are_read(text, tmp_path):
    file = tmp_path / "serve.yaml"
    file.write_text(text)
    settings = read_settings(str(file), {})
    assert all(getattr(settings, key) for key in yaml.safe_load(text))


def test_the_provider_of_the_guide_is_read(tmp_path):
    [text] = re.findall(r"^```yaml\n(issuer:.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)
    told = yaml.safe_load(text)
    (tmp_path / "secret").write_text("of the client\n")
    told["client_secret_file"] = str(tmp_path / "secret")
    (tmp_path / "oidc.yaml").write_text(yaml.safe_dump(told))
    settings, secret = read_oidc(str(tmp_path / "oidc.yaml"))
    assert secret == "of the client"
    assert {key: getattr(settings, key) for key in told} == told | {"scopes": tuple(told["scopes"])}


def test_the_check_of_a_webhook_takes_ours_and_no_other():
    [code] = re.findall(r"^```python\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)
    space = {}
    exec(code, space)
    body, now_s = json.dumps({"id": "a1"}).encode(), time.time()
    header = signature("key", now_s, body)
    assert space["is_genuine"]("key", header, body)
    assert not space["is_genuine"]("another key", header, body)
    assert not space["is_genuine"]("key", header, body + b" ")
    assert not space["is_genuine"]("key", signature("key", now_s - 3600, body), body), "played again"
    assert SIGNATURE in GUIDE


def test_the_guide_names_every_page_of_the_navigation():
    told = " ".join(re.findall(r"^\| ([A-Z][\w, ]+) \|", GUIDE, re.MULTILINE))
    for page in (each for each in PAGES if each.is_listed):
        assert page.title in told


def test_the_numbers_of_the_guide_are_those_of_the_code():
    text = " ".join(GUIDE.split())
    assert f"{PER_PERSON.per_s:g} times a second" in text
    assert f"After {['no', 'one', 'two', 'three', 'four', 'five'][N_FREE]} wrong tries" in text

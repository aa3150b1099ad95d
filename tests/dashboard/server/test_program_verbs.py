"""The verbs `tokens` and `mcp` of the command line."""

from __future__ import annotations

import asyncio
import json
import os
import sys

import pytest
from mcp import Client, StdioServerParameters
from support.cases import for_each

from dlrover_nb import cli
from dlrover_nb.core.clock import SystemClock
from dlrover_nb.core.disk.paths import HISTORY_VAR
from dlrover_nb.core.history.stores.credentials import CredentialStore
from dlrover_nb.core.structs.decisions.people import AccessRole, Grant, Person
from dlrover_nb.dashboard.api_v1.tokens import Tokens


@pytest.fixture
def url(tmp_path, monkeypatch):
    address = f"sqlite:///{tmp_path / 'history.db'}"
    monkeypatch.setenv(HISTORY_VAR, address)
    return address


def said(capsys, *words):
    code = cli.main(words)
    told = capsys.readouterr()
    return code, told.out, told.err


def test_a_token_is_made_listed_without_its_secret_and_ended(url, capsys):
    code, out, _ = said(capsys, "tokens", "add", "ada", "--role", "operator", "--namespace", "ads", "--json")
    assert code == 0
    secret = json.loads(out)["text"]
    store = CredentialStore(url)
    ada = Person("ada", grants=(Grant(AccessRole.ADMIN),))
    found = Tokens(store, SystemClock().now_s).person(secret, lambda _: ada)
    assert (found.role_in("ads"), found.role_in("search")) == (AccessRole.OPERATOR, None)
    _, listed, _ = said(capsys, "tokens", "list")
    assert "ada" in listed
    assert "operator" in listed
    assert secret not in listed
    (row,) = json.loads(said(capsys, "tokens", "list", "--json")[1])
    assert said(capsys, "tokens", "remove", row["id"][:12])[0] == 0
    assert Tokens(store, SystemClock().now_s).person(secret, lambda _: ada) is None
    store.close()


def test_a_secret_is_printed_whole(url, capsys):
    _, out, _ = said(capsys, "tokens", "add", "ada")
    (word,) = [word for word in out.split() if word.startswith("dlnb_")]
    assert len(word) > 40


@for_each(
    ("words", "told"),
    [
        (("add",), "name of a person"),
        (("remove",), "id of a token"),
        (("remove", "zzz"), "no token has"),
        (("add", "ada", "--days", "0"), "days of a token"),
        (("add", "ada", "--role", "root"), "role"),
        (("renew", "ada"), "action"),
    ],
)
def test_a_mistake_is_named_and_makes_nothing(url, capsys, words, told):
    code, _, err = said(capsys, "tokens", *words)
    assert code == cli.ExitCode.MISTAKE
    assert told in err
    assert json.loads(said(capsys, "tokens", "list", "--json")[1]) == []


@pytest.mark.more
def test_an_agent_is_served_without_a_cluster_and_told_that_none_runs(url):
    program = StdioServerParameters(
        command=sys.executable, args=["-m", "dlrover_nb.cli", "mcp", "--cluster", "kubernetes://nowhere/ads"],
        env={**os.environ, "KUBECONFIG": os.devnull},
    )  # fmt: skip

    async def ask():
        async with Client(program) as client:
            return (await client.list_tools()).tools, await client.call_tool("list_jobs", {})

    listed, answer = asyncio.run(ask())
    assert "propose_scale" in {tool.name for tool in listed}
    assert answer.is_error
    assert answer.content[0].text

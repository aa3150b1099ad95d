"""What is offered after the words typed so far, through IPython's own completer too."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cases import for_each

from dlrover_nb.magics.arguments import GRAMMAR
from dlrover_nb.magics.completion import complete
from dlrover_nb.magics.session import Names, Session
from dlrover_nb.magics.shell import loaded

if TYPE_CHECKING:
    from pathlib import Path

    from IPython.core.interactiveshell import InteractiveShell

SESSION = Session(
    jobs={"ctr-daily": True, "quick": False},
    names={
        "ctr-daily": Names(
            proposals=("p3", "p4"),
            nodes=("worker-0", "ps-0"),
            decisions=("d1",),
            mitigations=("m1",),
            ps=("ps-0",),
        ),
        "quick": Names(proposals=("p1",), set_aside=("7", "12")),
    },
    runs={"quick": ("quick@10.000",)},
)


def offered(text: str) -> tuple[str, ...]:
    lines = text.split("\n")
    return complete(SESSION, text, len(lines) - 1, len(lines[-1]))[1]


@for_each(
    ("text", "expected"),
    [
        ("%dlrover st", ("status", "stragglers", "staleness", "stop")),
        ("%dlrover ", (*GRAMMAR.words, "help")),
        ("%dlrover s", ("submit", "show", "server")),
        (
            "%dlrover show --",
            tuple(flag for form in GRAMMAR.words["show"][1:] for flag in form.form.by),
        ),
        ("%dlrover show --logs ctr-daily --", ("--lines",)),
        ("%dlrover show --logs ctr-daily w", ("worker-0",)),
        ("%dlrover show ctr-daily --wait --for ", ("end", "proposal", "mitigation", "outcome")),
        ("%dlrover show --live --logs ", ()),
        ("%dlrover apply ctr-daily ", ("p3", "p4", "m1")),
        ("%dlrover apply ctr-daily --r", ("--restart", "--rates", "--retry-shard")),
        ("%dlrover apply ctr-daily --move ", ("ps-0",)),
        ("%dlrover apply ctr-daily --workers 3 --worker-", ("--worker-cpu", "--worker-memory")),
        ("%dlrover apply quick --skip-shard 1", ("12",)),
        ("%dlrover plan --why ctr-daily ", ("p3", "p4")),
        ("%dlrover plan ctr-daily --", ("--why", "--if", "--goal")),
        ("%dlrover end ctr-daily --", ("--why", "--now", "--delete")),
        ("%dlrover server t", ()),
        ("%%dlrover sub", ("submit",)),
        ("j = %dlrover att", ("attach",)),
        ("%dlrover status ", ("ctr-daily", "quick")),
        ("%dlrover status q", ("quick",)),
        ("%dlrover accept ctr-daily p", ("p3", "p4")),
        ("%dlrover accept p", ("p3", "p4", "p1")),
        ("%dlrover accept ctr-daily m", ("m1",)),
        ("%dlrover reject ctr-daily ", ("p3", "p4", "m1")),
        ("%dlrover why ctr-daily ", ("p3", "p4")),
        ("%dlrover mi", ("mitigate",)),
        ("%dlrover mitigate ctr-daily --restart ", ("worker-0", "ps-0")),
        ("%dlrover mitigate ctr-daily --move ", ("ps-0",)),
        ("%dlrover mitigate --r", ("--restart", "--rates")),
        ("%dlrover why quick ", ("p1",)),
        ("%dlrover history --run q", ("quick@10.000",)),
        ("%dlrover submit --set plan.w", ("plan.worker.",)),
        ("%dlrover submit --set plan.worker.c", ("plan.worker.count=", "plan.worker.cpu=")),
        ("%dlrover wait --for ", ("end", "proposal", "mitigation", "outcome")),
        ("%dlrover submit --overlap ", ("yes", "no")),
        ("%dlrover scale --worker-", ("--worker-cpu", "--worker-memory")),
        ("%dlrover scale --worker-cpu 1 --worker-", ("--worker-memory",)),
        ("%dlrover submit x --mode s", ("suggest",)),
        ("%dlrover mode a", ("auto",)),
        ("%dlrover export --plan ", ("current", "p3", "p4", "p1")),
        ("%dlrover connect r", ("ray",)),
        ("%dlrover shards quick --", ("--retry", "--skip", "--why")),
        ("%dlrover shards quick --skip 1", ("12",)),
        ("%dlrover help stat", ("status",)),
        ("%dlrover nope ", ()),
        ("%dlroverx st", ()),
        ("print('%dlrover st", ()),
        ("%%dlrover submit\nep", ("epochs: ",)),
        ("%%dlrover submit\nname: x\nna", ()),
        ("%%dlrover submit x\nplan:\n  worker:\n    c", ("count: ", "cpu: ")),
        ("%%dlrover submit x\nplan:\n  worker:\n    count: 1\n  p", ("ps: ",)),
        ("%%dlrover submit x\nplan:\n  worker:\n    count: 1\n  ps:\n    c", ("count: ", "cpu: ")),
        ("%%dlrover submit x\nmode: s", ("suggest",)),
        ("%%dlrover submit x\nmodel:\n  optimizer: ada", ("adagrad", "adam")),
        ("%%dlrover submit x\nearly_stopping:\n  metric: ", ("auc", "log_loss", "loss")),
        ("%%dlrover submit x\nbatch_size: ", ()),
        ("%%dlrover submit x\nplan: {wor", ("worker: ",)),
        ("%%dlrover submit x\nplan: {worker: {count: 1, c", ("cpu: ",)),
        ("%%dlrover submit x\nplan: {worker: {count: 1}, ", ("ps: ",)),
        ("%%dlrover submit x\nplan:\n  worker: {count: 1, c", ("cpu: ",)),
        ("%%dlrover submit x\nplan: {\n  worker: {count: 1},\n  p", ("ps: ",)),
        ("%%dlrover submit x\nmodel: {optimizer: ada", ("adagrad", "adam")),
        ("%%dlrover submit x\nmodel: {name: wide_deep, optimizer: ada", ("adagrad", "adam")),
        ("%%dlrover submit x\n{name: x, mo", ("model: ", "mode: ")),
        ("%%dlrover submit x\n{name: x, mode: s", ("suggest",)),
        ("%%dlrover submit x\ndata: {path: 'a, {b', lab", ("label: ",)),
        ("%%dlrover submit x\ndata: {path: a.csv, # {\n  lab", ("label: ",)),
        ("%%dlrover submit x\ndata: {path: s3://a, lab", ("label: ",)),
        ("%%dlrover submit x\ndata: {path: 'lab", ()),
        ("%%dlrover submit x\ndata: {exclude: [a, lab", ()),
        ("%%dlrover submit x\ndata: {exclude: [a], lab", ("label: ",)),
        ("%%dlrover submit x\ndata: {path: a.csv}\nepo", ("epochs: ",)),
        ("%%dlrover submit x\nmodel: {optimizer:ada", ()),
        ("%dlrover submit x --optimizer ada", ("adagrad", "adam")),
        ("%dlrover submit x --model x", ("xdeepfm",)),
        ("%dlrover submit x --sync ", ("asp", "bsp", "ssp", "gba", "allreduce")),
        ("%%time\nep", ()),
        ("%%dlrover submit x\nimport torch\nna", ()),
        ("%%dlrover submit x\n# my job\nna", ("name: ",)),
        ("%dlrover undo ctr-daily ", ("d1",)),
        ("%dlrover logs ctr-daily w", ("worker-0",)),
        ("%dlrover export --kind e", ("elasticjob", "elasticjob-0")),
        ("%dlrover export --kind t", ("tfjob", "trainjob")),
        ("%dlrover whatif --ps-", ("--ps-cpu", "--ps-memory")),
        ("%dlrover da", ("dash",)),
        ("%dlrover import --", ("--check", "--submit", "--apply")),
    ],
)
def test_candidates_fit_what_was_typed(text: str, expected: tuple[str, ...]) -> None:
    assert offered(text) == expected


@for_each(
    ("text", "expected"),
    [
        ("%dlrover import j", ("job.yaml", "jobs/")),
        ("%dlrover submit --file jobs/", ("jobs/ctr.yaml",)),
        ("%dlrover submit jobs/", ("jobs/ctr.yaml",)),
        ("%dlrover export ctr-daily -o jo", ("job.yaml", "jobs/")),
        ("%dlrover import .h", (".hidden.yaml",)),
        ("%dlrover import ", ("job.yaml", "jobs/")),
        ("%dlrover import nowhere/", ()),
    ],
)
def test_files_are_offered_as_in_a_shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, expected: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "jobs").mkdir(exist_ok=True)
    for name in ("job.yaml", "jobs/ctr.yaml", ".hidden.yaml", "with blank.yaml"):
        (tmp_path / name).touch()
    assert offered(text) == expected


@settings(deadline=None, max_examples=150)
@given(st.text(max_size=30), st.sampled_from(["%dlrover ", "%%dlrover submit\n", ""]))
def test_every_candidate_continues_the_fragment_it_replaces(text: str, start: str) -> None:
    full = start + text
    lines = full.split("\n")
    fragment, found = complete(SESSION, full, len(lines) - 1, len(lines[-1]))
    assert lines[-1].endswith(fragment)
    assert all(candidate.startswith(fragment) for candidate in found)


def test_contexts_and_namespaces_are_those_of_the_kubeconfig_as_it_is_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "kubeconfig"
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path / 'none'}:{file}")
    assert offered("%dlrover connect kubernetes --context ") == ()
    file.write_text(
        "contexts: [{name: staging, context: {namespace: ml}}, {name: prod, context: {namespace: ml}}, {name: x}]"
    )
    assert offered("%dlrover connect kubernetes --context ") == ("staging", "prod", "x")
    assert offered("%dlrover connect k8s --namespace m") == ("ml",)
    for broken in ("contexts: [", "contexts: 3", "[]", "contexts: [{}]", ""):
        file.write_text(broken)
        assert offered("%dlrover connect kubernetes --context ") == ()


@pytest.mark.more
@pytest.mark.filterwarnings("ignore::IPython.core.completer.ProvisionalCompleterWarning")
def test_ipython_offers_them(shell: InteractiveShell) -> None:
    magics = loaded(shell)
    assert magics is not None
    magics.commands.session = SESSION
    assert _texts(shell, "%dlrover stat") == {"status"}
    assert _texts(shell, "%dlrover status ctr-d") == {"ctr-daily"}
    assert _texts(shell, "%dlrover scale --worker-c") == {"--worker-cpu"}
    assert "status" not in _texts(shell, "sta")


def _texts(shell: InteractiveShell, line: str) -> set[str]:
    """Return the lines that the completions make of `line`, without its beginning."""
    made = {line[: c.start] + c.text for c in shell.Completer.completions(line, len(line))}
    return {text.rsplit(" ", 1)[-1] for text in made}

"""One parser: words to calls of verbs, mistakes to one line with the way out."""

from __future__ import annotations

import argparse
import inspect
import re
import shlex

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cases import for_each

from dlrover_nb import cli
from dlrover_nb.api.cluster import Cluster
from dlrover_nb.core.backends.simulated.assumptions import N_MACHINE, SPEED
from dlrover_nb.core.commands.node_actions import WORDS
from dlrover_nb.core.commands.requests import SIZES
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.jobfile import known_keys
from dlrover_nb.core.structs.data.features import SequenceSpec
from dlrover_nb.core.structs.job.early_stopping import EarlyStopping, Metric
from dlrover_nb.core.structs.job.job import JobSpec, ModelSpec
from dlrover_nb.core.structs.job.spec_choices import Device, Migration, Optimizer, Sync
from dlrover_nb.core.structs.plan.bounds import Pins
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan
from dlrover_nb.magics.arguments import GRAMMAR, Grammar
from dlrover_nb.magics.submission import spec_of
from dlrover_nb.magics.verb import Call
from dlrover_nb.magics.verbs import VERBS
from dlrover_nb.magics.verbs.start import SUBMIT_FLAGS

GRAMMARS = (GRAMMAR, cli.GRAMMAR)
PLAN = ResourcePlan(worker=RolePlan(1, 0.5, 1024), ps=RolePlan(1, 0.25, 512))
CONNECT = {"kind": "ray"} | dict.fromkeys(("address", "cpus", "machines", "speed", "context", "namespace"))
EXPORT = {
    "job": None,
    "kind": "elasticjob",
    "plan": "current",
    "output": None,
    "force": False,
    "auto_scale": False,
    "check": False,
    "image": None,
    "namespace": None,
    "with_secrets": False,
}
IMPORT = {"file": "a.yaml", "check": False, "submit": False, "apply": False}
SHARDS = {"job": None, "retry": None, "skip": None, "why": ""}
SUBMIT = {"file": None, "settings": (), "wait": False}


def answer(job: str | None, proposal: str | None, why: str = "") -> dict[str, object]:
    return {"job": job, "proposal": proposal, "why": why}


def sizes(**given):
    return dict.fromkeys(SIZES) | given


def action(given):
    return dict.fromkeys(WORDS) | given


@for_each(
    ("line", "verb", "values"),
    [
        ("", "help", {"verb": None}),
        ("--help", "help", {"verb": None}),
        ("help mode", "help", {"verb": "mode"}),
        ("mode -h", "help", {"verb": "mode"}),
        ("connect", "connect", CONNECT),
        (
            "connect ray 10.0.0.1:6379 --cpus 2",
            "connect",
            CONNECT | {"address": "10.0.0.1:6379", "cpus": 2.0},
        ),
        (
            "connect sim --machines 1000 --speed 60",
            "connect",
            CONNECT | {"kind": "sim", "machines": 1000, "speed": 60.0},
        ),
        ("connect k8s --namespace ml", "connect", CONNECT | {"kind": "k8s", "namespace": "ml"}),
        (
            "pin ads --worker-memory 24576",
            "pin",
            {"job": "ads", "clear": False, "why": ""} | sizes(worker_memory_mib=24576),
        ),
        ("pin --clear", "pin", {"job": None, "clear": True, "why": ""} | sizes()),
        ("jobs;", "jobs", {}),
        ("cluster", "cluster", {"hours": 24.0, "record": False}),
        ("cluster --hours 6 --record", "cluster", {"hours": 6.0, "record": True}),
        ("status", "status", {"job": None}),
        ("status ctr ;", "status", {"job": "ctr"}),
        ("watch ctr", "watch", {"job": "ctr"}),
        ("plans", "plans", {"job": None}),
        ('plan ctr --goal "done by 18:00"', "plan", {"job": "ctr", "goal": ["done by 18:00"]}),
        ("accept", "accept", answer(None, None)),
        ("accept ctr", "accept", answer("ctr", None)),
        ("accept p12", "accept", answer(None, "p12")),
        ("accept ctr p2 --why 'it is faster; try'", "accept", answer("ctr", "p2", "it is faster; try")),
        ("accept --why x ctr p2", "accept", answer("ctr", "p2", "x")),
        ("accept ctr --why x p2", "accept", answer("ctr", "p2", "x")),
        ("reject p2", "reject", answer(None, "p2")),
        ("override ctr --ps 2", "override", answer("ctr", None) | sizes(ps=2)),
        ("override p1 --worker-cpu=0.5", "override", answer(None, "p1") | sizes(worker_cpu=0.5)),
        (
            "scale --workers 3 --ps-memory 900",
            "scale",
            {"job": None, "why": ""} | sizes(workers=3, ps_memory_mib=900),
        ),
        ("mode auto", "mode", {"job": None, "mode": "auto", "why": ""}),
        ("mode ctr manual", "mode", {"job": "ctr", "mode": "manual", "why": ""}),
        ("export", "export", EXPORT),
        (
            "export ctr --plan p1 -o a.yaml --force --image r/i:1 --namespace ads",
            "export",
            EXPORT
            | {
                "job": "ctr",
                "plan": "p1",
                "output": "a.yaml",
                "force": True,
                "image": "r/i:1",
                "namespace": "ads",
            },
        ),
        (
            "export --kind scaleplan --auto-scale --check",
            "export",
            EXPORT | {"kind": "scaleplan", "auto_scale": True, "check": True},
        ),
        ("import a.yaml", "import", IMPORT),
        ("import a.yaml --apply", "import", IMPORT | {"apply": True}),
        ("why", "why", {"job": None, "proposal": None, "question": None}),
        ("why p1", "why", {"job": None, "proposal": "p1", "question": None}),
        ("why p1 --question 6", "why", {"job": None, "proposal": "p1", "question": "6"}),
        ("why ads --question why-not", "why", {"job": "ads", "proposal": None, "question": "why-not"}),
        ("whatif ctr --ps 2", "whatif", {"job": "ctr"} | sizes(ps=2)),
        ("undo", "undo", {"job": None, "decision": None, "why": ""} | {"cancels": False}),
        (
            "undo ctr d2 --why slow",
            "undo",
            {"job": "ctr", "decision": "d2", "why": "slow"} | {"cancels": False},
        ),
        ("undo d2", "undo", {"job": None, "decision": "d2", "why": ""} | {"cancels": False}),
        ("mitigate", "mitigate", {"job": None, "why": ""} | action({})),
        (
            "mitigate ctr --restart worker-1 --why slow",
            "mitigate",
            {"job": "ctr", "why": "slow"} | action({"restart": "worker-1"}),
        ),
        ("mitigate --move ps-0", "mitigate", {"job": None, "why": ""} | action({"move": "ps-0"})),
        (
            "mitigate --batches worker-0=256,worker-1=128",
            "mitigate",
            {"job": None, "why": ""} | action({"batches": {"worker-0": 256, "worker-1": 128}}),
        ),
        (
            "mitigate --batches worker-0=256,worker-1=128 --accumulate worker-0=2",
            "mitigate",
            {"job": None, "why": ""}
            | action({"batches": {"worker-0": 256, "worker-1": 128}, "accumulate": {"worker-0": 2}}),
        ),
        ("mitigate --backup 0", "mitigate", {"job": None, "why": ""} | action({"backup": 0})),
        (
            "mitigate --rates worker-0=0.5",
            "mitigate",
            {"job": None, "why": ""} | action({"rates": {"worker-0": 0.5}}),
        ),
        (
            "mitigate --cores ps-0=2",
            "mitigate",
            {"job": None, "why": ""} | action({"cores": {"ps-0": 2.0}}),
        ),
        (
            "mitigate ctr --memory worker-1=4096",
            "mitigate",
            {"job": "ctr", "why": ""} | action({"memory": {"worker-1": 4096}}),
        ),
        ("accept m1", "accept", {"job": None, "proposal": "m1", "why": ""}),
        ("reject ctr m2", "reject", {"job": "ctr", "proposal": "m2", "why": ""}),
        ("stragglers", "stragglers", {"job": None, "solution": None}),
        ("stragglers ctr --solution lb-bsp", "stragglers", {"job": "ctr", "solution": "lb-bsp"}),
        ("logs", "logs", {"job": None, "node": None, "lines": 100}),
        ("logs ps-1 -n 5", "logs", {"job": None, "node": "ps-1", "lines": 5}),
        ("logs ctr worker-0", "logs", {"job": "ctr", "node": "worker-0", "lines": 100}),
        ("history", "history", {"job": None, "run": None}),
        ("history ctr@1750000000.000", "history", {"job": None, "run": "ctr@1750000000.000"}),
        ("score --owner ada --days 7", "score", {"job": None, "owner": "ada", "days": 7.0}),
        ("score ctr", "score", {"job": "ctr", "owner": None, "days": None}),
        ("attach ctr", "attach", {"job": "ctr"}),
        ("wait --timeout 1.5", "wait", {"job": None, "timeout": 1.5, "until": "end"}),
        ("wait ctr --for proposal", "wait", {"job": "ctr", "timeout": None, "until": "proposal"}),
        ("stop ctr --why done", "stop", {"job": "ctr", "why": "done"}),
        ("finish ctr --why done", "finish", {"job": "ctr", "why": "done"}),
        ("delete ctr --force", "delete", {"job": "ctr", "force": True}),
        ("shards", "shards", SHARDS),
        ("shards ctr --skip 7 --why bad", "shards", SHARDS | {"job": "ctr", "skip": 7, "why": "bad"}),
        ("shards --retry 0", "shards", SHARDS | {"retry": 0}),
        ("report -o r.html", "report", {"job": None, "output": "r.html", "force": False}),
        (
            "predict ctr a.csv -o b.csv",
            "predict",
            {"job": "ctr", "rows": "a.csv", "output": "b.csv", "force": False},
        ),
        ("dash", "dash", {"job": None}),
        ("dash ctr", "dash", {"job": "ctr"}),
        ("shutdown --force", "shutdown", {"force": True}),
        ("submit", "submit", SUBMIT),
        ("submit ads --warm-start", "submit", SUBMIT | {"settings": (("name", "ads"), ("warm_start", True))}),
        (
            "submit ads --from daily --from-rows",
            "submit",
            SUBMIT
            | {
                "settings": (("name", "ads"), ("start_from.source", "daily"), ("start_from.rows", True)),
            },
        ),
        ("submit --file j.yaml --wait", "submit", SUBMIT | {"file": "j.yaml", "wait": True}),
        ("submit jobs/j.yml --wait", "submit", SUBMIT | {"file": "jobs/j.yml", "wait": True}),
        ("submit -", "submit", SUBMIT | {"file": "-"}),
        (
            "submit ctr --file j.yaml --ps 2 --numeric age,price",
            "submit",
            SUBMIT
            | {
                "file": "j.yaml",
                "settings": (("name", "ctr"), ("data.numeric", ["age", "price"]), ("plan.ps.count", 2)),
            },
        ),
        ("submit --set model.hidden=[64,32]", "submit", SUBMIT | {"settings": (("model.hidden", [64, 32]),)}),
    ],
)
def test_a_line_becomes_the_call_of_a_verb(line: str, verb: str, values: dict[str, object]) -> None:
    call = GRAMMAR.parse_line(line)
    assert (call.verb.name, call.values) == (verb, values)


@for_each(("grammar", "name"), [(g, name) for g in GRAMMARS for name in g.verbs])
def test_the_handler_of_a_verb_takes_what_its_parser_gives(grammar: Grammar, name: str) -> None:
    verb = grammar.verbs[name]
    call = grammar.parse([name, *shlex.split(verb.example)])
    cell = {"cell": ""} if verb.takes_cell else {}
    inspect.signature(verb.handler).bind(object(), **call.values, **cell)
    assert not any(isinstance(value, argparse.Namespace) for value in call.values.values())


@for_each(
    ("line", "message"),
    [
        ("stauts", "unknown verb 'stauts'; did you mean show?; see %dlrover help"),
        ("xyz", "unknown verb 'xyz'; choose from connect, submit"),
        ("demo", "unknown verb 'demo'"),
        ("submit x --worker 2", "unknown flag '--worker'; did you mean --workers?; see %dlrover help submit"),
        ("submit x --wor=2", "unknown flag '--wor'; did you mean"),
        ("jobs --all", "unknown flag '--all'; this verb has none"),
        ("status a b", "unexpected argument: 'b'"),
        ("scale --workers two", "--workers: must be a whole number, got 'two'"),
        ("scale --ps-cpu much", "--ps-cpu: must be a number, got 'much'"),
        ("mode autp", "unknown mode 'autp'; did you mean auto?"),
        ("mode", "the following arguments are required: MODE"),
        ("report ctr", "the following arguments are required: -o/--output"),
        ("submit --format parket", "unknown format 'parket'; did you mean parquet?"),
        ("submit --set epochs", "expected KEY=VALUE"),
        ("submit --set a=[", "malformed value in 'a=['"),
        (
            "submit --sequences 'a: {separator: |}'",
            "--sequences: expected columns such as tags, history: {length",
        ),
        ("submit --epochs", "--epochs: expected one argument"),
        ('accept --why "unclosed', 'unclosed quote in: accept --why "unclosed'),
    ],
)
def test_a_mistake_is_one_line_with_the_way_out(line: str, message: str) -> None:
    with pytest.raises(InvalidValueError) as caught:
        GRAMMAR.parse_line(line)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@settings(deadline=None, max_examples=200)
@given(st.sampled_from(sorted(VERBS)), st.text(max_size=40))
def test_any_line_is_a_call_or_one_refusal(verb: str, rest: str) -> None:
    try:
        call = GRAMMAR.parse_line(f"{verb} {rest}")
    except InvalidValueError:
        return
    assert isinstance(call, Call)


@for_each(
    ("text", "sequences"),
    [
        ("tags", [SequenceSpec("tags")]),
        ("tags,history", [SequenceSpec("tags"), SequenceSpec("history")]),
        (
            "history: {embedding_of: item, length: 20}, tags",
            [SequenceSpec("history", 20, embedding_of="item"), SequenceSpec("tags")],
        ),
        ("{'my list': {separator: ';'}}", [SequenceSpec("my list", separator=";")]),
        ("", []),
    ],
)
def test_submit_takes_sequences_as_a_job_file_writes_them(text: str, sequences: list[SequenceSpec]) -> None:
    call = GRAMMAR.parse_line(shlex.join(["submit", "x", "--sequences", text]))
    spec = spec_of(None, call.values["settings"], "data: {sequences: [other]}", {})
    assert spec.data.sequences == tuple(sequences)


def test_every_word_explains_each_of_its_forms_with_an_example() -> None:
    for word, forms in cli.GRAMMAR.words.items():
        text = cli.GRAMMAR.help_text(word)
        for form in forms:
            assert f"dlrover-nb {form.verb.name} {form.verb.example}".rstrip() in text
            assert set(re.findall(r"--[\w-]+", text)) >= set(form.verb.flags) - {"--stragglers"}
    assert "demo" in cli.GRAMMAR.help_text()
    assert "demo" not in GRAMMAR.help_text()
    assert cli.GRAMMAR.parse(["demo", "--out", "x"]).values == {"out": "x", "as_json": False}


def shown_defaults(verb: str) -> dict[str, str]:
    """Return the long flags of a verb, each with the default that its help shows; empty where it shows none."""
    text = GRAMMAR.help_text(verb)
    entries = re.findall(
        r"^  (?:-\w(?: \w+)?, )?(--[\w-]+)((?:.*\n)(?: {4}.*\n)*)", text + "\n", re.MULTILINE
    )
    return {flag: " ".join(rest.split()).partition("default: ")[2] for flag, rest in entries}


def test_the_help_of_submit_shows_the_defaults_of_the_code() -> None:
    shown = shown_defaults("submit")
    n_compared = 0
    for flag, *_ in SUBMIT_FLAGS:
        assert shown[flag] or flag in {"--exclude", "--types", "--thousands", "--tags"}, flag
        if " " in shown[flag] or not shown[flag]:  # a sentence
            continue
        n_compared += 1
        with_stop = (
            "--early-stopping auc" if flag in {"--patience", "--min-gain", "--target", "--decline"} else ""
        )
        typed = f"submit x {'--data rows.csv' if flag == '--guess' else with_stop}"
        given = spec_of(
            None, GRAMMAR.parse_line(f"{typed} {flag} {shown[flag]}").values["settings"], None, {}
        )
        expected = spec_of(None, GRAMMAR.parse_line(typed).values["settings"], None, {})
        assert given == expected, f"{flag} {shown[flag]}"
    assert n_compared > 25


def test_other_verbs_show_theirs() -> None:
    connect = shown_defaults("connect")
    assert (connect["--machines"], connect["--speed"]) == (f"{N_MACHINE}", f"{SPEED:g}")
    assert shown_defaults("logs")["--lines"] == str(inspect.signature(Cluster.logs).parameters["n"].default)
    assert shown_defaults("wait")["--for"] == "end"


def test_every_flag_of_submit_is_a_key_of_the_job_file() -> None:
    for _, path, *_ in SUBMIT_FLAGS:
        group, _, key = path.rpartition(".")
        assert key in known_keys(group)
    assert set(GRAMMAR.parser_of("scale").flags) >= {"--workers", "--ps", "--worker-memory"}


def test_sizes_change_only_what_is_given() -> None:
    assert Pins(ps=2, worker_cpu=1.0).applied(PLAN) == ResourcePlan(
        worker=RolePlan(1, 1.0, 1024), ps=RolePlan(2, 0.25, 512)
    )


def test_sizes_without_any_part_are_refused(error_words) -> None:
    with error_words(InvalidValueError):
        GRAMMAR.parse_line("scale")


def test_zero_nodes_are_refused_with_what_a_job_needs(error_words) -> None:
    with error_words(InvalidValueError):
        Pins(ps=0)


def test_flags_of_the_model_and_the_runtime_become_the_job() -> None:
    line = (
        "submit x --model xdeepfm --cin 8,4 --hidden 16 --optimizer adam --beta1 0.8 --sync ssp --staleness 2 "
        "--overlap no --migration restart --checkpoint-url file:///c --early-stopping log_loss --patience 3 "
        "--global-batch 4096 --worker-gpu 1 --device cuda"
    )
    settings = GRAMMAR.parse_line(line).values["settings"]
    spec = spec_of(None, settings, None, {})
    model = ModelSpec(name="xdeepfm", cin=(8, 4), hidden=(16,), optimizer=Optimizer.ADAM, beta1=0.8)
    assert spec == JobSpec(
        "x",
        owner=spec.owner,
        model=model,
        sync=Sync.SSP,
        staleness=2,
        global_batch=4096,
        overlap=False,
        migration=Migration.RESTART,
        checkpoint_url="file:///c",
        early_stopping=EarlyStopping(Metric.LOG_LOSS, 3),
        plan=JobSpec("x").plan.with_gpus((1, 0)),
        device=Device.CUDA,
    )

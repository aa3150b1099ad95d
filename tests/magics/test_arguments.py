"""One parser: words to requests, mistakes to one line with the way out."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlrover_nb.api.sizes import Sizes
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.jobfile import known_keys
from dlrover_nb.core.structs.job import (
    EarlyStopping,
    JobSpec,
    Metric,
    Migration,
    Mode,
    ModelSpec,
    Optimizer,
    Sync,
)
from dlrover_nb.core.structs.resources import ResourcePlan, RolePlan
from dlrover_nb.magics import requests as rq
from dlrover_nb.magics.arguments import CLI, help_text, parse, parse_line, parser_of, verbs
from dlrover_nb.magics.flags import SUBMIT_FLAGS
from dlrover_nb.magics.submission import spec_of
from dlrover_nb.magics.verbs import VERBS

EXPORT = rq.Export(
    None,
    "elasticjob",
    "current",
    None,
    force=False,
    auto_scale=False,
    check=False,
    image=None,
    namespace=None,
)
PLAN = ResourcePlan(worker=RolePlan(1, 0.5, 1024), ps=RolePlan(1, 0.25, 512))


@pytest.mark.parametrize(
    ("line", "request_"),
    [
        ("", rq.Help(None)),
        ("--help", rq.Help(None)),
        ("help mode", rq.Help("mode")),
        ("mode -h", rq.Help("mode")),
        ("connect", rq.Connect("ray", None, None)),
        ("connect ray 10.0.0.1:6379 --cpus 2", rq.Connect("ray", "10.0.0.1:6379", 2.0)),
        ("connect sim --machines 1000 --speed 60", rq.Connect("sim", None, None, 1000, 60.0)),
        ("connect k8s --namespace ml", rq.Connect("k8s", None, None, namespace="ml")),
        ("pin ads --worker-memory 24576", rq.Pin("ads", Sizes(worker_memory_mib=24576), clear=False, why="")),
        ("pin --clear", rq.Pin(None, Sizes(), clear=True, why="")),
        ("submit ads --warm-start", rq.Submit(None, (("name", "ads"), ("warm_start", True)))),
        ("jobs;", rq.Jobs()),
        ("status", rq.Status(None)),
        ("status ctr ;", rq.Status("ctr")),
        ("watch ctr", rq.Watch("ctr")),
        ("plans", rq.Plans(None)),
        ("accept", rq.Accept(None, None, "")),
        ("accept ctr", rq.Accept("ctr", None, "")),
        ("accept p12", rq.Accept(None, "p12", "")),
        ("accept ctr p2 --why 'it is faster; try'", rq.Accept("ctr", "p2", "it is faster; try")),
        ("accept --why x ctr p2", rq.Accept("ctr", "p2", "x")),
        ("accept ctr --why x p2", rq.Accept("ctr", "p2", "x")),
        ("reject p2", rq.Reject(None, "p2", "")),
        ("override ctr --ps 2", rq.Override("ctr", None, Sizes(ps=2), "")),
        ("override p1 --worker-cpu=0.5", rq.Override(None, "p1", Sizes(worker_cpu=0.5), "")),
        ("scale --workers 3 --ps-memory 900", rq.Scale(None, Sizes(workers=3, ps_memory_mib=900), "")),
        ("mode auto", rq.SetMode(None, Mode.AUTO, "")),
        ("mode ctr manual", rq.SetMode("ctr", Mode.MANUAL, "")),
        ("export", EXPORT),
        (
            "export ctr --plan p1 -o a.yaml --force --image r/i:1 --namespace ads",
            replace(
                EXPORT, job="ctr", plan="p1", output="a.yaml", force=True, image="r/i:1", namespace="ads"
            ),
        ),
        (
            "export --kind scaleplan --auto-scale --check",
            replace(EXPORT, kind="scaleplan", auto_scale=True, check=True),
        ),
        ("import a.yaml", rq.Import("a.yaml", check=False, submit=False, apply=False)),
        ("import a.yaml --apply", rq.Import("a.yaml", check=False, submit=False, apply=True)),
        ("why", rq.Why(None, None)),
        ("why p1", rq.Why(None, "p1")),
        ("whatif ctr --ps 2", rq.WhatIf("ctr", Sizes(ps=2))),
        ("undo", rq.Undo(None, None, "")),
        ("undo ctr d2 --why slow", rq.Undo("ctr", "d2", "slow")),
        ("undo d2", rq.Undo(None, "d2", "")),
        ("logs", rq.Logs(None, None, 100)),
        ("logs ps-1 -n 5", rq.Logs(None, "ps-1", 5)),
        ("logs ctr worker-0", rq.Logs("ctr", "worker-0", 100)),
        ("history", rq.History(None, None)),
        ("history ctr@1750000000.000", rq.History(None, "ctr@1750000000.000")),
        (
            "score --owner ada --days 7",
            rq.Score("ada", 7.0),
        ),
        ("attach ctr", rq.Attach("ctr")),
        ("wait --timeout 1.5", rq.Wait(None, 1.5)),
        ("stop ctr --why done", rq.Stop("ctr", "done")),
        ("shards", rq.Shards(None, None, None, "")),
        ("shards ctr --skip 7 --why bad", rq.Shards("ctr", None, 7, "bad")),
        ("shards --retry 0", rq.Shards(None, 0, None, "")),
        ("report -o r.html", rq.Report(None, "r.html", force=False)),
        ("shutdown --force", rq.Shutdown(force=True)),
        ("submit", rq.Submit(None, ())),
        ("submit --file j.yaml --wait", rq.Submit("j.yaml", (), wait=True)),
        (
            "submit ctr --file j.yaml --ps 2 --numeric age,price",
            rq.Submit("j.yaml", (("name", "ctr"), ("data.numeric", ["age", "price"]), ("plan.ps.count", 2))),
        ),
        ("submit --set model.hidden=[64,32]", rq.Submit(None, (("model.hidden", [64, 32]),))),
    ],
)
def test_a_line_becomes_a_request(line: str, request_: rq.Request) -> None:
    assert parse_line(line) == request_


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("stauts", "unknown verb 'stauts'; did you mean status?; see %dlrover help"),
        ("xyz", "unknown verb 'xyz'; known: connect, submit"),
        ("demo", "unknown verb 'demo'"),
        ("submit x --worker 2", "unknown flag '--worker'; did you mean --workers?; see %dlrover help submit"),
        ("submit x --wor=2", "unknown flag '--wor'; did you mean"),
        ("jobs --all", "unknown flag '--all'; there are none here"),
        ("status a b", "one word too many: 'b'"),
        ("scale --workers two", "--workers: must be a whole number, got 'two'"),
        ("scale --ps-cpu much", "--ps-cpu: must be a number, got 'much'"),
        ("mode autp", "unknown mode 'autp'; did you mean auto?"),
        ("mode", "the following arguments are required: MODE"),
        ("report ctr", "the following arguments are required: -o/--output"),
        ("submit --format parket", "unknown format 'parket'; did you mean parquet?"),
        ("submit --set epochs", "expected KEY=VALUE"),
        ("submit --set a=[", "malformed value in 'a=['"),
        ("submit --epochs", "--epochs: expected one argument"),
        ('accept --why "unclosed', 'unclosed quote in: accept --why "unclosed'),
    ],
)
def test_a_mistake_is_one_line_with_the_way_out(line: str, message: str) -> None:
    with pytest.raises(InvalidValueError) as caught:
        parse_line(line)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@settings(deadline=None, max_examples=200)
@given(st.sampled_from(sorted(VERBS)), st.text(max_size=40))
def test_any_line_is_a_request_or_one_refusal(verb: str, rest: str) -> None:
    try:
        request = parse_line(f"{verb} {rest}")
    except InvalidValueError:
        return
    assert isinstance(request, rq.Request)


def test_every_verb_explains_itself_and_its_example_parses() -> None:
    for name in verbs(CLI):
        text = help_text(name, command=CLI)
        assert f"usage: dlrover-nb {name}" in text
        example = re.search(rf"example: dlrover-nb ({name} .*)", text)
        if VERBS[name].example:
            assert example is not None
            parse_line(example[1].strip().replace("demo", "status"))
    assert "demo" in help_text(command=CLI)
    assert "demo" not in help_text()
    assert isinstance(parse(["demo", "--out", "x"], command=CLI), rq.Demo)


def test_every_flag_of_submit_is_a_key_of_the_job_file() -> None:
    for _, path, *_ in SUBMIT_FLAGS:
        group, _, key = path.rpartition(".")
        assert key in known_keys(group)
    assert set(parser_of("scale").flags) >= {"--workers", "--ps", "--worker-memory"}


def test_sizes_change_only_what_is_given() -> None:
    assert Sizes(ps=2, worker_cpu=1.0).applied_to(PLAN) == ResourcePlan(
        worker=RolePlan(1, 1.0, 1024), ps=RolePlan(2, 0.25, 512)
    )


def test_sizes_without_any_part_are_refused() -> None:
    with pytest.raises(InvalidValueError, match="give at least one of --workers, --ps, --worker-cpu"):
        parse_line("scale")


def test_zero_nodes_are_refused_with_what_a_job_needs() -> None:
    with pytest.raises(InvalidValueError, match="node count must be >= 1, got 0; a job needs at least 1"):
        Sizes(ps=0).applied_to(PLAN)


def test_flags_of_the_model_and_the_runtime_become_the_job() -> None:
    line = (
        "submit x --model xdeepfm --cin 8,4 --hidden 16 --optimizer adam --beta1 0.8 --sync ssp --staleness 2 "
        "--overlap no --migration restart --checkpoint-url file:///c --early-stopping log_loss --patience 3"
    )
    request = parse_line(line)
    assert isinstance(request, rq.Submit)
    spec = spec_of(request, None, {})
    model = ModelSpec(name="xdeepfm", cin=(8, 4), hidden=(16,), optimizer=Optimizer.ADAM, beta1=0.8)
    assert spec == JobSpec(
        "x",
        owner=spec.owner,
        model=model,
        sync=Sync.SSP,
        staleness=2,
        overlap=False,
        migration=Migration.RESTART,
        checkpoint_url="file:///c",
        early_stopping=EarlyStopping(Metric.LOG_LOSS, 3),
    )

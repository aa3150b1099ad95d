"""A shell goes on where `connect` led it; a flag and a variable go before that, and a job says where it goes."""

from __future__ import annotations

import stat

import pytest

from dlrover_nb import cli
from dlrover_nb.core.connect import remembered
from dlrover_nb.core.connect.kinds import Target
from dlrover_nb.core.disk.paths import state_folder
from dlrover_nb.core.errors import BackendError

ML = ("kubernetes", None, {"context": "staging", "namespace": "ml"})


@pytest.fixture
def shell_of(memory, monkeypatch, tmp_path, capsys):
    """Run a line as each process of a shell does; its exit code, both outputs, and where it went."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv(cli.ADDRESS, raising=False)
    went = []

    def connect(kind, address, *, start=True, **options):
        went.append((kind, address, {name: value for name, value in options.items() if value is not None}))
        return memory.connect("ray", None, start=start)

    monkeypatch.setattr(cli, "connect", connect)

    def call(line):
        went.clear()
        code = cli.main(line.split())
        return code, *capsys.readouterr(), went[-1] if went else None

    return call


def does_not_answer(*_, **__):
    raise BackendError("the API server at 10.0.0.1 does not answer")


@pytest.mark.parametrize(
    ("line", "target"),
    [
        ("kubernetes --context staging --namespace ml", ML),
        ("local --cpus 2", ("local", None, {"cpus": 2.0})),
        ("ray 10.0.0.7:6379", ("ray", "10.0.0.7:6379", {})),
        ("ray", ("ray", None, {})),
    ],
)
def test_the_next_calls_go_where_connect_went(shell_of, line, target):
    code, _, said, _ = shell_of(f"connect {line}")
    assert (code, f"the next calls go to {Target(*target).word} too" in said) == (0, True)
    for verb in ("jobs", "submit ctr --workers 1", "status ctr"):
        code, _, _, went = shell_of(verb)
        assert (code, went) == (0, target)


def test_the_file_is_this_users_alone_and_whole(shell_of):
    shell_of("connect kubernetes --context staging --namespace ml")
    file = state_folder() / remembered.FILE
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [each.name for each in state_folder().iterdir() if remembered.FILE in each.name] == [file.name]
    file.write_text(file.read_text()[:-9])
    code, _, said, _ = shell_of("jobs")
    assert (code, str(file) in said, "--forget removes it" in said) == (2, True, True)
    assert shell_of("connect --forget")[0] == 0
    assert shell_of("jobs")[::3] == (0, ("ray", None, {}))


def test_a_flag_goes_before_the_variable_and_that_before_connect(shell_of, monkeypatch, words):
    shell_of("connect kubernetes --context staging --namespace ml")
    assert shell_of("jobs --cluster local")[3][0] == "local"
    monkeypatch.setenv(cli.ADDRESS, "10.0.0.7:6379")
    assert shell_of("jobs")[3][:2] == ("ray", "10.0.0.7:6379")
    assert shell_of("jobs --cluster kubernetes:///ads")[3] == ("kubernetes", None, {"namespace": "ads"})
    said = shell_of("connect local")[2]
    assert said == words
    monkeypatch.delenv(cli.ADDRESS)
    assert shell_of("jobs")[3][0] == "local", "the flag and the variable were not remembered"


@pytest.mark.parametrize(
    ("before", "line", "said"),
    [
        (
            "",
            "submit ctr",
            "the job goes to the Ray of this machine; `dlrover-nb connect` or --cluster chooses",
        ),
        ("", "submit ctr --cluster local", "the job goes to local, as --cluster says"),
        (
            "connect kubernetes --context staging --namespace ml",
            "submit ctr",
            "the job goes to kubernetes://staging/ml, as `dlrover-nb connect` chose",
        ),
    ],
)
def test_the_first_line_of_a_submit_says_where_the_job_goes(shell_of, monkeypatch, before, line, said):
    if before:
        shell_of(before)
    code, _, error, _ = shell_of(line)
    assert (code, error.startswith(said)) == (0, True)
    assert shell_of("submit ctr --workers 0")[2].count("\n") == 1, "a mistake goes nowhere"
    monkeypatch.setattr(cli, "connect", does_not_answer)
    assert shell_of(line)[2].startswith(said), "it is said before anything is started"


def test_a_cluster_that_was_chosen_and_is_gone_is_named(shell_of, monkeypatch):
    shell_of("connect kubernetes --context staging --namespace ml")
    monkeypatch.setattr(cli, "connect", does_not_answer)
    code, _, said, _ = shell_of("jobs")
    assert (code, "this call went to kubernetes://staging/ml, as `dlrover-nb connect` chose" in said) == (
        3,
        True,
    )


def test_forget_takes_no_cluster(shell_of):
    code, _, said, _ = shell_of("connect local --forget")
    assert (code, "expected connect --forget alone, got local too" in said) == (2, True)


def test_a_notebook_neither_reads_nor_changes_where_a_shell_goes(shell_of, shell):
    shell_of("connect kubernetes --context staging --namespace ml")
    shell.run_line_magic("dlrover", "connect ray")
    assert remembered.remembered() == Target(*ML)

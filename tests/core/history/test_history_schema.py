"""From every released schema to the newest, with the data, once, whoever comes first."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from importlib import resources
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine, inspect, make_url, text
from support.history.history_records import (
    DECISION,
    FIT,
    MITIGATION,
    OUTCOME,
    PLAN,
    PROPOSAL,
    ROW,
    SPEC,
    TARGET,
    TRAITS,
)

from dlrover_nb.core.errors import BackendError
from dlrover_nb.core.history import HistoryStore
from dlrover_nb.core.history.rows import row_of, run_row
from dlrover_nb.core.history.tables import REVISION, VERSION_TABLE, metadata, runs
from dlrover_nb.core.structs.decisions.decisions import ProposalStatus
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.plan.bounds import PlanBounds
from dlrover_nb.core.structs.views.past_jobs import PastJob

pytestmark = pytest.mark.usefixtures("real_migrations")

SIZES = (0.25, 0.5, 0.75, 1.0)
THEN = replace(SPEC, bounds=PlanBounds(4, 2, SIZES, SIZES))  # the bounds of every job that named none
RELEASE_0_1 = Path(__file__).with_name("release_0_1.sql")
DISPLAY = "postgresql:", "postgresql+psycopg:"


@pytest.fixture
def engine(url):
    """Open the database beside the store; a SQLite file's folder is made."""
    parsed = make_url(url.replace(*DISPLAY))
    if parsed.get_backend_name() == "sqlite":
        Path(parsed.database).parent.mkdir(parents=True, exist_ok=True)
    found = create_engine(parsed, execution_options={"no_parameters": True})
    yield found
    found.dispose()


def _run(engine, *statements):
    with engine.begin() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)


def _fill_as_release_0_1(engine):
    lines = RELEASE_0_1.read_text(encoding="utf-8").splitlines()
    script = "\n".join(line for line in lines if not line.startswith("--"))
    _run(engine, *(part for part in script.split(";\n") if part.strip()))


def _steps():
    config = Config()
    folder = resources.files("dlrover_nb.core.history") / "migrations"
    config.set_main_option("script_location", str(folder))
    return config


def _differences(engine):
    options = {"version_table": VERSION_TABLE, "compare_type": True, "compare_server_default": True}
    with engine.connect() as connection:
        return compare_metadata(MigrationContext.configure(connection, opts=options), metadata)


def test_steps_lead_to_the_tables_as_they_are_written_down(url, engine):
    HistoryStore(url).close()
    assert _differences(engine) == []


def test_steps_lead_there_from_release_0_1_too(url, engine):
    _fill_as_release_0_1(engine)
    assert _differences(engine) != []
    HistoryStore(url).close()
    assert _differences(engine) == []


def test_difference_would_be_seen(url, engine):
    HistoryStore(url).close()
    _run(engine, "drop index series_by_time", "alter table traits add column more integer")
    assert {change[0] for change in _differences(engine)} == {"add_index", "remove_column"}


def test_history_of_release_0_1_is_read_whole_and_written_on(url, engine):
    _fill_as_release_0_1(engine)
    store = HistoryStore(url)
    assert [(r.run, r.phase, r.spec, r.traits) for r in store.jobs()] == [
        ("views@100.000", JobPhase.STARTING, replace(THEN, name="views", owner="bob"), None),
        ("clicks@10.000", JobPhase.SUCCEEDED, THEN, None),
    ]
    assert store.proposals("clicks") == (replace(PROPOSAL, status=ProposalStatus.APPLIED, closed_at_s=22.0),)
    assert store.decisions("clicks") == (replace(DECISION, why="it's 5 % better"),)
    assert store.outcomes("clicks") == (OUTCOME,)
    assert store.mitigations("clicks") == ()
    for record in (TRAITS, FIT, ROW, MITIGATION):
        store.remember("clicks", 91.0, record)
    assert store.mitigations("clicks") == (MITIGATION,)
    assert store.past_jobs() == (PastJob(TRAITS, PLAN, TARGET, FIT),)


def test_history_without_actions_is_kept_and_gets_them(url, engine):
    with engine.begin() as connection:
        config = _steps()
        config.attributes["connection"] = connection
        command.upgrade(config, "0003")
        connection.execute(runs.insert().values(run_row("clicks@10.000", "clicks", 10.0, SPEC)))
        for record in (PROPOSAL, DECISION, OUTCOME):
            table, row = row_of(record)
            connection.execute(table.insert().values(run="clicks@10.000", **row))
    assert not inspect(engine).has_table("mitigations")
    store = HistoryStore(url)
    assert (store.proposals("clicks"), store.decisions("clicks")) == ((PROPOSAL,), (DECISION,))
    assert (store.outcomes("clicks"), store.mitigations("clicks")) == ((OUTCOME,), ())
    store.remember("clicks", 25.0, MITIGATION)
    assert HistoryStore(url).mitigations("clicks") == (MITIGATION,)
    assert _differences(engine) == []


def test_half_made_history_of_release_0_1_is_completed(url, engine):
    _fill_as_release_0_1(engine)
    _run(engine, "drop table outcomes", "drop index runs_by_job", "delete from schema_version")
    store = HistoryStore(url)
    assert store.decisions("clicks")
    assert store.outcomes("clicks") == ()
    assert _differences(engine) == []


def test_release_0_1_finds_a_number_that_it_refuses(url, engine):
    HistoryStore(url).close()
    with engine.connect() as connection:
        assert connection.scalar(text("select max(version) from schema_version")) != 1


def test_migrating_again_changes_nothing(url, engine):
    first = HistoryStore(url)
    first.remember("clicks", 10.0, SPEC)
    assert HistoryStore(url).jobs() == first.jobs()


def test_newer_schema_is_refused_and_left_alone(url, engine):
    HistoryStore(url).close()
    _run(engine, f"update {VERSION_TABLE} set version_num = '0099'")
    with pytest.raises(
        BackendError, match=r"must have schema 0009 or an older one, got 0099; use the release"
    ):
        HistoryStore(url)
    with engine.connect() as connection:
        assert connection.scalar(text(f"select version_num from {VERSION_TABLE}")) == "0099"


def test_number_that_release_0_1_never_wrote_is_refused(url, engine):
    _fill_as_release_0_1(engine)
    _run(engine, "update schema_version set version = 7")
    with pytest.raises(BackendError, match="must have schema version 1, got 7"):
        HistoryStore(url)


def test_table_of_another_program_is_left_alone(url, engine):
    _run(engine, "create table runs (run_uuid varchar(32) primary key)")
    with pytest.raises(BackendError, match="another program made it"):
        HistoryStore(url)
    assert inspect(engine).get_table_names() == ["runs"]


def test_step_that_fails_leaves_the_old_schema_and_its_data(url, engine):
    _fill_as_release_0_1(engine)
    _run(engine, "create table series (run varchar(96), at_s float)")  # in the way of step 0002
    with pytest.raises(BackendError, match=r"cannot open the history: .*series"):
        HistoryStore(url)
    names = set(inspect(engine).get_table_names())
    assert "traits" not in names
    assert VERSION_TABLE not in names
    _run(engine, "drop table series")
    assert len(HistoryStore(url).jobs()) == 2


def test_newest_revision_is_the_one_written_down():
    script = ScriptDirectory.from_config(_steps())
    assert script.get_heads() == [REVISION]
    names = [step.revision for step in script.walk_revisions()]
    assert names == sorted(names, reverse=True)


OPEN = """
import sys
from dlrover_nb.core.history import HistoryStore
HistoryStore(sys.argv[1]).close()
print("alembic" in sys.modules)
"""


@pytest.mark.more
def test_opening_what_is_up_to_date_does_not_touch_alembic(url):
    HistoryStore(url).close()
    done = subprocess.run([sys.executable, "-c", OPEN, url], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"

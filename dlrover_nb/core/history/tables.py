"""The tables: columns to search by, and beside them each record whole, as JSON.

The JSON is authoritative and restores the frozen record; the columns are for queries in SQL ("who decided
what last week"), which must not depend on how a record is encoded. Text in a column may be cut to the
column's length, the JSON never is. Rows of a series are the exception: they are many, small and meant for
aggregation, so they are columns alone.

This is the newest schema; `migrations` holds the steps from older ones, and a test compares the two.
"""

from __future__ import annotations

from sqlalchemy import Column, Float, ForeignKey, Index, Integer, MetaData, String, Table, Text

REVISION = "0009"  # the newest of migrations/versions; later ones sort behind earlier ones
VERSION_TABLE = "dlrover_nb_revision"  # Alembic's own name may be another program's in a shared database
OWNER_LENGTH = 128

metadata = MetaData()

# Release 0.1.0 reads only this table, and refuses any number but 1. Migration 0002 wrote 2, permanently.
versions = Table("schema_version", metadata, Column("version", Integer, primary_key=True))

runs = Table(
    "runs",
    metadata,
    Column("run", String(96), primary_key=True),  # job@started_at_s
    Column("job", String(64), nullable=False),
    Column("owner", String(OWNER_LENGTH), nullable=False),
    Column("started_at_s", Float, nullable=False),
    Column("spec", Text, nullable=False),
    Index("runs_by_job", "job", "started_at_s"),
)


def _run() -> Column[str]:
    return Column("run", String(96), ForeignKey("runs.run"), primary_key=True)


traits = Table(
    "traits",
    metadata,
    _run(),
    Column("model", String(64), nullable=False),
    Column("owner", String(OWNER_LENGTH), nullable=False),
    Column("record", Text, nullable=False),
)

phases = Table(
    "phases",
    metadata,
    _run(),
    Column("at_s", Float, primary_key=True),
    Column("phase", String(16), primary_key=True),
    Column("message", Text, nullable=False),
    Index("phases_by_phase", "phase", "at_s"),
)

proposals = Table(
    "proposals",
    metadata,
    _run(),
    Column("id", String(16), primary_key=True),
    Column("created_at_s", Float, nullable=False),
    Column("closed_at_s", Float),
    Column("kind", String(16), nullable=False),
    Column("status", String(16), nullable=False),
    Column("plan", String(128), nullable=False),
    Column("predicted_samples_per_s", Float, nullable=False),
    Column("cost_per_hour", Float),  # null where a price is not known
    Column("why", Text, nullable=False),
    Column("record", Text, nullable=False),
)

decisions = Table(
    "decisions",
    metadata,
    _run(),
    Column("id", String(16), primary_key=True),
    Column("at_s", Float, nullable=False),
    Column("by", String(128), nullable=False),
    Column("verdict", String(16), nullable=False),
    Column("proposal", String(16)),
    Column("plan", String(128)),
    Column("why", Text, nullable=False),
    Column("record", Text, nullable=False),
    Index("decisions_by_time", "at_s"),
)

mitigations = Table(
    "mitigations",
    metadata,
    _run(),
    Column("id", String(16), primary_key=True),
    Column("created_at_s", Float, nullable=False),
    Column("closed_at_s", Float),
    Column("kind", String(16), nullable=False),
    Column("status", String(16), nullable=False),
    Column("action", Text, nullable=False),  # in words, which name nodes
    Column("gain", Float),  # null where it is not known
    Column("decision", String(16)),  # that ordered it
    Column("why", Text, nullable=False),
    Column("record", Text, nullable=False),
)

leases = Table(
    "leases",
    metadata,
    Column("name", String(160), primary_key=True),
    Column("holder", String(160), nullable=False),
    Column("term", Integer, nullable=False),
    Column("until_s", Float, nullable=False),  # by the database's clock
)

brain_rounds = Table(
    "brain_rounds",
    metadata,
    Column("cluster", String(160), primary_key=True),
    Column("term", Integer, primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("at_s", Float, nullable=False),
    Column("record", Text, nullable=False),
    Index("brain_rounds_by_time", "cluster", "at_s"),
)

outcomes = Table(
    "outcomes",
    metadata,
    _run(),
    Column("decision", String(16), primary_key=True),
    Column("applied_at_s", Float, nullable=False),
    Column("plan", String(128), nullable=False),
    Column("predicted_samples_per_s", Float),
    Column("measured_samples_per_s", Float, nullable=False),
    Column("pause_s", Float, nullable=False),
    Column("record", Text, nullable=False),
)

fits = Table(
    "fits",
    metadata,
    _run(),
    Column("at_s", Float, primary_key=True),
    Column("log_error", Float, nullable=False),
    Column("n_plan", Integer, nullable=False),
    Column("n_sample", Integer, nullable=False),
    Column("record", Text, nullable=False),
)

series = Table(
    "series",
    metadata,
    _run(),
    Column("at_s", Float, primary_key=True),
    Column("span_s", Float, nullable=False),
    Column("samples_per_s", Float, nullable=False),
    Column("workers", Integer, nullable=False),
    Column("ps", Integer, nullable=False),
    Column("worker_memory_mib", Float, nullable=False),
    Column("ps_memory_mib", Float, nullable=False),
    Column("worker_cpu", Float, nullable=False, server_default="0"),
    Column("ps_cpu", Float, nullable=False, server_default="0"),
    Index("series_by_time", "at_s"),
)

# What follows belongs to no run: it is what a team's front ends share, and is kept when a run is forgotten.

audit = Table(
    "audit",
    metadata,
    Column("seq", Integer, primary_key=True, autoincrement=False),
    Column("at_s", Float, nullable=False),
    Column("person", String(128), nullable=False),
    Column("entry", String(16), nullable=False),
    Column("action", String(16), nullable=False),
    Column("job", String(64), nullable=False),
    Column("stage", String(16), nullable=False),
    Column("key", String(64), nullable=False),  # of idempotency
    Column("record", Text, nullable=False),  # the hash covers it, and no other column
    Column("hash", String(64), nullable=False),
    Index("audit_by_time", "at_s"),
    Index("audit_by_job", "job", "seq"),
    Index("audit_by_key", "key"),
)

audit_head = Table(  # one row: it tells when rows at the end are missing, and writers lock it
    "audit_head",
    metadata,
    Column("one", Integer, primary_key=True, autoincrement=False),
    Column("seq", Integer, nullable=False),
    Column("hash", String(64), nullable=False),
)

requests = Table(
    "requests",
    metadata,
    Column("id", String(16), primary_key=True),
    Column("job", String(64), nullable=False),
    Column("first", String(128), nullable=False),
    Column("at_s", Float, nullable=False),
    Column("expires_at_s", Float, nullable=False),
    Column("state", String(160), nullable=False),  # open, or who closed it
    Column("record", Text, nullable=False),
    Index("requests_by_state", "state", "at_s"),
)

credentials = Table(  # sessions and tokens, by the hash of their secret
    "credentials",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("kind", String(16), nullable=False),
    Column("person", String(128), nullable=False),
    Column("expires_at_s", Float, nullable=False),
    Column("record", Text, nullable=False),
    Index("credentials_by_person", "kind", "person"),
)

notes = Table(  # what a person keeps: saved views, when they last looked at a job
    "notes",
    metadata,
    Column("person", String(128), primary_key=True),
    Column("kind", String(16), primary_key=True),
    Column("name", String(128), primary_key=True),
    Column("at_s", Float, nullable=False),
    Column("record", Text, nullable=False),
)

alerts = Table(
    "alerts",
    metadata,
    Column("key", String(192), primary_key=True),
    Column("job", String(64), nullable=False),
    Column("kind", String(24), nullable=False),
    Column("at_s", Float, nullable=False),
    Column("ended_at_s", Float),
    Column("record", Text, nullable=False),
    Index("alerts_by_time", "at_s"),
)

cluster_load = Table(  # amounts are null where they were not known
    "cluster_load",
    metadata,
    Column("place", String(128), primary_key=True),  # the cluster
    Column("machine", String(128), primary_key=True),  # empty: all machines together
    Column("at_s", Float, primary_key=True),
    Column("n_sample", Integer, nullable=False),
    Column("has_cpu", Float),
    Column("has_memory_mib", Float),
    Column("jobs_cpu", Float),
    Column("jobs_memory_mib", Float),
    Column("idle_cpu", Float),
    Column("idle_memory_mib", Float),
    Column("used_cpu", Float),
    Column("used_memory_mib", Float),
    Index("cluster_load_by_time", "place", "at_s"),
)

quality_curves = Table(  # also of a job that never ran: a rehearsal needs its file alone
    "quality_curves",
    metadata,
    Column("job", String(64), primary_key=True),
    Column("at_s", Float, primary_key=True),
    Column("way", String(32), primary_key=True),
    Column("origin", String(16), nullable=False),
    Column("model", String(64), nullable=False),
    Column("optimizer", String(64), nullable=False),
    Column("data_hash", String(64), nullable=False),
    Column("batch_size", Integer, nullable=False),
    Column("learning_rate", Float, nullable=False),
    Column("record", Text, nullable=False),
    Index("quality_curves_by_model", "model", "optimizer", "at_s"),
)

batch_costs = Table(  # of one program and kind of device the newest measurement alone
    "batch_costs",
    metadata,
    Column("program", String(64), primary_key=True),
    Column("device", String(160), primary_key=True),
    Column("at_s", Float, nullable=False),
    Column("job", String(64), nullable=False),
    Column("record", Text, nullable=False),
)

OF_A_RUN = (traits, phases, proposals, decisions, mitigations, outcomes, fits, series)

"""The tables: columns to search by, and beside them each record whole, as JSON.

The JSON is the truth and gives back the frozen record; the columns are for questions in SQL ("who
decided what last week"), which must not depend on how a record is encoded.
"""

from __future__ import annotations

from sqlalchemy import Column, Float, ForeignKey, Index, Integer, MetaData, String, Table, Text

SCHEMA_VERSION = 1

metadata = MetaData()

versions = Table("schema_version", metadata, Column("version", Integer, primary_key=True))

runs = Table(
    "runs",
    metadata,
    Column("run", String(96), primary_key=True),  # job@started_at_s
    Column("job", String(64), nullable=False),
    Column("owner", String(128), nullable=False),
    Column("started_at_s", Float, nullable=False),
    Column("spec", Text, nullable=False),
    Index("runs_by_job", "job", "started_at_s"),
)


def _run() -> Column[str]:
    return Column("run", String(96), ForeignKey("runs.run"), primary_key=True)


phases = Table(
    "phases",
    metadata,
    _run(),
    Column("at_s", Float, primary_key=True),
    Column("phase", String(16), primary_key=True),
    Column("message", Text, nullable=False),
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
    Column("cost_per_hour", Float, nullable=False),
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

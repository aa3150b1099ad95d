"""The tables of release 0.1.0, which created them without Alembic, as number 1 in ``schema_version``.

A database of that release has them, and keeps them: only missing ones are created.
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def _run() -> sa.Column[str]:
    return sa.Column("run", sa.String(96), sa.ForeignKey("runs.run"), primary_key=True)


def upgrade() -> None:
    """Create the tables."""
    op.create_table("schema_version", sa.Column("version", sa.Integer, primary_key=True), if_not_exists=True)
    op.create_table(
        "runs",
        sa.Column("run", sa.String(96), primary_key=True),
        sa.Column("job", sa.String(64), nullable=False),
        sa.Column("owner", sa.String(128), nullable=False),
        sa.Column("started_at_s", sa.Float, nullable=False),
        sa.Column("spec", sa.Text, nullable=False),
        if_not_exists=True,
    )
    op.create_index("runs_by_job", "runs", ["job", "started_at_s"], if_not_exists=True)
    op.create_table(
        "phases",
        _run(),
        sa.Column("at_s", sa.Float, primary_key=True),
        sa.Column("phase", sa.String(16), primary_key=True),
        sa.Column("message", sa.Text, nullable=False),
        if_not_exists=True,
    )
    _decided()


def _decided() -> None:
    op.create_table(
        "proposals",
        _run(),
        sa.Column("id", sa.String(16), primary_key=True),
        sa.Column("created_at_s", sa.Float, nullable=False),
        sa.Column("closed_at_s", sa.Float),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("plan", sa.String(128), nullable=False),
        sa.Column("predicted_samples_per_s", sa.Float, nullable=False),
        sa.Column("cost_per_hour", sa.Float, nullable=False),
        sa.Column("why", sa.Text, nullable=False),
        sa.Column("record", sa.Text, nullable=False),
        if_not_exists=True,
    )
    op.create_table(
        "decisions",
        _run(),
        sa.Column("id", sa.String(16), primary_key=True),
        sa.Column("at_s", sa.Float, nullable=False),
        sa.Column("by", sa.String(128), nullable=False),
        sa.Column("verdict", sa.String(16), nullable=False),
        sa.Column("proposal", sa.String(16)),
        sa.Column("plan", sa.String(128)),
        sa.Column("why", sa.Text, nullable=False),
        sa.Column("record", sa.Text, nullable=False),
        if_not_exists=True,
    )
    op.create_index("decisions_by_time", "decisions", ["at_s"], if_not_exists=True)
    op.create_table(
        "outcomes",
        _run(),
        sa.Column("decision", sa.String(16), primary_key=True),
        sa.Column("applied_at_s", sa.Float, nullable=False),
        sa.Column("plan", sa.String(128), nullable=False),
        sa.Column("predicted_samples_per_s", sa.Float),
        sa.Column("measured_samples_per_s", sa.Float, nullable=False),
        sa.Column("pause_s", sa.Float, nullable=False),
        sa.Column("record", sa.Text, nullable=False),
        if_not_exists=True,
    )

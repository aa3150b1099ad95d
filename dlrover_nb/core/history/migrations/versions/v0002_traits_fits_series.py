"""Traits, fits and series of a run; a proposal of unknown cost; a refusal for release 0.1.0."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def _run() -> sa.Column[str]:
    return sa.Column("run", sa.String(96), sa.ForeignKey("runs.run"), primary_key=True)


def upgrade() -> None:
    """Add the tables, make the cost nullable, and write the number that release 0.1.0 refuses."""
    _add_traits_and_fits()
    _add_series()
    op.create_index("phases_by_phase", "phases", ["phase", "at_s"])
    with op.batch_alter_table("proposals") as proposals:
        proposals.alter_column("cost_per_hour", existing_type=sa.Float(), nullable=True)
    op.execute("DELETE FROM schema_version")
    op.execute("INSERT INTO schema_version (version) VALUES (2)")


def _add_traits_and_fits() -> None:
    op.create_table(
        "traits",
        _run(),
        sa.Column("model", sa.String(64), nullable=False),
        sa.Column("owner", sa.String(128), nullable=False),
        sa.Column("record", sa.Text, nullable=False),
    )
    op.create_table(
        "fits",
        _run(),
        sa.Column("at_s", sa.Float, primary_key=True),
        sa.Column("log_error", sa.Float, nullable=False),
        sa.Column("n_plan", sa.Integer, nullable=False),
        sa.Column("n_sample", sa.Integer, nullable=False),
        sa.Column("record", sa.Text, nullable=False),
    )


def _add_series() -> None:
    op.create_table(
        "series",
        _run(),
        sa.Column("at_s", sa.Float, primary_key=True),
        sa.Column("span_s", sa.Float, nullable=False),
        sa.Column("samples_per_s", sa.Float, nullable=False),
        sa.Column("workers", sa.Integer, nullable=False),
        sa.Column("ps", sa.Integer, nullable=False),
        sa.Column("worker_memory_mib", sa.Float, nullable=False),
        sa.Column("ps_memory_mib", sa.Float, nullable=False),
    )
    op.create_index("series_by_time", "series", ["at_s"])

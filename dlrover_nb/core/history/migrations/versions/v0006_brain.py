"""Leases of services that run once per cluster, and what the brain of each cluster decided."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Add the tables."""
    op.create_table(
        "leases",
        sa.Column("name", sa.String(160), primary_key=True),
        sa.Column("holder", sa.String(160), nullable=False),
        sa.Column("term", sa.Integer, nullable=False),
        sa.Column("until_s", sa.Float, nullable=False),
    )
    op.create_table(
        "brain_rounds",
        sa.Column("cluster", sa.String(160), primary_key=True),
        sa.Column("term", sa.Integer, primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True),
        sa.Column("at_s", sa.Float, nullable=False),
        sa.Column("record", sa.Text, nullable=False),
    )
    op.create_index("brain_rounds_by_time", "brain_rounds", ["cluster", "at_s"])

"""Load of clusters over time."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Add the table."""
    op.create_table(
        "cluster_load",
        sa.Column("place", sa.String(128), primary_key=True),
        sa.Column("machine", sa.String(128), primary_key=True),
        sa.Column("at_s", sa.Float, primary_key=True),
        sa.Column("n_sample", sa.Integer, nullable=False),
        sa.Column("has_cpu", sa.Float),
        sa.Column("has_memory_mib", sa.Float),
        sa.Column("jobs_cpu", sa.Float),
        sa.Column("jobs_memory_mib", sa.Float),
        sa.Column("idle_cpu", sa.Float),
        sa.Column("idle_memory_mib", sa.Float),
        sa.Column("used_cpu", sa.Float),
        sa.Column("used_memory_mib", sa.Float),
    )
    op.create_index("cluster_load_by_time", "cluster_load", ["place", "at_s"])

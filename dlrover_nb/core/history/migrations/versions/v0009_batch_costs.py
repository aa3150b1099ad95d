"""What mini-batches cost on kinds of devices, for later jobs of the same program."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Add the table."""
    op.create_table(
        "batch_costs",
        sa.Column("program", sa.String(64), primary_key=True),
        sa.Column("device", sa.String(160), primary_key=True),
        sa.Column("at_s", sa.Float, nullable=False),
        sa.Column("job", sa.String(64), nullable=False),
        sa.Column("record", sa.Text, nullable=False),
    )

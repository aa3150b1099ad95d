"""What Alembic runs: the steps, on the connection (and in the transaction) of `core.history.schema`."""

from alembic import context

from dlrover_nb.core.history.tables import VERSION_TABLE, metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=VERSION_TABLE,
    render_as_batch=True,  # SQLite cannot alter a column in place
    compare_type=True,
)
context.run_migrations()

"""Steps from each released schema to the next, run by Alembic when a database is opened."""

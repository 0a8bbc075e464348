"""Alembic's scripts. They ship inside the package and are found beside this file."""

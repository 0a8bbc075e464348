"""Alembic's environment: runs on the connection, and inside the locked transaction, that `migrating` hands it."""

from alembic import context

from thread_objects.errors import ConfigError

connection = context.config.attributes.get("connection")
if connection is None:
    raise ConfigError(setting="database", reason="migrations run through storage, which holds their lock")
context.configure(connection=connection, target_metadata=context.config.attributes.get("metadata"))
with context.begin_transaction():
    context.run_migrations()

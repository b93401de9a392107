"""Where Alembic enters: on a connection that somebody else opened, or offline to print the DDL.

It configures no logging and commits nothing: the transaction is the caller's.
"""

from __future__ import annotations

from alembic import context

from latchguard.store.schema import alembic_options

connection = context.config.attributes.get("connection")
if connection is not None:
    context.configure(connection=connection, **alembic_options())
    context.run_migrations()
elif context.is_offline_mode():
    context.configure(
        dialect_name=context.config.attributes["dialect_name"],
        literal_binds=True,
        as_sql=True,
        **alembic_options(),
    )
    with context.begin_transaction():
        context.run_migrations()
else:
    raise RuntimeError("latchguard's migrations run through SessionStore.upgrade(), which gives them a connection")

"""The work inventory: duties that may outlive their Submission."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import TEXT as PG_TEXT

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

_ID = sa.Text().with_variant(PG_TEXT(collation="C"), "postgresql")
_INT = sa.BigInteger()


def upgrade() -> None:
    op.add_column("threads", sa.Column("work_through", _INT, nullable=True, server_default=sa.text("-1")))
    op.create_table(
        "work_items",
        sa.Column("thread_id", _ID, nullable=False),
        sa.Column("queue_sequence", _INT, nullable=False, autoincrement=False),
        sa.Column("call_id", _ID, nullable=False),
        sa.Column("object_id", _ID, nullable=False),
        sa.Column("submission_id", _ID, nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("thread_id", "queue_sequence", "call_id"),
    )
    op.create_index("work_items_object", "work_items", ["object_id", "thread_id"])
    # What is open already is listed, so that an existing database needs no rebuild.
    op.execute(
        "INSERT INTO work_items (thread_id, queue_sequence, call_id, object_id, submission_id, owner)"
        " SELECT s.thread_id, s.queue_sequence, u.tool_call_id, s.object_id, s.submission_id, 'Operation'"
        " FROM unknown_calls u JOIN submissions s ON s.submission_id = u.submission_id WHERE u.closed_at IS NULL"
        " UNION ALL SELECT s.thread_id, s.queue_sequence, c.parent_call_id, s.object_id, s.submission_id, 'Child'"
        " FROM child_reservations c JOIN submissions s ON s.submission_id = c.parent_submission_id"
        " WHERE c.status <> 'released'"
    )


def downgrade() -> None:
    op.drop_table("work_items")
    op.drop_column("threads", "work_through")

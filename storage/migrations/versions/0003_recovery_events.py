"""Recipients of faults, and recovery events."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import TEXT as PG_TEXT

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_ID = sa.Text().with_variant(PG_TEXT(collation="C"), "postgresql")
_TEXT = sa.Text()
_INT = sa.BigInteger()


def upgrade() -> None:
    op.add_column("faults", sa.Column("recipients", _INT, nullable=False, server_default=sa.text("0")))
    op.create_table(
        "fault_recipients",
        sa.Column("thread_id", _ID, nullable=False),
        sa.Column("queue_sequence", _INT, nullable=False, autoincrement=False),
        sa.Column("submission_id", _ID, nullable=False),
        sa.PrimaryKeyConstraint("thread_id", "queue_sequence"),
    )
    op.create_table(
        "recovery_events",
        sa.Column("object_id", _ID, nullable=False),
        sa.Column("sequence", _INT, nullable=False, autoincrement=False),
        sa.Column("transition", _TEXT, nullable=False),
        sa.Column("thread_id", _ID, nullable=False),
        sa.Column("submission_id", _ID, nullable=False),
        sa.Column("occurred_at", _INT, nullable=False),
        sa.Column("first_failed_at", _INT, nullable=False),
        sa.Column("failure", _TEXT, nullable=False),
        sa.PrimaryKeyConstraint("object_id", "sequence"),
        sa.CheckConstraint(
            "transition IS NULL OR transition IN ('created', 'changed', 'cleared')", name="recovery_events_transition"
        ),
    )
    op.create_table(
        "recovery_event_counters",
        sa.Column("object_id", _ID, nullable=False),
        sa.Column("sequence", _INT, nullable=False),
        sa.Column("acknowledged", _INT, nullable=False),
        sa.PrimaryKeyConstraint("object_id"),
        sa.CheckConstraint("acknowledged >= 0 AND acknowledged <= sequence", name="recovery_event_counters_order"),
    )


def downgrade() -> None:
    for table in ("recovery_event_counters", "recovery_events", "fault_recipients"):
        op.drop_table(table)
    op.drop_column("faults", "recipients")

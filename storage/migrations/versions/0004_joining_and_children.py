"""Admission facts, groups, and the reservations of children."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import TEXT as PG_TEXT

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_ID = sa.Text().with_variant(PG_TEXT(collation="C"), "postgresql")
_TEXT = sa.Text()
_INT = sa.BigInteger()

_GROUPED = "admission_group IS NOT NULL AND state <> 'settled'"
_ATTACHED = "child_submission_id IS NOT NULL"


def upgrade() -> None:
    op.add_column("submissions", sa.Column("admission_group", _ID, nullable=True))
    op.add_column("submissions", sa.Column("admission_facts", _TEXT, nullable=True))
    op.create_index(
        "submissions_group",
        "submissions",
        ["thread_id", "admission_group"],
        unique=True,
        sqlite_where=sa.text(_GROUPED),
        postgresql_where=sa.text(_GROUPED),
    )
    op.create_table(
        "child_reservations",
        sa.Column("parent_submission_id", _ID, sa.ForeignKey("submissions.submission_id"), nullable=False),
        sa.Column("parent_call_id", _ID, nullable=False),
        sa.Column("reservation_id", _ID, nullable=False),
        sa.Column("status", _TEXT, nullable=False),
        sa.Column("child_submission_id", _ID, sa.ForeignKey("submissions.submission_id"), nullable=True),
        sa.Column("reserved_at", _INT, nullable=False),
        sa.Column("released_at", _INT, nullable=True),
        sa.Column("allocation", _TEXT, nullable=False),
        sa.Column("accounting", _TEXT, nullable=True),
        sa.PrimaryKeyConstraint("parent_submission_id", "parent_call_id"),
        sa.UniqueConstraint("reservation_id", name="child_reservations_identity"),
        sa.CheckConstraint("status IN ('reserved', 'releasePending', 'released')", name="child_reservations_status"),
        sa.CheckConstraint("(status = 'reserved') = (accounting IS NULL)", name="child_reservations_accounted"),
    )
    op.create_index(
        "child_reservations_child",
        "child_reservations",
        ["child_submission_id"],
        unique=True,
        sqlite_where=sa.text(_ATTACHED),
        postgresql_where=sa.text(_ATTACHED),
    )


def downgrade() -> None:
    op.drop_table("child_reservations")
    op.drop_index("submissions_group", "submissions")
    op.drop_column("submissions", "admission_facts")
    op.drop_column("submissions", "admission_group")

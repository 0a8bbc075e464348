"""Checkpoints, and what retention leaves of a log and of a Submission."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import TEXT as PG_TEXT

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_ID = sa.Text().with_variant(PG_TEXT(collation="C"), "postgresql")


def upgrade() -> None:
    op.add_column("threads", sa.Column("base_sequence", sa.BigInteger(), nullable=False, server_default=sa.text("0")))
    op.add_column("threads", sa.Column("base_digest", sa.Text(), nullable=True))
    op.add_column("submissions", sa.Column("redacted_at", sa.BigInteger(), nullable=True))
    op.create_table(
        "checkpoints",
        sa.Column("thread_id", _ID, sa.ForeignKey("threads.thread_id"), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False, autoincrement=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("follows", sa.BigInteger(), nullable=False),
        sa.Column("saved_at", sa.BigInteger(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("thread_id", "sequence"),
    )


def downgrade() -> None:
    op.drop_table("checkpoints")
    op.drop_column("submissions", "redacted_at")
    op.drop_column("threads", "base_digest")
    op.drop_column("threads", "base_sequence")

"""The ledger and the log."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import TEXT as PG_TEXT

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_ID = sa.Text().with_variant(PG_TEXT(collation="C"), "postgresql")
_TEXT = sa.Text()
_INT = sa.BigInteger()


def _id(name: str, *args: sa.ForeignKey, null: bool = False) -> sa.Column[str]:
    return sa.Column(name, _ID, *args, nullable=null)


def _text(name: str, *, null: bool = False) -> sa.Column[str]:
    return sa.Column(name, _TEXT, nullable=null)


def _int(name: str, *, null: bool = False) -> sa.Column[int]:
    return sa.Column(name, _INT, nullable=null, autoincrement=False)


def _partial(name: str, table: str, columns: list[str], where: str, *, unique: bool = False) -> None:
    op.create_index(name, table, columns, unique=unique, sqlite_where=sa.text(where), postgresql_where=sa.text(where))


def upgrade() -> None:
    op.create_table(
        "objects",
        _id("object_id"),
        _text("worker"),
        _int("mark", null=True),
        _int("marked_at", null=True),
        sa.PrimaryKeyConstraint("object_id"),
    )
    _partial("objects_marked", "objects", ["marked_at"], "mark IS NOT NULL")
    op.create_index("objects_worker", "objects", ["worker"])

    op.create_table(
        "threads",
        _id("thread_id"),
        _id("object_id"),
        _int("created_at"),
        _int("materialized"),
        _int("queue_last"),
        _int("epoch"),
        _int("tail_sequence"),
        _text("tail_digest"),
        _id("owner_submission_id", null=True),
        _id("owner_attempt_id", null=True),
        _id("owner_producer_id", null=True),
        _text("owner_token", null=True),
        _int("lease_until", null=True),
        sa.PrimaryKeyConstraint("thread_id"),
        sa.CheckConstraint("queue_last >= 0 AND epoch >= 0 AND tail_sequence >= 0", name="threads_counters"),
        sa.CheckConstraint("materialized IN (0, 1)", name="threads_materialized"),
        sa.CheckConstraint(
            "(owner_token IS NULL) = (owner_submission_id IS NULL)"
            " AND (owner_token IS NULL) = (owner_attempt_id IS NULL)"
            " AND (owner_token IS NULL) = (owner_producer_id IS NULL)"
            " AND (owner_token IS NULL) = (lease_until IS NULL)",
            name="threads_owner_whole",
        ),
    )

    op.create_table(
        "submissions",
        _id("submission_id"),
        _id("thread_id", sa.ForeignKey("threads.thread_id")),
        _id("object_id"),
        _int("queue_sequence"),
        _id("receipt_id"),
        _id("principal"),
        _id("idempotency_key"),
        _id("agent_id"),
        _text("state"),
        _int("epoch"),
        _int("claims"),
        _int("admitted_at"),
        _text("admitted_by"),
        _int("ready_at", null=True),
        _int("input_applied", null=True),
        _int("abort_at", null=True),
        _text("abort_author", null=True),
        _text("abort_reason", null=True),
        _text("abort_by", null=True),
        _id("host_submission_id", null=True),
        _text("suspension_reason", null=True),
        _text("suspension_calls", null=True),
        _text("suspension_children", null=True),
        _int("suspended_at", null=True),
        _id("parent_submission_id", null=True),
        _id("parent_call_id", null=True),
        _text("outcome", null=True),
        _int("settled_at", null=True),
        _text("input_digest"),
        _text("input", null=True),
        sa.PrimaryKeyConstraint("submission_id"),
        sa.UniqueConstraint("thread_id", "principal", "idempotency_key", name="submissions_key"),
        sa.UniqueConstraint("thread_id", "queue_sequence", name="submissions_queue"),
        sa.CheckConstraint(
            "state IN ('admitted', 'ready', 'joining', 'joined', 'input-applied', 'suspended', 'unknown', 'settled')",
            name="submissions_state",
        ),
        sa.CheckConstraint(
            "outcome IS NULL OR outcome IN ('completed', 'failed', 'aborted')", name="submissions_outcome"
        ),
        sa.CheckConstraint(
            "(state = 'settled') = (outcome IS NOT NULL) AND (state = 'settled') = (settled_at IS NOT NULL)",
            name="submissions_settled",
        ),
        sa.CheckConstraint("(state = 'suspended') = (suspension_reason IS NOT NULL)", name="submissions_suspended"),
        sa.CheckConstraint(
            "state NOT IN ('joining', 'joined') OR host_submission_id IS NOT NULL", name="submissions_host"
        ),
    )
    _partial(
        "submissions_open",
        "submissions",
        ["object_id", "thread_id", "queue_sequence", "state", "abort_at"],
        "state <> 'settled'",
    )
    _partial("submissions_joins", "submissions", ["host_submission_id"], "host_submission_id IS NOT NULL")

    op.create_table(
        "records",
        _id("thread_id", sa.ForeignKey("threads.thread_id")),
        _int("sequence"),
        _id("record_id"),
        _id("batch_id"),
        _text("kind"),
        _int("schema_version"),
        _int("created_at"),
        _text("deployment_id"),
        _id("submission_id", null=True),
        _text("digest", null=True),
        _text("body"),
        sa.PrimaryKeyConstraint("thread_id", "sequence"),
        sa.UniqueConstraint("thread_id", "record_id", name="records_identity"),
        sa.CheckConstraint("sequence >= 1", name="records_sequence"),
    )
    _partial("records_batch", "records", ["thread_id", "batch_id"], "digest IS NOT NULL", unique=True)
    _partial("records_run", "records", ["submission_id", "sequence"], "submission_id IS NOT NULL")

    op.create_table(
        "approvals",
        _id("submission_id", sa.ForeignKey("submissions.submission_id")),
        _id("tool_call_id"),
        _int("turn"),
        _text("tool_name"),
        _text("arguments_digest"),
        _int("requested_at"),
        _text("decision", null=True),
        _text("resolver", null=True),
        _text("reason", null=True),
        _int("decided_at", null=True),
        _text("decided_by", null=True),
        sa.PrimaryKeyConstraint("submission_id", "tool_call_id"),
        sa.CheckConstraint("decision IS NULL OR decision IN ('approved', 'denied')", name="approvals_decision"),
        sa.CheckConstraint("(decision IS NULL) = (decided_at IS NULL)", name="approvals_decided"),
    )

    op.create_table(
        "unknown_calls",
        _id("submission_id", sa.ForeignKey("submissions.submission_id")),
        _id("tool_call_id"),
        _int("turn"),
        _text("tool_name"),
        _int("marked_at"),
        _int("closed_at", null=True),
        sa.PrimaryKeyConstraint("submission_id", "tool_call_id"),
    )

    op.create_table(
        "unknown_resolutions",
        _id("submission_id", sa.ForeignKey("submissions.submission_id")),
        _id("tool_call_id"),
        _text("category"),
        _text("kind"),
        _int("is_failure"),
        _text("author"),
        _text("reason"),
        _int("resolved_at"),
        _text("resolved_by"),
        _text("result"),
        sa.PrimaryKeyConstraint("submission_id", "tool_call_id", "category"),
        sa.CheckConstraint("category IN ('fact', 'permission')", name="unknown_resolutions_category"),
        sa.CheckConstraint(
            "kind IN ('completed-with-result', 'never-happened', 'safe-to-retry', 'abort-submission')",
            name="unknown_resolutions_kind",
        ),
        sa.CheckConstraint("is_failure IN (0, 1)", name="unknown_resolutions_failure"),
    )

    op.create_table(
        "faults",
        _id("thread_id", sa.ForeignKey("threads.thread_id")),
        _id("object_id"),
        _text("phase"),
        _text("reason"),
        _text("error_tag"),
        _text("operation"),
        _text("causes"),
        _int("causes_truncated"),
        _text("decoder"),
        _int("sequence", null=True),
        _int("first_failed_at"),
        _int("last_failed_at"),
        _int("retry_at"),
        _int("attempts"),
        sa.PrimaryKeyConstraint("thread_id"),
        sa.CheckConstraint("attempts >= 1", name="faults_attempts"),
        sa.CheckConstraint("causes_truncated IN (0, 1)", name="faults_causes_truncated"),
    )
    op.create_index("faults_object", "faults", ["object_id"])

    op.create_table(
        "deployments",
        _id("registry_key"),
        _int("number"),
        _int("first_seen_at"),
        sa.PrimaryKeyConstraint("registry_key"),
        sa.UniqueConstraint("number", name="deployments_number"),
    )

    op.create_table(
        "workers",
        _id("worker"),
        _text("host"),
        _int("pid"),
        _int("seen_at"),
        sa.PrimaryKeyConstraint("worker"),
    )
    op.create_index("workers_seen", "workers", ["seen_at"])


def downgrade() -> None:
    for table in (
        "workers",
        "deployments",
        "faults",
        "unknown_resolutions",
        "unknown_calls",
        "approvals",
        "records",
        "submissions",
        "threads",
        "objects",
    ):
        op.drop_table(table)

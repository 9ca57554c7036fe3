"""The tables of money, webhooks and of what is kept; workspaces get their account."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

SIGNUP_CREDIT = 5_000_000  # micro-USD, what workspaces of before these tables were promised


def upgrade() -> None:
    _create_tables()
    _open_accounts()
    _forbid_changes("ledger_entry")
    _forbid_changes("audit_entry")


def downgrade() -> None:
    _allow_changes("audit_entry")
    _allow_changes("ledger_entry")
    _drop_tables()


def _open_accounts() -> None:
    """An account with the credit of a new workspace for each that there is."""
    op.execute(
        "INSERT INTO account (workspace_id, balance, held) "
        f"SELECT id, {SIGNUP_CREDIT}, 0 FROM workspace"
    )
    op.execute(
        "INSERT INTO ledger_entry (workspace_id, operation, kind, amount, held, balance_after, "
        f"service, units, created_at) SELECT id, 'signup', 'grant', {SIGNUP_CREDIT}, 0, "
        f"{SIGNUP_CREDIT}, '', 0, CURRENT_TIMESTAMP FROM workspace"
    )


def _forbid_changes(table: str) -> None:
    """Rows can be added and read, whatever the program that holds the connection."""
    if op.get_bind().dialect.name == "sqlite":
        for change in ("UPDATE", "DELETE"):
            op.execute(
                f"CREATE TRIGGER {table}_{change.lower()} BEFORE {change} ON {table} "
                f"BEGIN SELECT RAISE(ABORT, '{table} is append-only'); END"
            )
        return
    op.execute(
        f"CREATE FUNCTION {table}_append_only() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN RAISE EXCEPTION '{table} is append-only'; END $$"
    )
    op.execute(
        f"CREATE TRIGGER {table}_append_only BEFORE UPDATE OR DELETE ON {table} "
        f"FOR EACH ROW EXECUTE FUNCTION {table}_append_only()"
    )


def _allow_changes(table: str) -> None:
    if op.get_bind().dialect.name == "sqlite":
        for change in ("update", "delete"):
            op.execute(f"DROP TRIGGER {table}_{change}")
        return
    op.execute(f"DROP TRIGGER {table}_append_only ON {table}")
    op.execute(f"DROP FUNCTION {table}_append_only")


def _create_tables() -> None:
    op.create_table(
        "account",
        sa.Column("workspace_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("balance", sa.BigInteger(), nullable=False),
        sa.Column("held", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("balance >= 0", name=op.f("ck_account_balance_not_negative")),
        sa.CheckConstraint("held <= balance", name=op.f("ck_account_held_within_balance")),
        sa.CheckConstraint("held >= 0", name=op.f("ck_account_held_not_negative")),
        sa.PrimaryKeyConstraint("workspace_id", name=op.f("pk_account")),
    )
    op.create_table(
        "audit_entry",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("workspace_id", sa.BigInteger(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("action", sa.String(length=40), nullable=False),
        sa.Column("actor", sa.String(length=40), nullable=False),
        sa.Column("target", sa.String(length=80), nullable=False),
        sa.Column("details", sa.JSON(), nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit_entry")),
        sa.UniqueConstraint(
            "workspace_id", "number", name=op.f("uq_audit_entry_workspace_id_number")
        ),
    )
    with op.batch_alter_table("audit_entry", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_audit_entry_created_at"), ["created_at"], unique=False)

    op.create_table(
        "hold",
        sa.Column("operation", sa.String(length=64), nullable=False),
        sa.Column("workspace_id", sa.BigInteger(), nullable=False),
        sa.Column("amount", sa.BigInteger(), nullable=False),
        sa.Column("service", sa.String(length=16), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("operation", name=op.f("pk_hold")),
    )
    with op.batch_alter_table("hold", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_hold_expires_at"), ["expires_at"], unique=False)

    op.create_table(
        "ledger_entry",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("workspace_id", sa.BigInteger(), nullable=False),
        sa.Column("operation", sa.String(length=64), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("amount", sa.BigInteger(), nullable=False),
        sa.Column("held", sa.BigInteger(), nullable=False),
        sa.Column("balance_after", sa.BigInteger(), nullable=False),
        sa.Column("service", sa.String(length=16), nullable=False),
        sa.Column("units", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_ledger_entry")),
        sa.UniqueConstraint(
            "workspace_id",
            "operation",
            "kind",
            name=op.f("uq_ledger_entry_workspace_id_operation_kind"),
        ),
    )
    with op.batch_alter_table("ledger_entry", schema=None) as batch_op:
        batch_op.create_index(
            "ix_ledger_entry_workspace_id_created_at", ["workspace_id", "created_at"], unique=False
        )

    op.create_table(
        "stored_file",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("workspace_id", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("media_type", sa.String(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_stored_file")),
    )
    with op.batch_alter_table("stored_file", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_stored_file_expires_at"), ["expires_at"], unique=False)
        batch_op.create_index(
            batch_op.f("ix_stored_file_workspace_id"), ["workspace_id"], unique=False
        )

    op.create_table(
        "event",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("workspace_id", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("body", sa.Text(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["workspace_id"],
            ["workspace.id"],
            name=op.f("fk_event_workspace_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_event")),
    )
    with op.batch_alter_table("event", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_event_created_at"), ["created_at"], unique=False)
        batch_op.create_index(batch_op.f("ix_event_workspace_id"), ["workspace_id"], unique=False)

    op.create_table(
        "idempotent_answer",
        sa.Column("workspace_id", sa.BigInteger(), nullable=False),
        sa.Column("path", sa.String(), nullable=False),
        sa.Column("key", sa.String(length=255), nullable=False),
        sa.Column("body_digest", sa.LargeBinary(), nullable=True),
        sa.Column("lease", sa.String(), nullable=True),
        sa.Column("lease_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("status", sa.Integer(), nullable=True),
        sa.Column("headers", sa.JSON(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["workspace_id"],
            ["workspace.id"],
            name=op.f("fk_idempotent_answer_workspace_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("workspace_id", "path", "key", name=op.f("pk_idempotent_answer")),
    )
    with op.batch_alter_table("idempotent_answer", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_idempotent_answer_expires_at"), ["expires_at"], unique=False
        )

    op.create_table(
        "subscription",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("workspace_id", sa.BigInteger(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("billing_cycle", sa.String(), nullable=False),
        sa.Column("anchor_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["workspace_id"],
            ["workspace.id"],
            name=op.f("fk_subscription_workspace_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_subscription")),
        sa.UniqueConstraint("workspace_id", name=op.f("uq_subscription_workspace_id")),
    )

    op.create_table(
        "webhook",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("workspace_id", sa.BigInteger(), nullable=False),
        sa.Column("url", sa.String(length=2048), nullable=False),
        sa.Column("events", sa.JSON(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("secret", sa.LargeBinary(), nullable=True),
        sa.Column("old_secret", sa.LargeBinary(), nullable=True),
        sa.Column("old_secret_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("failing_since", sa.DateTime(timezone=True), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["workspace_id"],
            ["workspace.id"],
            name=op.f("fk_webhook_workspace_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_webhook")),
    )
    with op.batch_alter_table("webhook", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_webhook_workspace_id"), ["workspace_id"], unique=False)

    op.create_table(
        "delivery",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("event_id", sa.String(length=40), nullable=False),
        sa.Column("webhook_id", sa.Uuid(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("next_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("lease_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("lease", sa.String(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["event_id"], ["event.id"], name=op.f("fk_delivery_event_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["webhook_id"], ["webhook.id"], name=op.f("fk_delivery_webhook_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_delivery")),
        sa.UniqueConstraint("event_id", "webhook_id", name=op.f("uq_delivery_event_id_webhook_id")),
    )
    with op.batch_alter_table("delivery", schema=None) as batch_op:
        batch_op.create_index("ix_delivery_status_next_at", ["status", "next_at"], unique=False)
        batch_op.create_index(
            "ix_delivery_webhook_id_created_at", ["webhook_id", "created_at"], unique=False
        )

    op.create_table(
        "delivery_attempt",
        sa.Column("delivery_id", sa.Uuid(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("status_code", sa.Integer(), nullable=True),
        sa.Column("error", sa.String(), nullable=True),
        sa.Column("milliseconds", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["delivery_id"],
            ["delivery.id"],
            name=op.f("fk_delivery_attempt_delivery_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("delivery_id", "number", name=op.f("pk_delivery_attempt")),
    )
    with op.batch_alter_table("workspace", schema=None) as batch_op:
        batch_op.add_column(
            sa.Column("retention", sa.String(), server_default="standard", nullable=False)
        )


def _drop_tables() -> None:
    with op.batch_alter_table("workspace", schema=None) as batch_op:
        batch_op.drop_column("retention")

    op.drop_table("delivery_attempt")
    with op.batch_alter_table("delivery", schema=None) as batch_op:
        batch_op.drop_index("ix_delivery_webhook_id_created_at")
        batch_op.drop_index("ix_delivery_status_next_at")

    op.drop_table("delivery")
    with op.batch_alter_table("webhook", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_webhook_workspace_id"))

    op.drop_table("webhook")
    op.drop_table("subscription")
    with op.batch_alter_table("idempotent_answer", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_idempotent_answer_expires_at"))

    op.drop_table("idempotent_answer")
    with op.batch_alter_table("event", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_event_workspace_id"))
        batch_op.drop_index(batch_op.f("ix_event_created_at"))

    op.drop_table("event")
    with op.batch_alter_table("stored_file", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_stored_file_workspace_id"))
        batch_op.drop_index(batch_op.f("ix_stored_file_expires_at"))

    op.drop_table("stored_file")
    with op.batch_alter_table("ledger_entry", schema=None) as batch_op:
        batch_op.drop_index("ix_ledger_entry_workspace_id_created_at")

    op.drop_table("ledger_entry")
    with op.batch_alter_table("hold", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_hold_expires_at"))

    op.drop_table("hold")
    with op.batch_alter_table("audit_entry", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_audit_entry_created_at"))

    op.drop_table("audit_entry")
    op.drop_table("account")

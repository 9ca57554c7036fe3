"""The tables of version 1.0, as the migrations 0001 to 0024 of version 0.9.0 make them."""

import secrets
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = None
branch_labels = None
depends_on = None

MOMENT = sa.DateTime(timezone=True)
NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")  # counted up by the database
SUMS = ("amount", "held", "units", "captures", "refunds")
ADD_TO_DAY = (
    f"INSERT INTO ledger_day (workspace_id, day, service, key_id, {', '.join(SUMS)}) "
    "VALUES (NEW.workspace_id, {day}, NEW.service, NEW.key_id, NEW.amount, NEW.held, NEW.units, "
    "CASE NEW.kind WHEN 'capture' THEN 1 ELSE 0 END, "
    "CASE NEW.kind WHEN 'refund' THEN 1 ELSE 0 END) "
    "ON CONFLICT (workspace_id, day, service, key_id) DO UPDATE SET "
    + ", ".join(f"{name} = ledger_day.{name} + excluded.{name}" for name in SUMS)
)
ADD_BYTES = (
    "INSERT INTO stored_bytes (workspace_id, bytes) VALUES (NEW.workspace_id, NEW.size) "
    "ON CONFLICT (workspace_id) DO UPDATE SET bytes = stored_bytes.bytes + excluded.bytes"
)
TAKE_BYTES = (
    "UPDATE stored_bytes SET bytes = bytes - OLD.size WHERE workspace_id = OLD.workspace_id; "
    "DELETE FROM stored_bytes WHERE workspace_id = OLD.workspace_id AND bytes = 0"
)


def upgrade() -> None:
    _create_tables()
    op.execute(sa.text("INSERT INTO service (id) VALUES (:id)").bindparams(id=secrets.token_hex(8)))
    for table in ("ledger_entry", "audit_entry"):
        _forbid_changes(table)
    is_sqlite = op.get_bind().dialect.name == "sqlite"
    day = "date(NEW.created_at)" if is_sqlite else "(NEW.created_at AT TIME ZONE 'UTC')::date"
    _create_trigger("ledger_entry_day", "INSERT", "ledger_entry", ADD_TO_DAY.format(day=day))
    _create_trigger("stored_file_added", "INSERT", "stored_file", ADD_BYTES)
    _create_trigger("stored_file_deleted", "DELETE", "stored_file", TAKE_BYTES)


def _forbid_changes(table: str) -> None:
    """Allow only additions and reads of rows, by any program that connects."""
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


def _create_trigger(name: str, event: str, table: str, statements: str) -> None:
    """Run `statements` for each row after `event` (INSERT, DELETE)."""
    begin = f"CREATE TRIGGER {name} AFTER {event} ON {table}"
    if op.get_bind().dialect.name == "sqlite":
        op.execute(f"{begin} BEGIN {statements}; END")
        return
    op.execute(
        f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN {statements}; RETURN NULL; END $$"
    )
    op.execute(f"{begin} FOR EACH ROW EXECUTE FUNCTION {name}()")


def _columns(kind: Any, *names: str, references: str = "", **options: Any) -> list[sa.Column[Any]]:
    """Make columns of one type, not nullable by default; `references` is a column they point to."""
    options = {"nullable": False, "autoincrement": kind is NUMBER, **options}
    keys = [references] if references else []
    return [
        sa.Column(name, kind, *(sa.ForeignKey(key, ondelete="CASCADE") for key in keys), **options)
        for name in names
    ]


def _index(table: str, *indices: list[str]) -> None:
    """Create an index for each list of columns."""
    for columns in indices:
        op.create_index(op.f("_".join(("ix", table, *columns))), table, columns)


def _index_some(name: str, table: str, columns: list[str], where: str) -> None:
    """Create an index of the rows that meet the condition `where`."""
    condition = sa.text(where)
    op.create_index(name, table, columns, sqlite_where=condition, postgresql_where=condition)


def _create_tables() -> None:
    """Constraints are named by the convention of db/database.py."""
    op.create_table(
        "account",
        *_columns(sa.BigInteger(), "workspace_id", primary_key=True),
        *_columns(sa.BigInteger(), "balance", "held"),
        sa.CheckConstraint("balance >= 0", name="balance_not_negative"),
        sa.CheckConstraint("held >= 0", name="held_not_negative"),
        sa.CheckConstraint("held <= balance", name="held_within_balance"),
    )
    op.create_table(
        "audit_entry",
        *_columns(NUMBER, "id", primary_key=True),
        *_columns(sa.BigInteger(), "workspace_id"),
        *_columns(sa.Integer(), "number"),
        *_columns(sa.String(40), "action", "actor"),
        *_columns(sa.String(80), "target"),
        *_columns(sa.JSON(), "details"),
        *_columns(sa.LargeBinary(), "digest"),
        *_columns(MOMENT, "created_at"),
        sa.UniqueConstraint("workspace_id", "number"),
    )
    _index("audit_entry", ["created_at"])
    op.create_table(
        "hold",
        *_columns(sa.String(64), "operation", primary_key=True),
        *_columns(sa.BigInteger(), "workspace_id", "amount"),
        *_columns(sa.String(16), "service"),
        *_columns(MOMENT, "expires_at"),
        *_columns(sa.BigInteger(), "key_id", server_default="0"),
    )
    _index("hold", ["expires_at"])
    op.create_table(
        "invite",
        *_columns(sa.LargeBinary(), "digest", primary_key=True),
        *_columns(sa.String(254), "email", nullable=True),
        *_columns(sa.BigInteger(), "credit", nullable=True),
        *_columns(MOMENT, "created_at", "expires_at"),
    )
    _index("invite", ["expires_at"])
    op.create_table(
        "ledger_day",
        *_columns(sa.BigInteger(), "workspace_id", primary_key=True),
        *_columns(sa.Date(), "day", primary_key=True),
        *_columns(sa.String(16), "service", primary_key=True),
        *_columns(sa.BigInteger(), "key_id", primary_key=True),
        *_columns(sa.BigInteger(), "amount", "held", "units", "captures", "refunds"),
    )
    op.create_table(
        "ledger_entry",
        *_columns(NUMBER, "id", primary_key=True),
        *_columns(sa.BigInteger(), "workspace_id"),
        *_columns(sa.String(64), "operation"),
        *_columns(sa.String(16), "kind"),
        *_columns(sa.BigInteger(), "amount", "held", "balance_after"),
        *_columns(sa.String(16), "service"),
        *_columns(sa.BigInteger(), "units"),
        *_columns(MOMENT, "created_at"),
        *_columns(sa.BigInteger(), "key_id", server_default="0"),
        sa.UniqueConstraint("workspace_id", "operation", "kind"),
    )
    _index("ledger_entry", ["workspace_id", "created_at"])
    op.create_table(
        "secret_mark",
        *_columns(sa.String(40), "name", primary_key=True),
        *_columns(sa.LargeBinary(), "digest"),
    )
    op.create_table(
        "service",
        *_columns(sa.String(32), "id", primary_key=True),
    )
    op.create_table(
        "stored_bytes",
        *_columns(sa.BigInteger(), "workspace_id", primary_key=True),
        *_columns(sa.BigInteger(), "bytes"),
    )
    op.create_table(
        "stored_file",
        *_columns(sa.String(40), "id", primary_key=True),
        *_columns(sa.BigInteger(), "workspace_id"),
        *_columns(sa.String(16), "kind"),
        *_columns(sa.String(), "media_type"),
        *_columns(sa.BigInteger(), "size"),
        *_columns(MOMENT, "expires_at", nullable=True),
        *_columns(MOMENT, "created_at"),
    )
    _index("stored_file", ["expires_at"], ["workspace_id"])
    op.create_table(
        "users",
        *_columns(sa.BigInteger(), "id", primary_key=True),
        *_columns(sa.String(254), "email"),
        *_columns(sa.String(), "password_hash", "name", "company"),
        *_columns(MOMENT, "created_at", "updated_at"),
        *_columns(MOMENT, "tokens_since", nullable=True),
        sa.UniqueConstraint("email"),
    )
    op.create_table(
        "login_session",
        *_columns(sa.Uuid(), "id", primary_key=True),
        *_columns(sa.BigInteger(), "user_id", references="users.id"),
        *_columns(sa.String(64), "address"),
        *_columns(sa.String(200), "user_agent"),
        *_columns(MOMENT, "created_at"),
        *_columns(MOMENT, "last_used_at", nullable=True),
        *_columns(MOMENT, "expires_at"),
    )
    _index("login_session", ["expires_at"], ["user_id", "address"])
    op.create_table(
        "workspace",
        *_columns(sa.BigInteger(), "id", primary_key=True),
        *_columns(sa.BigInteger(), "owner_id", references="users.id"),
        *_columns(sa.String(), "name", "plan"),
        *_columns(MOMENT, "created_at"),
        *_columns(sa.String(), "retention", server_default="standard"),
        *_columns(MOMENT, "voice_turn_at", "job_turn_at", nullable=True),
        sa.UniqueConstraint("owner_id"),
    )
    op.create_table(
        "api_key",
        *_columns(sa.BigInteger(), "id", primary_key=True),
        *_columns(sa.BigInteger(), "workspace_id", references="workspace.id"),
        *_columns(sa.String(), "name"),
        *_columns(sa.LargeBinary(), "digest"),
        *_columns(sa.String(), "prefix"),
        *_columns(sa.JSON(), "scopes"),
        *_columns(MOMENT, "created_at"),
        *_columns(MOMENT, "last_used_at", "expires_at", "revoked_at", "refused_at", nullable=True),
        sa.UniqueConstraint("digest"),
    )
    _index("api_key", ["revoked_at"], ["workspace_id"])
    op.create_table(
        "chat",
        *_columns(sa.Uuid(), "id", primary_key=True),
        *_columns(sa.BigInteger(), "workspace_id", references="workspace.id"),
        *_columns(sa.String(), "title"),
        *_columns(MOMENT, "created_at", "updated_at"),
        *_columns(sa.BigInteger(), "stored_bytes", server_default="4096"),
    )
    _index("chat", ["updated_at"], ["workspace_id", "stored_bytes"], ["workspace_id", "updated_at"])
    op.create_table(
        "enrolled_speaker",
        *_columns(sa.Uuid(), "id", primary_key=True),
        *_columns(sa.BigInteger(), "workspace_id", references="workspace.id"),
        *_columns(sa.String(), "name"),
        *_columns(sa.LargeBinary(), "embedding"),
        *_columns(sa.Text(), "consent"),
        *_columns(sa.String(40), "consent_by"),
        *_columns(sa.String(64), "consent_address", nullable=True),
        *_columns(MOMENT, "created_at"),
    )
    _index("enrolled_speaker", ["workspace_id"])
    op.create_table(
        "event",
        *_columns(sa.String(40), "id", primary_key=True),
        *_columns(sa.BigInteger(), "workspace_id", references="workspace.id"),
        *_columns(sa.String(32), "kind"),
        *_columns(sa.Text(), "body", nullable=True),
        *_columns(MOMENT, "created_at"),
    )
    _index("event", ["created_at"], ["workspace_id"])
    _index_some("ix_event_with_body", "event", ["workspace_id"], "body IS NOT NULL")
    op.create_table(
        "idempotent_answer",
        *_columns(sa.BigInteger(), "workspace_id", references="workspace.id", primary_key=True),
        *_columns(sa.String(), "path", primary_key=True),
        *_columns(sa.String(255), "key", primary_key=True),
        *_columns(sa.LargeBinary(), "body_digest", nullable=True),
        *_columns(sa.String(), "lease", nullable=True),
        *_columns(MOMENT, "lease_until", nullable=True),
        *_columns(sa.Integer(), "status", nullable=True),
        *_columns(sa.JSON(), "headers"),
        *_columns(sa.LargeBinary(), "body", nullable=True),
        *_columns(MOMENT, "created_at", "expires_at"),
    )
    _index("idempotent_answer", ["expires_at"])
    op.create_table(
        "job",
        *_columns(sa.Uuid(), "id", primary_key=True),
        *_columns(sa.BigInteger(), "workspace_id", references="workspace.id"),
        *_columns(sa.String(16), "kind"),
        *_columns(sa.String(), "name"),
        *_columns(sa.Integer(), "parts"),
        *_columns(sa.String(16), "status"),
        *_columns(sa.Float(), "progress"),
        *_columns(MOMENT, "estimated_completion", nullable=True),
        *_columns(MOMENT, "created_at"),
        *_columns(MOMENT, "finished_at", nullable=True),
        *_columns(sa.String(40), "error", nullable=True),
        *_columns(sa.Text(), "reason", nullable=True),
        *_columns(sa.Float(), "seconds"),
        *_columns(sa.Integer(), "units"),
        *_columns(sa.Integer(), "held", nullable=True),
        *_columns(sa.BigInteger(), "key_id"),
        *_columns(sa.String(64), "operation"),
        *_columns(sa.String(40), "lease", nullable=True),
        *_columns(MOMENT, "lease_until", nullable=True),
        *_columns(sa.Integer(), "attempt"),
        *_columns(MOMENT, "tried_since", nullable=True),
    )
    _index("job", ["status", "created_at"], ["workspace_id", "created_at"])
    op.create_table(
        "pronunciation_dictionary",
        *_columns(sa.Uuid(), "id", primary_key=True),
        *_columns(sa.BigInteger(), "workspace_id", references="workspace.id"),
        *_columns(sa.String(), "name"),
        *_columns(sa.Integer(), "version", "size"),
        *_columns(sa.LargeBinary(), "content"),
        *_columns(MOMENT, "updated_at"),
    )
    _index("pronunciation_dictionary", ["workspace_id"])
    op.create_table(
        "subscription",
        *_columns(sa.Uuid(), "id", primary_key=True),
        *_columns(sa.BigInteger(), "workspace_id", references="workspace.id"),
        *_columns(sa.String(), "status", "billing_cycle"),
        *_columns(MOMENT, "anchor_at", "created_at"),
        sa.UniqueConstraint("workspace_id"),
    )
    op.create_table(
        "voice",
        *_columns(sa.Uuid(), "id", primary_key=True),
        *_columns(sa.BigInteger(), "workspace_id", references="workspace.id"),
        *_columns(sa.String(), "name", "name_key"),
        *_columns(sa.Text(), "description", nullable=True),
        *_columns(sa.String(8), "language", "gender"),
        *_columns(sa.Float(), "pitch_hz", nullable=True),
        *_columns(sa.String(16), "status"),
        *_columns(sa.Float(), "progress"),
        *_columns(MOMENT, "estimated_completion", "created_at"),
        *_columns(MOMENT, "finished_at", nullable=True),
        *_columns(sa.Float(), "similarity", nullable=True),
        *_columns(sa.String(40), "error", nullable=True),
        *_columns(sa.Text(), "reason", nullable=True),
        *_columns(sa.String(40), "engine", "pack_file", nullable=True),
        *_columns(sa.String(64), "pack_digest", nullable=True),
        *_columns(sa.String(40), "report_file", nullable=True),
        *_columns(sa.Text(), "consent", "consent_sentence", nullable=True),
        *_columns(sa.String(40), "consent_by", nullable=True),
        *_columns(sa.String(64), "consent_address", nullable=True),
        *_columns(MOMENT, "consent_at", nullable=True),
        *_columns(sa.String(64), "operation"),
        *_columns(sa.String(40), "lease", nullable=True),
        *_columns(MOMENT, "lease_until", nullable=True),
        *_columns(sa.Integer(), "attempt"),
        *_columns(sa.String(40), "checkpoint_file", nullable=True),
        *_columns(sa.String(16), "accent", nullable=True),
        *_columns(sa.Uuid(), "version_of", nullable=True),
        *_columns(sa.JSON(), "imported", nullable=True),
        *_columns(sa.String(40), "preview_file", nullable=True),
        *_columns(MOMENT, "preview_at", "tried_since", nullable=True),
    )
    _index(
        "voice",
        ["status", "created_at"],
        ["version_of"],
        ["workspace_id", "created_at"],
        ["workspace_id", "name_key"],
    )
    op.create_table(
        "webhook",
        *_columns(sa.Uuid(), "id", primary_key=True),
        *_columns(sa.BigInteger(), "workspace_id", references="workspace.id"),
        *_columns(sa.String(2048), "url"),
        *_columns(sa.JSON(), "events"),
        *_columns(sa.String(), "status"),
        *_columns(sa.LargeBinary(), "secret", "old_secret", nullable=True),
        *_columns(MOMENT, "old_secret_until", "failing_since", nullable=True),
        *_columns(MOMENT, "created_at"),
    )
    _index("webhook", ["workspace_id"])
    op.create_table(
        "chat_message",
        *_columns(sa.Uuid(), "chat_id", references="chat.id", primary_key=True),
        *_columns(sa.Integer(), "position", primary_key=True),
        *_columns(sa.String(), "role"),
        *_columns(sa.Text(), "content"),
        *_columns(sa.JSON(), "extra"),
        *_columns(sa.String(), "model", nullable=True),
        *_columns(sa.Integer(), "prompt_tokens", "completion_tokens", nullable=True),
        *_columns(MOMENT, "created_at"),
        *_columns(sa.String(16), "turn", nullable=True),
        *_columns(sa.Integer(), "follows", nullable=True),
    )
    op.create_table(
        "client_secret",
        *_columns(sa.LargeBinary(), "digest", primary_key=True),
        *_columns(sa.BigInteger(), "workspace_id", references="workspace.id"),
        *_columns(sa.BigInteger(), "key_id", references="api_key.id", nullable=True),
        *_columns(sa.Uuid(), "session_id", references="login_session.id", nullable=True),
        *_columns(sa.JSON(), "scopes"),
        *_columns(sa.LargeBinary(), "configuration"),
        *_columns(MOMENT, "created_at", "expires_at"),
    )
    _index(
        "client_secret", ["expires_at"], ["key_id"], ["session_id"], ["workspace_id", "expires_at"]
    )
    op.create_table(
        "delivery",
        *_columns(sa.Uuid(), "id", primary_key=True),
        *_columns(sa.String(40), "event_id", references="event.id"),
        *_columns(sa.Uuid(), "webhook_id", references="webhook.id"),
        *_columns(sa.String(), "status"),
        *_columns(sa.Integer(), "attempt"),
        *_columns(MOMENT, "next_at"),
        *_columns(MOMENT, "lease_until", nullable=True),
        *_columns(sa.String(), "lease", nullable=True),
        *_columns(MOMENT, "created_at"),
        sa.UniqueConstraint("event_id", "webhook_id"),
    )
    _index("delivery", ["webhook_id", "created_at"])
    _index_some("ix_delivery_pending", "delivery", ["webhook_id", "next_at"], "status = 'pending'")
    op.create_table(
        "job_file",
        *_columns(sa.Uuid(), "job_id", references="job.id", primary_key=True),
        *_columns(sa.String(16), "kind", primary_key=True),
        *_columns(sa.Integer(), "number", primary_key=True),
        *_columns(sa.String(40), "file_id"),
        *_columns(sa.Float(), "seconds"),
    )
    op.create_table(
        "voice_sample",
        *_columns(sa.Uuid(), "voice_id", references="voice.id", primary_key=True),
        *_columns(sa.Integer(), "position", primary_key=True),
        *_columns(sa.String(40), "file_id"),
        *_columns(sa.Float(), "seconds", "speech_share", "snr_db", "level_dbfs", "clipped_share"),
    )
    op.create_table(
        "voice_share",
        *_columns(sa.Uuid(), "id", primary_key=True),
        *_columns(sa.Uuid(), "voice_id", references="voice.id"),
        *_columns(sa.String(254), "email"),
        *_columns(sa.BigInteger(), "workspace_id", references="workspace.id", nullable=True),
        *_columns(MOMENT, "created_at"),
        *_columns(MOMENT, "accepted_at", nullable=True),
        *_columns(sa.LargeBinary(), "code_digest", nullable=True),
        *_columns(MOMENT, "expires_at", nullable=True),
    )
    _index("voice_share", ["voice_id"], ["workspace_id"])
    op.create_index("ix_voice_share_code_digest", "voice_share", ["code_digest"], unique=True)
    op.create_table(
        "delivery_attempt",
        *_columns(sa.Uuid(), "delivery_id", references="delivery.id", primary_key=True),
        *_columns(sa.Integer(), "number", primary_key=True),
        *_columns(sa.Integer(), "status_code", nullable=True),
        *_columns(sa.String(), "error", nullable=True),
        *_columns(sa.Integer(), "milliseconds"),
        *_columns(MOMENT, "created_at"),
    )

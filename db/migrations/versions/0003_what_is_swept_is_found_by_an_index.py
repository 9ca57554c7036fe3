"""Indexes for what is swept: events that still have a body, and chats by their last use."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with_body = sa.text("body IS NOT NULL")
    op.create_index(
        "ix_event_with_body",
        "event",
        ["workspace_id"],
        sqlite_where=with_body,
        postgresql_where=with_body,
    )
    op.create_index("ix_chat_updated_at", "chat", ["updated_at"])


def downgrade() -> None:
    op.drop_index("ix_chat_updated_at", "chat")
    op.drop_index("ix_event_with_body", "event")

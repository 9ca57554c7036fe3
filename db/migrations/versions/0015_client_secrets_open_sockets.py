"""Client secrets open sockets of browsers, for minutes and with the session that they hold."""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "client_secret",
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("workspace_id", sa.BigInteger(), nullable=False),
        sa.Column("key_id", sa.BigInteger(), nullable=True),
        sa.Column("session_id", sa.Uuid(), nullable=True),
        sa.Column("scopes", sa.JSON(), nullable=False),
        sa.Column("configuration", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["workspace_id"],
            ["workspace.id"],
            name=op.f("fk_client_secret_workspace_id"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["key_id"], ["api_key.id"], name=op.f("fk_client_secret_key_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["session_id"],
            ["login_session.id"],
            name=op.f("fk_client_secret_session_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_client_secret")),
    )
    # Those of keys and sessions find what is deleted with them.
    for column in ("expires_at", "key_id", "session_id"):
        op.create_index(op.f(f"ix_client_secret_{column}"), "client_secret", [column])
    op.create_index(
        "ix_client_secret_workspace_id_expires_at", "client_secret", ["workspace_id", "expires_at"]
    )


def downgrade() -> None:
    op.drop_table("client_secret")

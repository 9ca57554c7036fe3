"""Sums of the sizes of files by workspace, kept by a trigger, so that limits need one row."""

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None

ADD = (
    "INSERT INTO stored_bytes (workspace_id, bytes) VALUES (NEW.workspace_id, NEW.size) "
    "ON CONFLICT (workspace_id) DO UPDATE SET bytes = stored_bytes.bytes + excluded.bytes"
)
TAKE = (
    "UPDATE stored_bytes SET bytes = bytes - OLD.size WHERE workspace_id = OLD.workspace_id; "
    "DELETE FROM stored_bytes WHERE workspace_id = OLD.workspace_id AND bytes = 0"
)
TRIGGERS = {"stored_file_added": ("INSERT", ADD), "stored_file_deleted": ("DELETE", TAKE)}


def upgrade() -> None:
    op.create_table(
        "stored_bytes",
        sa.Column("workspace_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("workspace_id", name=op.f("pk_stored_bytes")),
    )
    is_sqlite = op.get_bind().dialect.name == "sqlite"
    if not is_sqlite:
        # A file that is added meanwhile would be in neither the sum nor the trigger's.
        op.execute("LOCK TABLE stored_file IN SHARE ROW EXCLUSIVE MODE")
    op.execute(
        "INSERT INTO stored_bytes (workspace_id, bytes) "
        "SELECT workspace_id, SUM(size) FROM stored_file GROUP BY workspace_id"
    )
    for name, (event, change) in TRIGGERS.items():
        begin = f"CREATE TRIGGER {name} AFTER {event} ON stored_file"
        if is_sqlite:
            op.execute(f"{begin} BEGIN {change}; END")
            continue
        op.execute(
            f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS "
            f"$$ BEGIN {change}; RETURN NULL; END $$"
        )
        op.execute(f"{begin} FOR EACH ROW EXECUTE FUNCTION {name}()")


def downgrade() -> None:
    is_sqlite = op.get_bind().dialect.name == "sqlite"
    for name in TRIGGERS:
        op.execute(f"DROP TRIGGER {name}" if is_sqlite else f"DROP TRIGGER {name} ON stored_file")
        if not is_sqlite:
            op.execute(f"DROP FUNCTION {name}")
    op.drop_table("stored_bytes")

"""Sums of the ledger by day, kept by a trigger, so that nobody has to read all entries."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

COLUMNS = ("amount", "held", "units", "captures", "refunds")


def upgrade() -> None:
    op.create_table(
        "ledger_day",
        sa.Column("workspace_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("day", sa.Date(), nullable=False),
        sa.Column("service", sa.String(length=16), nullable=False),
        *(sa.Column(name, sa.BigInteger(), nullable=False) for name in COLUMNS),
        sa.PrimaryKeyConstraint("workspace_id", "day", "service", name=op.f("pk_ledger_day")),
    )
    is_sqlite = op.get_bind().dialect.name == "sqlite"
    if not is_sqlite:
        # An entry that is added meanwhile would be in neither the sums nor the trigger's.
        op.execute("LOCK TABLE ledger_entry IN SHARE ROW EXCLUSIVE MODE")
    day = "date(created_at)" if is_sqlite else "(created_at AT TIME ZONE 'UTC')::date"
    op.execute(
        f"INSERT INTO ledger_day (workspace_id, day, service, {', '.join(COLUMNS)}) "
        f"SELECT workspace_id, {day}, service, SUM(amount), SUM(held), SUM(units), "
        "SUM(CASE kind WHEN 'capture' THEN 1 ELSE 0 END), "
        "SUM(CASE kind WHEN 'refund' THEN 1 ELSE 0 END) "
        f"FROM ledger_entry GROUP BY workspace_id, {day}, service"
    )
    day = day.replace("created_at", "NEW.created_at")
    add = (
        f"INSERT INTO ledger_day (workspace_id, day, service, {', '.join(COLUMNS)}) "
        f"VALUES (NEW.workspace_id, {day}, NEW.service, NEW.amount, NEW.held, NEW.units, "
        "CASE NEW.kind WHEN 'capture' THEN 1 ELSE 0 END, "
        "CASE NEW.kind WHEN 'refund' THEN 1 ELSE 0 END) "
        "ON CONFLICT (workspace_id, day, service) DO UPDATE SET "
        + ", ".join(f"{name} = ledger_day.{name} + excluded.{name}" for name in COLUMNS)
    )
    if is_sqlite:
        op.execute(f"CREATE TRIGGER ledger_entry_day AFTER INSERT ON ledger_entry BEGIN {add}; END")
        return
    op.execute(
        "CREATE FUNCTION ledger_entry_day() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN {add}; RETURN NULL; END $$"
    )
    op.execute(
        "CREATE TRIGGER ledger_entry_day AFTER INSERT ON ledger_entry "
        "FOR EACH ROW EXECUTE FUNCTION ledger_entry_day()"
    )


def downgrade() -> None:
    if op.get_bind().dialect.name == "sqlite":
        op.execute("DROP TRIGGER ledger_entry_day")
    else:
        op.execute("DROP TRIGGER ledger_entry_day ON ledger_entry")
        op.execute("DROP FUNCTION ledger_entry_day")
    op.drop_table("ledger_day")

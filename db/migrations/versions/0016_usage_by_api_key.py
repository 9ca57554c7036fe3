"""Entries of the ledger, and their sums by day, know the API key that paid."""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

SUMS = ("amount", "held", "units", "captures", "refunds")
BY_DAY = ("workspace_id", "day", "service")
BY_KEY = (*BY_DAY, "key_id")


def upgrade() -> None:
    _drop_sums()
    for table in ("ledger_entry", "hold"):
        column = sa.Column("key_id", sa.BigInteger(), server_default="0", nullable=False)
        op.add_column(table, column)
    _make_sums(BY_KEY)


def downgrade() -> None:
    _drop_sums()
    for table in ("ledger_entry", "hold"):
        op.drop_column(table, "key_id")
    _make_sums(BY_DAY)


def _is_sqlite() -> bool:
    return op.get_bind().dialect.name == "sqlite"


def _drop_sums() -> None:
    if _is_sqlite():
        op.execute("DROP TRIGGER ledger_entry_day")
    else:
        # An entry that is added meanwhile would be in neither the sums nor the trigger's.
        op.execute("LOCK TABLE ledger_entry IN SHARE ROW EXCLUSIVE MODE")
        op.execute("DROP TRIGGER ledger_entry_day ON ledger_entry")
        op.execute("DROP FUNCTION ledger_entry_day")
    op.drop_table("ledger_day")


def _make_sums(by: tuple[str, ...]) -> None:
    """The table with the sums of all entries, and the trigger that adds each new one."""
    ids = (sa.Column("key_id", sa.BigInteger(), autoincrement=False, nullable=False),)
    op.create_table(
        "ledger_day",
        sa.Column("workspace_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("day", sa.Date(), nullable=False),
        sa.Column("service", sa.String(length=16), nullable=False),
        *(ids if "key_id" in by else ()),
        *(sa.Column(name, sa.BigInteger(), nullable=False) for name in SUMS),
        sa.PrimaryKeyConstraint(*by, name=op.f("pk_ledger_day")),
    )
    day = "date(created_at)" if _is_sqlite() else "(created_at AT TIME ZONE 'UTC')::date"
    groups = ", ".join(by).replace("day", day)
    op.execute(
        f"INSERT INTO ledger_day ({', '.join((*by, *SUMS))}) "
        f"SELECT {groups}, SUM(amount), SUM(held), SUM(units), "
        "SUM(CASE kind WHEN 'capture' THEN 1 ELSE 0 END), "
        "SUM(CASE kind WHEN 'refund' THEN 1 ELSE 0 END) "
        f"FROM ledger_entry GROUP BY {groups}"
    )
    new = ", ".join(f"NEW.{name}" for name in by).replace("NEW.day", day)
    add = (
        f"INSERT INTO ledger_day ({', '.join((*by, *SUMS))}) "
        f"VALUES ({new.replace('created_at', 'NEW.created_at')}, NEW.amount, NEW.held, NEW.units, "
        "CASE NEW.kind WHEN 'capture' THEN 1 ELSE 0 END, "
        "CASE NEW.kind WHEN 'refund' THEN 1 ELSE 0 END) "
        f"ON CONFLICT ({', '.join(by)}) DO UPDATE SET "
        + ", ".join(f"{name} = ledger_day.{name} + excluded.{name}" for name in SUMS)
    )
    if _is_sqlite():
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

"""Room for tests that ask for more than the plan of a new workspace allows."""

from sqlmodel import Session, update

from db.accounts import Workspace
from db.database import make_engine


def raise_plans(database_url: str, plan: str = "enterprise") -> None:
    """Puts every workspace on `plan`; before its first request, since plans are remembered."""
    engine = make_engine(database_url)
    try:
        with Session(engine) as session:
            session.exec(update(Workspace).values(plan=plan))
            session.commit()
    finally:
        engine.dispose()

"""The name of the service that a database belongs to, however many processes it has."""

from sqlmodel import Session, select

from db.keeping_tables import Service


def service_id(session: Session) -> str:
    """Drawn when the tables were made; 16 hexadecimal digits."""
    return session.exec(select(Service.id)).one()

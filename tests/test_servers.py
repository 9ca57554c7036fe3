"""The PostgreSQL and Redis servers that the test run starts."""

import psycopg
import pytest
import redis
from sqlalchemy import make_url

from db.database import postgres_parameters


@pytest.mark.postgres
def test_postgres_answers(postgres_url: str) -> None:
    address = postgres_parameters(make_url(postgres_url))
    with psycopg.connect(**address) as connection:
        row = connection.execute("select 6 * 7").fetchone()
    assert row == (42,)
    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(**{**address, "password": "another"})


@pytest.mark.redis
def test_redis_answers(redis_url: str) -> None:
    with redis.Redis.from_url(redis_url) as client:
        client.set("key", "value")
        assert client.get("key") == b"value"
    with redis.Redis(port=client.get_connection_kwargs()["port"]) as stranger:
        with pytest.raises(redis.AuthenticationError):
            stranger.ping()

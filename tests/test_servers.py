"""The PostgreSQL and Redis servers that the test run starts."""

import psycopg
import pytest
import redis


@pytest.mark.postgres
def test_postgres_answers(postgres_url: str) -> None:
    with psycopg.connect(postgres_url.replace("+psycopg", "")) as connection:
        row = connection.execute("select 6 * 7").fetchone()
    assert row == (42,)


@pytest.mark.redis
def test_redis_answers(redis_url: str) -> None:
    with redis.Redis.from_url(redis_url) as client:
        client.set("key", "value")
        assert client.get("key") == b"value"

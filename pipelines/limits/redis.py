"""Windows and leases in Redis: each call is one atomic script, by the clock of the server. That
clock may be set back, so a window or lease with more than its full length left has expired."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from configs.load import load_yaml
from pipelines.limits.limits import LEASE_S, Hit, LimitStore, RateWindow, StoreLost

# Timeout of each read and write; the library's is 5 s, with ten attempts. Callers give up earlier.
TIMEOUT_S = 1.0
PREFIX = "antiphon:"
GATEWAYS = f"{PREFIX}gateways"
BATCH_SIZE = 256  # scripts in one message

# Sent whole each time: a restarted server has lost its cached scripts.
_SCRIPTS = load_yaml(dict[str, str], str(Path(__file__).with_name("redis.yaml")))
HIT = _SCRIPTS["hit"]
ACQUIRE, RENEW = (_SCRIPTS["leases"] + _SCRIPTS[name] for name in ("acquire", "renew"))


class RedisStore(LimitStore):
    """Store in Redis; connects at the first call, and again after each failure."""

    backend = "redis"

    def __init__(self, url: str) -> None:
        super().__init__()
        self._redis = Redis.from_url(
            url,
            socket_timeout=TIMEOUT_S,
            socket_connect_timeout=TIMEOUT_S,
            retry=Retry(NoBackoff(), 0),
            protocol=2,
        )

    async def hits(self, hits: list[Hit]) -> list[RateWindow]:
        answers = await self._all(
            [
                (HIT, f"{PREFIX}window:{hit.key}", hit.limit, hit.window_s * 1000, hit.cost)
                for hit in hits
            ]
        )
        return [
            RateWindow(bool(allowed), hit.limit, max(0, hit.limit - used), reset_at, left_ms / 1000)
            for hit, (allowed, used, left_ms, reset_at) in zip(hits, answers, strict=True)
        ]

    async def acquire(self, key: str, member: str, limit: int) -> bool:
        [taken] = await self._all([(ACQUIRE, _leases(key), round(LEASE_S * 1000), limit, member)])
        return bool(taken)

    async def renew(self, held: Mapping[str, list[str]]) -> None:
        lease_ms = round(LEASE_S * 1000)
        commands = [(RENEW, _leases(key), lease_ms, *members) for key, members in held.items()]
        [self.gateways, *_] = await self._all([(RENEW, GATEWAYS, lease_ms, self._name), *commands])

    async def release(self, key: str, member: str) -> None:
        with _as_store_lost():
            await self._redis.zrem(_leases(key), member)

    async def close(self) -> None:
        with suppress(StoreLost), _as_store_lost():
            await self._redis.zrem(GATEWAYS, self._name)
        await self._redis.aclose()

    async def _all(self, commands: list[tuple[Any, ...]]) -> list[Any]:
        """Runs scripts over one key each, without a transaction, since they are independent."""
        answers: list[Any] = []
        waiting = iter(commands)
        with _as_store_lost():
            while batch := list(islice(waiting, BATCH_SIZE)):
                async with self._redis.pipeline(transaction=False) as pipeline:
                    for script, key, *arguments in batch:
                        pipeline.eval(script, 1, key, *arguments)
                    answers += await pipeline.execute()
        return answers


def _leases(key: str) -> str:
    return f"{PREFIX}leases:{key}"


@contextmanager
def _as_store_lost() -> Iterator[None]:
    try:
        yield
    except (RedisError, OSError) as error:
        # Omits the error's text, which may contain the address and details of the password.
        raise StoreLost(type(error).__name__) from None

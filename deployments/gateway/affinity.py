"""Sends the requests of a conversation to the replica whose cache has its prompt. With two
replicas, the first token takes half as long as with Ray's default, which takes the emptier of two
replicas (benchmarks/chat/affinity.py). Ray's ConsistentHashRouter is as fast, but ignores load."""

import asyncio
import json
import math
from collections.abc import Mapping
from hashlib import blake2b

from ray.serve.request_router import PendingRequest, RequestRouter, RunningReplica

from models.llm.base import GenerationRequest

PLACES = 8  # concurrent requests for which a replica has slots and caches, as in the CPU profile


def conversation(request: GenerationRequest) -> str:
    """Return a key that all turns of a conversation share, and that differs between tenants. It is
    a digest of the conversation's id, or else of the messages up to and including the first whose
    role is not `system`."""
    messages = request.messages
    first = next((i for i, m in enumerate(messages) if m.role != "system"), len(messages))
    begin = [request.cache_key] if request.cache_key else [m.content for m in messages[: first + 1]]
    return blake2b(json.dumps([request.owner, begin]).encode(), digest_size=16).hexdigest()


def preferred(key: str, lengths: Mapping[str, int]) -> str:
    """Return the replica for a conversation, given the number of requests of each replica.

    With rendezvous hashing, only the share of an added or removed replica moves. With bounded loads
    (Mirrokni, Thorup and Zadimoghaddam, 2018), a replica without a free place is skipped, unless it
    has no more requests than the mean.
    """
    most = max(PLACES, math.ceil((sum(lengths.values()) + 1) / len(lengths)))
    ranked = sorted(lengths, key=lambda replica: blake2b(f"{key}{replica}".encode()).digest())
    return next(replica for replica in ranked if lengths[replica] < most)


class ConversationRouter(RequestRouter):
    """Routes the calls of a handle by their `session_id`, or else to the replica with the fewest
    requests."""

    async def choose_replicas(
        self,
        candidate_replicas: list[RunningReplica],
        pending_request: PendingRequest | None = None,
    ) -> list[list[RunningReplica]]:
        ranks = [candidate_replicas]
        if pending_request is None:
            return ranks
        pending_request.routing_context.should_backoff = True
        if len(candidate_replicas) > 1 and (key := pending_request.metadata.session_id):
            await asyncio.sleep(0)  # lets the previous request be counted: many may arrive at once
            replicas = {replica.replica_id.unique_id: replica for replica in candidate_replicas}
            cached = self.replica_queue_len_cache
            lengths = {
                name: cached.get(replica.replica_id) or 0 for name, replica in replicas.items()
            }
            ranks.insert(0, [replicas[preferred(key, lengths)]])
        return ranks

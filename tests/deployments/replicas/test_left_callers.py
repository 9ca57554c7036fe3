"""Requests for recognition whose caller leaves while they are decoded."""

import asyncio

from tests.deployments.replicas.test_priority_batcher import Engine, settle


async def test_the_engine_knows_whose_caller_left_while_it_decodes() -> None:
    engine = Engine()
    tasks = [engine.submit("blocker")]
    await settle()
    tasks += [engine.submit("gone"), engine.submit("stays")]
    await settle()
    engine.gates[0].set()
    await settle()
    running = {str(one.language): one.budget for one in engine.requests}
    assert running["gone"].is_wanted() and running["stays"].is_wanted()
    tasks[1].cancel()
    await settle()
    assert not running["gone"].is_wanted()
    assert running["gone"].is_spent
    assert running["stays"].is_wanted()
    await engine.release_all()
    await asyncio.gather(*tasks, return_exceptions=True)

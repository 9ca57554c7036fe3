"""The closed form of docs/sizing.md: machines for a number of sessions, from the measured figures.

Waiting times are those of the queue M/M/c. The number of servers follows from the probability that
a call has to wait (A. K. Erlang, 1917), which for many servers leads to the square-root rule of
Halfin and Whitt, 1981.
"""

import math
from dataclasses import dataclass, field

from benchmarks.capacity.figures import Figures
from deployments.autoscaling import GATEWAY_FULL

WAIT_S, WAIT_SHARE = 0.1, 0.05  # share of turns that may wait longer, at each model
GATEWAY_BUSY = 0.6  # share of a core above which its event loop is late
POSTGRES_BUSY = 0.6
REDIS_BUSY = 0.6
LEASES = 10_000  # number for which leases were measured
SOCKETS = 2000  # of a gateway, in configs/admission.yaml
CONNECTIONS = 8  # of a gateway or worker to PostgreSQL
POSTGRES_CONNECTIONS = 100  # by default
REPLICAS_OF_CLUSTER = 2000  # assumed limit of Ray Serve's controller
WORKSPACE_SESSIONS = 500  # of the largest plan, in configs/plans.yaml
SESSION_S = 180.0  # assumed
FIRST_CLAUSE_TOKENS = 12
CORES_OF_REPLICA = {"stt": 2, "llm": 2, "tts": 1}
DEPLOYMENTS = {"stt": "STT", "llm": "Chat", "tts": "TTSFast"}


@dataclass(frozen=True, slots=True)
class Stage:
    """Work of one model for a turn, in core seconds."""

    first_s: float  # before the listener hears anything
    rest_s: float = 0.0  # interim texts, the rest of an answer

    @property
    def core_s(self) -> float:
        return self.first_s + self.rest_s


@dataclass(frozen=True, slots=True)
class Turns:
    """What the turns of one session need."""

    cycle_s: float  # from one turn to the next
    delay_s: float  # from the last sound in to the first sound out, on an idle service
    stages: dict[str, Stage]
    gateway_cores: float  # of a session
    other_cores: float = 0.0  # ModelIndex, Ray
    charges: float = 3.0  # of a turn
    session_s: float = SESSION_S
    answer_s: float = 4.0  # of audio
    cores: dict[str, int] = field(default_factory=lambda: dict(CORES_OF_REPLICA))

    @classmethod
    def measured(cls, figures: Figures) -> "Turns":
        """Derive them from the figures of one session on the whole service, and of the engines
        alone."""
        session = figures["sessions"]["sessions"]["1"]
        engines = figures["models"]["cores_1"]
        answer = engines["llm"]["one"]
        cpu_s = session["cpu_s_per_turn"]
        cycle_s = session["span_s"] / session["turns"]
        first_s = {
            "stt": engines["stt"]["decode_ms"] / 1000,
            "llm": answer["first_ms"] / 1000 + FIRST_CLAUSE_TOKENS / answer["tokens_per_s"],
            "tts": engines["tts"]["Fast"]["first_ms"] / 1000,
        }
        stages = {}
        for name, deployment in DEPLOYMENTS.items():
            core_s = cpu_s.get(deployment, 0.0)
            stage_s = min(first_s[name], core_s)
            stages[name] = Stage(stage_s, core_s - stage_s)
        accounted = {*DEPLOYMENTS.values(), "Gateway"}
        return cls(
            cycle_s=cycle_s,
            delay_s=session["sound_p50_ms"] / 1000,
            stages=stages,
            gateway_cores=cpu_s["Gateway"] / cycle_s,
            other_cores=sum(s for name, s in cpu_s.items() if name not in accounted) / cycle_s,
            charges=session["charges_per_turn"],
            answer_s=session["answer_audio_s"],
        )

    @property
    def sessions_of_gateway(self) -> int:
        """Sessions that a gateway's core carries, but at most GATEWAY_FULL of its sockets;
        `sockets` has to be set to this number divided by GATEWAY_FULL."""
        by_core = GATEWAY_BUSY / max(self.gateway_cores, 1e-9)
        return max(1, math.floor(min(GATEWAY_FULL * SOCKETS, by_core)))


def erlang_c(servers: int, load: float) -> float:
    """The probability to wait in M/M/c; `load` in erlangs. 1 where the queue grows for ever."""
    if load >= servers:
        return 1.0
    inverse = 1.0  # of Erlang B, by its recursion
    for number in range(1, servers + 1):
        inverse = 1.0 + inverse * number / load
    blocked = 1.0 / inverse
    return blocked / (1.0 - load / servers * (1.0 - blocked))


def late_share(servers: int, load: float, service_s: float, wait_s: float) -> float:
    """The share of calls that wait longer than `wait_s`."""
    if load >= servers:
        return 1.0
    return erlang_c(servers, load) * math.exp(-(servers - load) * wait_s / service_s)


def servers_for(load: float, service_s: float) -> int:
    """The fewest servers with which at most WAIT_SHARE of the calls wait longer than WAIT_S."""
    servers = max(1, math.ceil(load + 1e-9))
    while late_share(servers, load, service_s, WAIT_S) > WAIT_SHARE:
        servers += 1
    return servers


def plan(sessions: int, turns: Turns, figures: Figures) -> Figures:
    """Cores, replicas and rates for so many concurrent sessions."""
    per_s = sessions / turns.cycle_s
    models: Figures = {}
    for name, stage in turns.stages.items():
        load = per_s * stage.core_s
        # A turn calls a model twice: for what the listener waits for, and for the rest.
        cores = servers_for(load, stage.core_s / 2)
        models[name] = {
            "busy_cores": load,
            "cores": cores,
            "replicas": math.ceil(cores / turns.cores[name]),
        }
    gateways = math.ceil(sessions / turns.sessions_of_gateway)
    pairs = per_s * turns.charges
    pair_s = figures["ledger"]["thousand_workspaces_pgbench"]["postgres_cpu_ms_per_pair"] / 1000
    postgres = pairs * pair_s / POSTGRES_BUSY
    events = sessions / turns.session_s
    workers = math.ceil(events * figures["outbox"]["one_worker"]["worker_cpu_ms"] / 1000 / 0.8)
    replicas = sum(model["replicas"] for model in models.values()) + gateways + workers + 1
    cores = sum(model["cores"] for model in models.values()) + gateways + workers
    cores += math.ceil(postgres) + math.ceil(sessions * turns.other_cores)
    rate = turns.charges / turns.cycle_s
    return {
        "sessions": sessions,
        "turns_per_s": per_s,
        "models": models,
        "gateways": gateways,
        "workers": workers,
        "charges_per_s": pairs,
        "postgres_cores": postgres,
        "postgres_connections": CONNECTIONS * (gateways + workers),
        "events_per_s": events,
        "replicas": replicas,
        "clusters": math.ceil(replicas / REPLICAS_OF_CLUSTER),
        "cores": cores,
        "redis_cores": sessions * figures["sockets"]["idle_redis_cores"] / LEASES,
        "busiest_workspace_pairs_per_s": min(sessions, WORKSPACE_SESSIONS) * rate,
    }


def limits(turns: Turns, figures: Figures) -> dict[str, float]:
    """The number of sessions at which each part reaches its limit, the lowest first."""
    sessions = 10_000
    planned = plan(sessions, turns, figures)
    pairs_per_s = figures["ledger"]["one_workspace"]["pairs_per_s"]
    deliveries_per_s = figures["outbox"]["one_worker"]["deliveries_per_s"]
    sessions_at_end = {
        "connections of PostgreSQL": sessions
        * POSTGRES_CONNECTIONS
        / planned["postgres_connections"],
        "controller's replicas": sessions * REPLICAS_OF_CLUSTER / planned["replicas"],
        "one worker's outbox": sessions * deliveries_per_s / planned["events_per_s"],
        "one gateway": float(turns.sessions_of_gateway),
        "16 cores of PostgreSQL": sessions * 16 / planned["postgres_cores"],
        "one Redis, of one core": sessions * REDIS_BUSY / planned["redis_cores"],
        "account of one workspace": pairs_per_s / (turns.charges / turns.cycle_s),
    }
    return dict(sorted(sessions_at_end.items(), key=lambda item: item[1]))

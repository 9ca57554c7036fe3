"""A discrete-event simulation of many sessions, fed with benchmarks/capacity/measured.json.

    python -m benchmarks.capacity.simulation

Sessions arrive by a Poisson process whose rate rises from half of the peak to the peak in ten
minutes, which is steeper than in a real day. In each turn, the user speaks, and the work then
passes through the queues of the recogniser, the language model and the voice; each charge locks the
row of the workspace in the ledger. Models and gateways grow by the service's own `by_load`, with
Serve's delays. Queues are first come, first served, which is worse than the schedulers of the
service. A cluster is simulated with at most 10,000 sessions; 1,000,000 sessions are 100 such
clusters.
"""

import heapq
import json
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from benchmarks.capacity.derivation import WORKSPACE_SESSIONS, Turns, limits, plan
from benchmarks.capacity.figures import Figures, read, rounded
from benchmarks.harness.report import parser, percentile
from deployments.autoscaling import GATEWAY_FULL, LOAD, VOICE_FULL, WAIT_S, by_load

UPSCALE_S, DOWNSCALE_S = 10.0, 300.0  # of serve_config.yaml
START_S = 15.0  # from the decision to a replica that serves
TICK_S = 1.0
RISE_S, PEAK_S, LOW = 600.0, 300.0, 0.5
WORKSPACES_OF_OTHERS = 200
SLOTS = 8  # of a language model's replica
MARGIN = 0.25  # between the closed form and the simulation


class Station:
    """Servers with one queue, first come, first served. Calls come in the order of time."""

    def __init__(self, servers: int) -> None:
        self._free_at = [0.0] * servers  # a heap
        self._ends: list[float] = []  # of calls in the station, a heap
        self.servers = servers
        self.most = servers
        self.busy_s = 0.0

    def serve(self, now: float, service_s: float) -> float:
        """When the call that comes now is done."""
        end = max(now, heapq.heappop(self._free_at)) + service_s
        heapq.heappush(self._free_at, end)
        heapq.heappush(self._ends, end)
        self.busy_s += service_s
        return end

    def inside(self, now: float) -> int:
        """Calls that are served or wait."""
        while self._ends and self._ends[0] <= now:
            heapq.heappop(self._ends)
        return len(self._ends)

    def resize(self, servers: int, from_: float) -> None:
        """Add servers that serve from that time on, or remove those that are free first."""
        while self.servers < servers:
            heapq.heappush(self._free_at, from_)
            self.servers += 1
        while self.servers > servers:
            heapq.heappop(self._free_at)
            self.servers -= 1
        self.most = max(self.most, self.servers)


@dataclass
class Context:
    """What `by_load` reads of Serve's context."""

    target_num_replicas: int
    aggregated_metrics: dict[str, dict[Any, float]] | None = None


@dataclass
class Autoscaler:
    """Scales as Serve does: a decision has to last for the delay before it is carried out."""

    load: Callable[[float], float]  # of all replicas together, at a time
    resize: Callable[[int, float], None]
    replicas: int
    most: int = 0
    _up_since: float | None = None
    _down_since: float | None = None

    def tick(self, now: float) -> None:
        context: Any = Context(self.replicas, {LOAD: {0: self.load(now)}})
        wanted, _ = by_load(context)
        wanted = max(1, math.ceil(wanted))
        self._up_since = (self._up_since or now) if wanted > self.replicas else None
        self._down_since = (self._down_since or now) if wanted < self.replicas else None
        up = self._up_since is not None and now - self._up_since >= UPSCALE_S
        if up or (self._down_since is not None and now - self._down_since >= DOWNSCALE_S):
            self.resize(wanted, now + START_S if up else now)
            self.replicas, self._up_since, self._down_since = wanted, None, None
        self.most = max(self.most, self.replicas)


@dataclass
class Outcome:
    """What a run has counted."""

    arrived: int = 0
    ended: int = 0
    refused: int = 0
    open: int = 0
    turns: int = 0
    answered: int = 0
    gaps: int = 0
    delays_s: list[float] = field(default_factory=list)
    row_waits_s: list[float] = field(default_factory=list)


class Cluster:
    """One cluster and its sessions, from the beginning to the end of a run."""

    def __init__(
        self,
        sessions: int,
        turns: Turns,
        cores: dict[str, int],
        *,
        row_s: float = 0.002,
        scales: bool = True,
        rise_s: float = RISE_S,
        peak_s: float = PEAK_S,
        low: float = LOW,
        seed: int = 1,
        shared: Station | None = None,
    ) -> None:
        """`cores` are those of each model at the beginning; with `shared`, all models share one
        station. `row_s` is how long a transaction holds the row of its account."""
        self.outcome = Outcome()
        self._turns, self._row_s, self._peak, self._low = turns, row_s, sessions, low
        self._rise_s, self._end_s = rise_s, rise_s + peak_s
        self._chance = random.Random(seed)
        self._events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._order = count()
        self._rows: dict[int, float] = {}  # until when each account's row is locked
        self.stations = {name: shared or Station(max(1, cores[name])) for name in turns.stages}
        self.gateways = math.ceil(sessions * (low if scales else 1.0) / turns.sessions_of_gateway)
        self.autoscalers = self._autoscalers() if scales and shared is None else {}
        self._base_s = turns.delay_s - sum(stage.first_s for stage in turns.stages.values())

    def _autoscalers(self) -> dict[str, Autoscaler]:
        scalers = {}
        turns = self._turns
        for name, station in self.stations.items():
            cores, stage = turns.cores[name], turns.stages[name]
            full = {"stt": cores, "llm": SLOTS, "tts": VOICE_FULL}[name]

            def load(
                now: float,
                name: str = name,
                station: Station = station,
                full: int = full,
                cores: int = cores,
            ) -> float:
                inside = station.inside(now)
                if name == "tts":
                    return inside / full
                slots = station.servers // cores * full  # of all replicas
                waits = max(0, inside - slots) * turns.stages[name].core_s / 2
                return min(inside, slots) / full + waits / cores / WAIT_S

            def resize(
                replicas: int, at: float, station: Station = station, cores: int = cores
            ) -> None:
                station.resize(replicas * cores, at)

            assert stage.core_s > 0
            scalers[name] = Autoscaler(load, resize, max(1, station.servers // cores))

        def grow(gateways: int, at: float) -> None:
            self._at(at, self._set_gateways, gateways)

        def fullness(_: float) -> float:
            return self.outcome.open / turns.sessions_of_gateway

        scalers["gateways"] = Autoscaler(fullness, grow, self.gateways)
        return scalers

    def _set_gateways(self, _: float, gateways: int) -> None:
        self.gateways = gateways

    def _at(self, when: float, work: Callable[..., None], *arguments: Any) -> None:
        heapq.heappush(self._events, (when, next(self._order), work, arguments))

    def run(self) -> Outcome:
        for _ in range(round(self._peak * self._low)):
            self._at(0.0, self._arrive)
        self._at(0.0, self._next_arrival)
        if self.autoscalers:
            self._at(TICK_S, self._tick)
        while self._events and self._events[0][0] < self._end_s:
            now, _, work, arguments = heapq.heappop(self._events)
            work(now, *arguments)
        return self.outcome

    def _tick(self, now: float) -> None:
        for scaler in self.autoscalers.values():
            scaler.tick(now)
        self._at(now + TICK_S, self._tick)

    def _next_arrival(self, now: float) -> None:
        """Draw the next arrival by thinning (Lewis and Shedler, 1979). The rate lets the open
        sessions follow the rise: while they rise, more sessions must arrive than end."""
        slope = self._peak * (1 - self._low) / self._rise_s if self._rise_s else 0.0
        most = self._peak / self._turns.session_s + slope
        when = now + self._chance.expovariate(most)
        share = min(1.0, self._low + (1 - self._low) * when / self._rise_s) if self._rise_s else 1.0
        rate = self._peak * share / self._turns.session_s + (slope if when < self._rise_s else 0.0)
        if self._chance.random() < rate / most:
            self._at(when, self._arrive)
        self._at(when, self._next_arrival)

    def _arrive(self, now: float) -> None:
        self.outcome.arrived += 1
        if self.outcome.open * GATEWAY_FULL >= self.gateways * self._turns.sessions_of_gateway:
            self.outcome.refused += 1
            return
        self.outcome.open += 1
        until = now + self._chance.expovariate(1 / self._turns.session_s)
        busy = WORKSPACE_SESSIONS / max(self._peak, WORKSPACE_SESSIONS)
        is_busy = self._chance.random() < busy
        workspace = 0 if is_busy else self._chance.randint(1, WORKSPACES_OF_OTHERS)
        self._at(until, self._leave)
        self._at(now + self._chance.random() * self._turns.cycle_s, self._speak, workspace, until)

    def _leave(self, _: float) -> None:
        self.outcome.open -= 1
        self.outcome.ended += 1

    def _speak(self, now: float, workspace: int, until: float) -> None:
        """The user begins; interim texts are decoded meanwhile."""
        if now >= until:
            return
        length = self._varied(self._turns.cycle_s / 4)
        self._work(now, "stt", "rest")
        self._at(now + length, self._end_turn, workspace, until)

    def _end_turn(self, now: float, workspace: int, until: float) -> None:
        self.outcome.turns += 1
        self._at(self._work(now, "stt", "first"), self._answer, now, workspace, until)

    def _answer(self, now: float, began: float, workspace: int, until: float) -> None:
        """The answer waits for the holds, not for the captures; but both lock the same row."""
        held = now
        for _ in range(round(self._turns.charges)):
            held = self._rows[workspace] = max(held, self._rows.get(workspace, 0.0)) + self._row_s
        self.outcome.row_waits_s.append(held - now)
        for _ in range(round(self._turns.charges)):
            self._rows[workspace] += self._row_s
        self._at(held, self._generate, began, workspace, until)

    def _generate(self, now: float, began: float, workspace: int, until: float) -> None:
        first = self._work(now, "llm", "first")
        self._work(now, "llm", "rest")
        self._at(first, self._synthesize, began, workspace, until)

    def _synthesize(self, now: float, began: float, workspace: int, until: float) -> None:
        sounds = self._work(now, "tts", "first")
        # The rest must be ready when the first clause, about half of the answer, has been played.
        self.outcome.gaps += self._work(now, "tts", "rest") > sounds + self._turns.answer_s / 2
        self.outcome.answered += 1
        self.outcome.delays_s.append(sounds - began + self._base_s)
        again = max(self._turns.cycle_s * 3 / 4 - self._turns.delay_s, 0.0)
        self._at(sounds + self._varied(again), self._speak, workspace, until)

    def _work(self, now: float, name: str, part: str) -> float:
        stage = self._turns.stages[name]
        mean_s = stage.first_s if part == "first" else stage.rest_s
        return self.stations[name].serve(now, self._varied(mean_s)) if mean_s else now

    def _varied(self, mean_s: float) -> float:
        """Draw a time between 0.5 and 1.5 times the mean, since texts differ in length."""
        return mean_s * (0.5 + self._chance.random())


def run(sessions: int, turns: Turns, figures: Figures, *, scales: bool = True) -> Figures:
    """A cluster with the closed form's cores; with `scales` it begins with half of them."""
    planned = plan(sessions, turns, figures)
    start = plan(round(sessions * LOW), turns, figures) if scales else planned
    cores = {name: model["replicas"] * turns.cores[name] for name, model in start["models"].items()}
    row_s = 1 / figures["ledger"]["one_workspace"]["pairs_per_s"] / 2
    steady: Figures = {} if scales else {"rise_s": 0.0, "low": 1.0}
    cluster = Cluster(sessions, turns, cores, row_s=row_s, scales=scales, **steady)
    outcome = cluster.run()
    assert outcome.arrived == outcome.ended + outcome.open + outcome.refused
    return {
        "sessions": sessions,
        "turns": outcome.turns,
        "delay_p50_s": percentile(outcome.delays_s, 50),
        "delay_p95_s": percentile(outcome.delays_s, 95),
        "turns_with_gaps": outcome.gaps / max(outcome.answered, 1),
        "row_wait_p95_s": percentile(outcome.row_waits_s, 95),
        "refused": outcome.refused,
        "most_replicas": {name: scaler.most for name, scaler in cluster.autoscalers.items()},
        "planned": {name: model["replicas"] for name, model in planned["models"].items()}
        | {"gateways": planned["gateways"]},
    }


def predict(sessions: int, turns: Turns, cores: int, span_s: float) -> Outcome:
    """Simulate a few sessions on one machine, where models, gateway and clients share the cores."""
    busy = sessions * (turns.gateway_cores + turns.other_cores) / cores
    slow = 1 / (1 - min(busy, 0.9))
    stages = {
        name: replace(stage, first_s=stage.first_s * slow, rest_s=stage.rest_s * slow)
        for name, stage in turns.stages.items()
    }
    here = replace(turns, stages=stages, session_s=1e9)
    shared = Station(cores)
    options: Figures = {"rise_s": 0.0, "low": 1.0, "peak_s": span_s}
    # No arrivals but those of the beginning: their sessions outlast the run.
    return Cluster(sessions, here, {}, scales=False, shared=shared, **options).run()


def main() -> None:
    parser(__doc__).parse_args()
    figures = read()
    turns = Turns.measured(figures)
    print(f"measured on {figures['machine']}; one turn of a session:", turns)
    for sessions, session in figures["sessions"]["sessions"].items():
        outcome = predict(int(sessions), turns, 2, 600.0)
        print(
            f"{sessions} sessions here: predicted p50 {percentile(outcome.delays_s, 50):.2f} s, "
            f"p95 {percentile(outcome.delays_s, 95):.2f} s; measured "
            f"{session['sound_p50_ms'] / 1000:.2f} and {session['sound_p95_ms'] / 1000:.2f} s"
        )
    for sessions in (100, 10_000, 1_000_000):
        print(json.dumps(rounded(plan(sessions, turns, figures), 3)))
    for sessions in (100, 10_000):
        for scales in (False, True):
            print(json.dumps(rounded(run(sessions, turns, figures, scales=scales), 3)), flush=True)
    for name, at in limits(turns, figures).items():
        print(f"{name} ends at {at:,.0f} sessions")


if __name__ == "__main__":
    main()

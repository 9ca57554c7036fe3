"""Fetches the models that deployments want, and swaps them in. Until then, other models answer, or
none. A thread of `make run` polls the running deployments, so that it also notices deployments that
want another model later, and weights that an operator has fetched."""

import errno
import os
import re
import shutil
from collections.abc import Callable
from contextlib import suppress
from threading import Event, Thread
from typing import Any, NamedTuple

from yaml import YAMLError

from configs.load import explain
from configs.settings import Settings, weights_dir
from deployments.cluster import serve_api
from deployments.cluster.compat import driver_handle
from deployments.replicas.choice import is_here
from deployments.rollout import serve_config
from deployments.rollout.deploy import deploy_config
from models.errors import EngineError
from models.registry import artefacts_of, kind_of
from models.weights.fetch import FetchProgress, discard_corrupt, fetch
from models.weights.store import WeightStore
from pipelines.ports import Arrival
from pipelines.storage.room import floor_bytes
from telemetry.logs import redact

LOOK_S = 30.0  # interval of checks of what runs
PAUSE_S, LONGEST_PAUSE_S = 300.0, 3600.0  # pauses after a failed download or swap
TELL_S = 5.0  # interval of progress reports
STOP_S = 10.0


class Stopped(Exception):
    """The service stops; the next start continues the download."""


class Waiting(NamedTuple):
    """A deployment and the model that it wants."""

    application: str
    deployment: str
    model: str  # name of its configuration


class ModelArrival:
    """Follows the deployments of models in a thread, until it is closed."""

    def __init__(self, settings: Settings, dashboard: str, say: Callable[[str], None]) -> None:
        self._settings, self._dashboard, self._say = settings, dashboard, say
        self._stop = Event()
        self._coming: Arrival | None = None
        self._problem = ""  # the last reported problem, without numbers
        self._thread = Thread(target=self._follow, name="model arrival", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End a download, which the next start continues."""
        self._stop.set()
        self._thread.join(STOP_S)

    def _follow(self) -> None:
        # Applies to this thread and to its downloads. SCHED_IDLE would be too low: on a service
        # that is always busy, the model would never arrive.
        os.setpriority(os.PRIO_PROCESS, 0, 19)
        before: Waiting | None = None
        pause_s, failures = PAUSE_S, 0
        while not self._stop.is_set():
            waiting = None
            try:
                everything = awaited(serve_api.applications(self._dashboard))
                if everything:  # after a failure, another deployment comes first
                    waiting = everything[failures % len(everything)]
                if before is not None and waiting != before:
                    self._expect(before, None)
                before, self._coming = waiting, None
                if waiting is None:
                    self._stop.wait(LOOK_S)
                else:
                    self._bring(waiting)
                    self._problem, pause_s = "", PAUSE_S
            except Stopped:
                return
            except (EngineError, OSError, ValueError, YAMLError) as error:
                problem = redact(explain(error))
                if waiting is not None:
                    self._tell_problem(waiting, problem)
                failures += 1
                self._stop.wait(pause_s)
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    def _expect(self, waiting: Waiting, arrival: Arrival | None) -> None:
        """Tell ModelIndex, and so the gateways, which model is coming; None once it has arrived."""
        with suppress(Exception):  # Ray restarts ModelIndex, which then gets the next report
            index = driver_handle("ModelIndex", waiting.application)
            index.expect.remote(waiting.deployment, arrival).result(timeout_s=TELL_S)

    def _tell_problem(self, waiting: Waiting, problem: str) -> None:
        """Tell the gateways of a problem, and log it once."""
        kind = re.sub(r"\d", "", problem)  # the free space changes
        if kind != self._problem:
            self._problem = kind
            self._say(f"{waiting.deployment}: {waiting.model} is delayed: {problem}")
        if self._coming is not None:
            self._expect(waiting, self._coming.model_copy(update={"problem": problem}))

    def _bring(self, waiting: Waiting) -> None:
        """Fetch the model that a deployment wants, and swap it in unless the operator has since
        named another. Raises EngineError, OSError, ValueError, YAMLError, or Stopped."""
        shape = kind_of(waiting.model).read(waiting.model)
        if not is_here(waiting.model):
            self._fetch(waiting, shape.id, artefacts_of(shape))
        state = serve_api.state(self._dashboard)
        if waiting not in awaited(state["applications"]):
            return
        config = serve_api.running(state)
        for application in config["applications"]:
            for entry in serve_config.entries(application):
                if entry["name"] == waiting.deployment:
                    entry["user_config"] = {**entry["user_config"], "model": waiting.model}
        deploy_config(config, self._settings, self._dashboard)
        self._say(f"{waiting.deployment}: {shape.id} answers now")

    def _fetch(self, waiting: Waiting, model: str, weights: set[str]) -> None:
        """Fetch the weights of the model with this id, and report the progress."""
        store = WeightStore(weights_dir())
        store.root.mkdir(parents=True, exist_ok=True)
        floor = floor_bytes(os.statvfs(store.root), self._settings.free_space_mb)
        size_bytes = max(1, sum(store.artefact(name).size_bytes for name in weights))
        last_percent = 0

        def expect(got_bytes: int) -> None:
            self._coming = Arrival(model=model, got_bytes=got_bytes, size_bytes=size_bytes)
            self._expect(waiting, self._coming)

        def show(got_bytes: int) -> None:
            nonlocal last_percent
            percent = 100 * got_bytes // size_bytes
            if percent != last_percent:
                expect(got_bytes)
            if percent // 10 > last_percent // 10:
                size = f"{size_bytes >> 20:,} MiB of {model}"
                self._say(f"{waiting.deployment}: {percent} % of {size} are downloaded")
            last_percent = percent
            if self._stop.is_set():
                raise Stopped
            if shutil.disk_usage(store.root).free < floor:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        expect(0)
        discard_corrupt(store, weights, reread=False)
        fetch(store, weights, FetchProgress(size_bytes, show=show), reserve_bytes=floor)


def awaited(running: dict[str, Any]) -> list[Waiting]:
    """List the deployments that serve another model than they want."""
    waiting = []
    for name, application in running.items():
        for entry in serve_config.entries(application.get("deployed_app_config") or {}):
            config = entry.get("user_config") or {}
            if config.get("wanted") not in (None, config.get("model")):
                waiting.append(Waiting(name, entry["name"], config["wanted"]))
    return waiting

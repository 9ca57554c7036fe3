"""`antiphon doctor`: lists the problems of this machine, each with its remedy."""

import asyncio
import logging
import os
import platform
import resource
import shutil
import time
from collections.abc import Awaitable, Callable
from contextlib import closing, suppress
from datetime import UTC, datetime
from functools import cache, partial
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

import click

from configs import running
from configs.environment import (
    DASHBOARD_PORT,
    SettingsError,
    address_on_this_machine,
    cluster_address,
    cores,
    free_bytes,
    home_path,
    listen_problem,
    port,
)
from configs.schema.catalogue import Profile
from configs.settings import Settings, load_settings_of_service, weights_dir
from db import database
from db.errors import DatabaseError
from db.migrate import check_tables
from deployments.cluster import node, serve_api
from deployments.cluster.killed import killed_for_memory
from deployments.cluster.node import check_folder
from deployments.cluster.readiness import local_url, readyz, report
from deployments.cluster.serve_api import FAILED, failures
from deployments.gpus.machine import GpuProblem, has_gpu_profile, usable_gpus
from deployments.replicas.choice import chosen, is_here
from models.figures import beside
from models.weights.fetch import missing
from models.weights.store import WeightStore
from pipelines.accounts.secret_fingerprints import check_secret_fingerprints
from pipelines.storage.encryption import Encryption
from pipelines.storage.files import Files, storage_problem
from telemetry.logs import redact

GB = 1e9
CORES, MEMORY_GB, DISK_GB, OPEN_FILES = 2, 4.0, 2.0, 4096
CLOCK_S = 2.0
START_S = 120.0  # time within which Ray and the controller of a new service begin to answer
LANDLOCK = (5, 13)  # first version of Linux with Landlock, which confines the decoder
FAST = ("avx2", "fp16", "asimd")  # processor flags; without any of them, speech is slow


# For each degraded part in `/readyz`: the log event with the reason (if any), and the remedy.
REMEDIES = {
    "limits": ("", "the store of limits does not answer: see `redis`, or wait for the cluster"),
    "files": ("", "files are not stored: see `storage`"),
    "models": ("model_swap_failed", "remove the cause, and deploy serve_config.yaml again"),
    "cluster": ("cluster_differs", "update the process that differs, or restart the service"),
}


Check = Callable[[], str | Awaitable[str]]
Answer = tuple[int, dict[str, Any]]
"""Status and body of `/readyz`."""
Applications = dict[str, Any]
"""State of each application in Ray Serve, by name."""


class Problem(Exception):
    """A problem, and its remedy."""


class Off(str):
    """A sentence about a part that is not there, and is not needed by the others."""


class Wait(str):
    """A sentence about a part that will be there by itself."""


NOT_RUNNING = 4  # exit status, as of users' commands that reach no service


def check_processor() -> str:
    if (count := cores()) < CORES:
        raise Problem(f"{count} core; speech stutters with fewer than {CORES}: provide more cores")
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            flags = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    except OSError:
        flags = FAST[0]  # not Linux, which `check_kernel` reports
    if not any(flag in flags for flag in FAST):
        raise Problem(f"{count} cores without AVX2: speech is slow; use a newer processor")
    return f"{count} cores"


def check_memory() -> str:
    if (free := free_bytes() / GB) < MEMORY_GB:
        has, need = beside(free, MEMORY_GB, 1)
        raise Problem(
            f"{has} GB are free, but all models use {need} GB: remove models from "
            "serve_config.yaml, or end other programs (a running service takes memory, too)"
        )
    return f"{free:.1f} GB free"


def check_kernel() -> str:
    release = platform.release()
    version = tuple(int(part) for part in release.split("-")[0].split(".")[:2] if part.isdigit())
    if platform.system() != "Linux" or version < LANDLOCK:
        raise Problem(f"{release} has no Landlock: the sandbox of the decoder is weaker")
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files < OPEN_FILES:
        raise Problem(
            f"only {files} open files per process: raise it with `ulimit -n {OPEN_FILES}`"
        )
    return f"Linux {release}, {files} open files"


def check_ports(settings: Settings, in_ray: Callable[[], Applications | None]) -> str:
    free = []
    dashboard = ("127.0.0.1", port("RAY_DASHBOARD_PORT", DASHBOARD_PORT), "RAY_DASHBOARD_PORT")
    for host, number, name in ((settings.host, settings.port, "PORT"), dashboard):
        if problem := listen_problem(host, number):
            url = f"{address_on_this_machine(host, number)}/healthz"
            if name == "PORT" and (readyz(url) or {}).get("status") == "ok":
                return f"the service answers on {number}"
            if name == "RAY_DASHBOARD_PORT" and in_ray() is not None:
                free.append(f"{number} is used by the Ray of this service")
                continue
            names = "HOST or PORT" if name == "PORT" else name
            remedy = f"set {names} to a free one"
            raise Problem(f"{host}:{number}: {problem}; {remedy}; {elsewhere(settings)}")
        free.append(f"{number} free")
    return ", ".join(free)


def elsewhere(settings: Settings) -> str:
    """Say which service uses the data folder, and how to name another one."""
    if url := running.find(settings.data_dir):
        return (
            f"the service of {settings.data_dir} runs at {url}: unset HOST and PORT, or set them to"
            " its address"
        )
    if holder := running.name_holder(settings.data_dir):
        return f"{holder} uses {settings.data_dir}: run this command there"
    return (
        f"no service uses {settings.data_dir}: if yours uses another folder, set ANTIPHON_DATA; if "
        "it was not begun by `make run` or `antiphon serve`, set PORT and RAY_DASHBOARD_PORT"
    )


def check_gpu() -> str:
    if not has_gpu_profile():
        return Off("none needed: the libraries of PROFILE=gpu are not installed here")
    try:
        gpus = usable_gpus()
    except GpuProblem as problem:
        raise Problem(str(problem)) from None
    return ", ".join(
        f"{gpu}, driver {gpu.driver}, {gpu.free_bytes / GB:.1f} GB free" for gpu in gpus
    )


def ask_service(settings: Settings) -> Answer | None:
    """Ask the service on this machine for its readiness; None if it does not run."""
    is_alive = readyz(f"{local_url(settings)}/healthz") is not None
    return report(settings) if is_alive else None


def ask_ray(settings: Settings) -> Applications | None:
    """Ask the Ray of this service for its applications; None if it does not run, or if the
    dashboard's port belongs to another program, which does not accept the token."""
    try:
        node.prepare_environment(settings)
        serve_api.nodes(dashboard := serve_api.dashboard())
    except (OSError, ValueError, LookupError, TypeError):
        return None
    try:
        return serve_api.applications(dashboard, timeout_s=5)
    except ValueError:
        if _has_just_begun(settings):  # the controller does not run yet
            return {}
        return {"Ray Serve": {"status": FAILED[0], "message": "does not answer", "deployments": {}}}


def _has_just_begun(settings: Settings) -> bool:
    with suppress(OSError):
        return time.time() - (settings.data_dir / running.FILE).stat().st_mtime < START_S
    return False


def check_service(
    settings: Settings, ask: Callable[[], Answer | None], in_ray: Callable[[], Applications | None]
) -> str:
    answer, applications = ask(), in_ray()
    service_url = running.find(settings.data_dir)
    is_here = service_url == local_url(settings)
    if answer is None and not is_here and (applications is None or service_url):
        return Off(f"does not run at {local_url(settings)}; {elsewhere(settings)}")
    status, body = answer or (0, {})
    if status != HTTPStatus.OK:
        state = f"/readyz is {status}: {body.get('message')}" if answer else "no gateway answers"
        reasons = [f"{place}: {why}" for place, why in failures(applications or {}).items()]
        if killed := killed_for_memory(settings.data_dir):
            reasons.append(killed)
        states = [each["status"] for each in (applications or {}).values()]
        is_new = answer is None and applications is None and _has_just_begun(settings)
        if not reasons and (is_new or applications == {} or "DEPLOYING" in states):
            return Wait(f"is starting: {state}")
        raise Problem("; ".join([state, *(reasons or ["the log has the cause"])]))
    problems = []
    for part in body.get("degraded", ()):
        event, remedy = REMEDIES.get(part, ("", f"{part} is unknown to this command: update it"))
        reasons = [f"{name}: {why}" for name, why in (body.get(part) or {}).items()]
        if event and not reasons:
            token = "OPERATOR_TOKEN or METRICS_TOKEN"
            reasons = [f"the log has the reason ({event}); with {token} it is shown here"]
        problems.append("; ".join([*reasons, remedy]))
    if problems:
        raise Problem(f"degraded: {'. '.join(problems)}")
    return f"is ready at {local_url(settings)}"


def check_weights() -> str:
    store = WeightStore(weights_dir())
    profile: Profile = "gpu" if has_gpu_profile() else "cpu"
    artefacts = store.catalogue.artefacts
    names = [name for name, artefact in artefacts.items() if artefact.needed_by(profile)]
    absent = missing(store, names)
    gated = [artefacts[name].gate(name) for name in absent if artefacts[name].gated is not None]
    if absent := [name for name in absent if artefacts[name].gated is None]:
        raise Problem(
            f"{', '.join(absent)} missing in {weights_dir()}: run `antiphon weights fetch --profile"
            f" {profile}`"
        )
    return "; ".join([f"{len(names) - len(gated)} in {weights_dir()}", *gated])


def check_ray() -> str:
    cluster_address()  # raises if CLUSTER_ADDRESS is wrong
    if not (folder := os.environ.get("RAY_TMPDIR")):
        return "uses a temporary folder"
    path = home_path("RAY_TMPDIR", folder).resolve()
    if not path.exists():
        return f"in {folder}, which is created at the start"
    check_folder(path)
    return f"in {folder}"


def check_chat(ask: Callable[[], Answer | None]) -> str:
    answer = ask()
    chat = answer[1].get("chat") if answer else None
    if chat is None:
        wanted = chosen()
        if is_here(wanted):
            return f"{wanted} is present"
        return Wait(f"{wanted} is downloaded while the service runs")
    answers = f"{chat.get('model') or 'no model'} answers"
    if coming := chat.get("coming"):
        share = coming["got_bytes"] / max(coming["size_bytes"], 1)
        answers += f", and {share:.0%} of {coming['model']} are present"
        if problem := coming.get("problem"):
            raise Problem(f"{answers}: {problem}")
    line = f"{answers}; CHAT_MODEL selects another model"
    return Wait(line) if coming or not chat.get("model") else line


def check_disk(settings: Settings) -> str:
    if (free := shutil.disk_usage(settings.data_dir).free / GB) < DISK_GB:
        raise Problem(f"{free:.1f} GB are free at {settings.data_dir}: free some space")
    return f"{free:.0f} GB free at {settings.data_dir}"


async def check_database(settings: Settings) -> str:
    with closing(database.Database(settings.database_url)) as opened:
        began = time.monotonic()
        # Also takes SQLite's lock of writers, for which each request waits.
        await opened.run(lambda session: session.connection().exec_driver_sql("SELECT 1"))
        took_ms = (time.monotonic() - began) * 1000
        await check_secret_fingerprints(opened, settings.secrets, record=False)
    await asyncio.to_thread(check_tables, settings.database_url)
    ahead_s = (database.utc_now() - datetime.now(UTC)).total_seconds()
    if abs(ahead_s) > CLOCK_S:
        raise Problem(f"its clock is {ahead_s:.1f} s ahead of this machine's: run an NTP client")
    return f"{urlsplit(settings.database_url).scheme}, {took_ms:.0f} ms"


async def check_redis(settings: Settings) -> str:
    if settings.redis_url is None:
        return Off("none: the cluster itself counts requests")
    from redis.asyncio import Redis

    async with Redis.from_url(settings.redis_url, socket_timeout=5) as redis:
        await redis.ping()
    return "answers"


async def check_storage(settings: Settings) -> str:
    with closing(database.Database(settings.database_url)) as opened:
        files = Files(settings, opened, Encryption(settings.secrets.data_keys))
        if problem := await storage_problem(files):
            raise Problem(f"STORAGE_URL cannot be used: {problem}")
        if low := await files.space.low():
            raise Problem("; ".join(low))
    return redact(settings.storage_url)


async def outcome(check: Check) -> tuple[str, str]:
    """Run a check; return the state of its part, and a sentence."""
    try:
        result = await asyncio.to_thread(check)
        line = result if isinstance(result, str) else await result
        return "off" if isinstance(line, Off) else "wait" if isinstance(line, Wait) else "ok", line
    except (Problem, SettingsError, DatabaseError) as problem:
        return "FIX", redact(str(problem))
    except Exception as error:  # any library may fail; the other checks still run
        return "FIX", redact(f"{type(error).__name__}: {error}".splitlines()[0])


@click.command()
def main() -> None:
    """Operators: check this machine, and say how to fix each problem.

    Each line begins with ok, off (not there, and not needed by the rest), wait (will be there by
    itself) or FIX. Exit status 1 if there is something to fix, else 4 if the service does not run.
    Uses the settings of the environment, like the service.
    """
    of_machine = (check_processor, check_memory, check_kernel, check_gpu, check_weights, check_ray)
    checks: dict[str, Check] = {
        check.__name__.removeprefix("check_"): check for check in of_machine
    }
    try:
        settings = load_settings_of_service()  # a check creates no database or secrets
    except SettingsError as error:
        checks["settings"] = partial(_raise, error)
    else:
        ask = cache(partial(ask_service, settings))
        in_ray = cache(partial(ask_ray, settings))
        checks |= {
            "ports": partial(check_ports, settings, in_ray),
            "service": partial(check_service, settings, ask, in_ray),
            "chat": partial(check_chat, ask),
            "disk": partial(check_disk, settings),
            "database": partial(check_database, settings),
            "redis": partial(check_redis, settings),
            "storage": partial(check_storage, settings),
        }
    logging.disable()  # a sentence says what went wrong
    colours = {"ok": "green", "off": "yellow", "wait": "yellow", "FIX": "red"}
    states: dict[str, str] = {}
    for name, run in checks.items():
        states[name], result = asyncio.run(outcome(run))
        mark = click.style(f"{states[name]:4}", fg=colours[states[name]])
        click.echo(f"{mark} {name:10} {result}")
    is_broken = "FIX" in states.values()
    raise SystemExit(1 if is_broken else NOT_RUNNING if states["service"] == "off" else 0)


def _raise(error: Exception) -> str:
    raise error

"""Starts a Ray cluster and the applications of `serve_config.yaml`, and creates a first API key."""

import asyncio
import os
import re
import shlex
import signal
import sys
import time
from collections.abc import Iterable
from contextlib import closing, suppress
from pathlib import Path
from threading import Thread
from types import FrameType
from typing import Any, NoReturn
from urllib.parse import urlsplit

import click
from yaml import YAMLError

from configs import environment, running
from configs.environment import (
    SettingsError,
    check_ports,
    cluster_address,
    free_bytes,
    listen_problem,
    listens_everywhere,
    serves_only_this_machine,
)
from configs.load import CONFIGS_DIR, load_yaml
from configs.schema.serve import AUTO, DefaultChatConfig, ModelUserConfig
from configs.settings import (
    BRAND,
    OWNER,
    Settings,
    chat_model,
    load_settings,
    misspelt_settings,
    setting_names,
)
from db.billing.ledger import discrepancies
from db.database import Database
from db.errors import DatabaseError, DatabaseUnavailable
from deployments.cluster import node, serve_api
from deployments.cluster.compat import untested_versions
from deployments.cluster.killed import killed_for_memory
from deployments.cluster.login import SET_PASSWORD, accounts_of, console_link
from deployments.cluster.readiness import ask, local_url, readyz
from deployments.cluster.shared_stores import check_secrets, check_wyoming_key, open_database
from deployments.default_chat.arrival import ModelArrival
from deployments.default_chat.choice import resolved
from deployments.replicas.choice import is_here
from deployments.rollout import serve_config
from deployments.rollout.check import application_problems, option_problems, resource_problems
from deployments.rollout.deploy import GB, memory_warning
from deployments.rollout.gpu_check import gpu_problem
from deployments.rollout.serve_config import first_stage, first_voice, model_names
from models.errors import EngineError
from models.figures import beside
from models.memory import give_back
from models.registry import CHAT
from models.weights.__main__ import fetch_weights
from pipelines.accounts.service import LINK_LIFETIME
from telemetry.tracing import start_tracing

PROFILE = ("PROFILE", "VLLM")  # variables of the Makefile
STORES = ("DATABASE_URL", "STORAGE_URL")
READY_TIMEOUT_S = 180
AGAIN_S = 5  # a signal is repeated if `stop` has not begun by then: its interrupt was dropped
WATCH_S, MISSES = 10.0, 2  # a health check takes 20 ms of a core
GATEWAYS_STOP_S = 65.0  # more than `graceful_shutdown_timeout_s` of a gateway
SERVE_STOP_S = GATEWAYS_STOP_S + 30.0


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    default=(CONFIGS_DIR / "serve_config.yaml").resolve(),
    help="Configuration of the service. Default: serve_config.yaml.",
)
@click.option("--num-cpus", type=int, help="CPU cores for Ray. Default: all.")
def main(config: Path, num_cpus: int | None) -> NoReturn:
    """Start the service on this machine: a Ray cluster and the applications of a configuration.

    The first start creates an API key, which is printed once. Ctrl-C stops the service.
    """
    run_and_exit(config, num_cpus)


@click.command(params=[*main.params], help=main.help)
@click.option("--host", help="Address to listen on. Default: $HOST, or 127.0.0.1.")
@click.option("--port", type=click.IntRange(1, 65535), help="Port. Default: $PORT, or 8000.")
def serve(config: Path, num_cpus: int | None, host: str | None, port: int | None) -> NoReturn:
    for name, value in (("HOST", host), ("PORT", port)):
        if value is not None:
            os.environ[name] = str(value)
    try:  # checked before downloads that take minutes
        check_ports(environment.host("HOST"), environment.port("PORT", 8000))
    except SettingsError as error:
        sys.exit(str(error))
    if status := fetch_weights():
        sys.exit(status)
    run_and_exit(config, num_cpus)


def run_and_exit(config: Path, num_cpus: int | None) -> NoReturn:
    """Exit without the interpreter's shutdown, in which Ray's libraries take 2 s to clean up."""
    code: int | str | None = 0
    try:
        run(config, num_cpus)
    except KeyboardInterrupt:  # before anything was started
        pass
    except SystemExit as end:
        code = end.code
        if isinstance(code, str):  # prints it, as the interpreter would
            click.echo(code, err=True)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else bool(code))


def run(config_file: Path, num_cpus: int | None) -> None:
    """Start the service, and stop it at a signal. Raises UsageError for a wrong configuration."""
    interrupt_on_signals()
    try:
        config = serve_config.read_config(config_file)
        if problems := application_problems(config):
            raise ValueError("\n".join(problems))
    except ValueError as error:
        raise click.UsageError(f"--config: {error}") from None
    started = time.monotonic()
    arrival: ModelArrival | None = None
    os.umask(0o077)  # SQLite creates its file when it is first opened
    try:
        settings = load_settings()
        start_tracing()  # raises SettingsError for wrong variables
        with suppress(DatabaseUnavailable):  # which `prepare_database` explains
            asyncio.run(check_secrets(settings))
        # A database on a server may have several services, which then share the folder's secrets.
        may_share = not settings.database_url.startswith("sqlite")
        folder = running.take(settings.data_dir, local_url(settings), may_share=may_share)
        node.prepare_environment(settings)
        node.keep_private(settings.data_dir)
        if problems := option_problems(config):  # imports Ray, hence not earlier
            raise click.UsageError("--config: " + "\n".join(problems))
        check_ports(settings.host, settings.port)
        free = free_bytes()  # not before `take`, which waits for the memory of an ending service
        config = resolved(config, free=free)
        may_grow = cluster_address() is not None
        missing_gpu = gpu_problem(config)
        if missing_gpu and not may_grow:
            raise ValueError(missing_gpu)
        first_key = asyncio.run(prepare_database(settings))
    except (ValueError, DatabaseError) as error:
        sys.exit(str(error))
    try:
        say(f"{BRAND} is starting ...")
        if folder is None:
            say(f"Another service uses {settings.data_dir}, too; commands for this one need its")
            say("  HOST, PORT and RAY_DASHBOARD_PORT.")
        too_little = None if may_grow else memory_warning(config, free)
        for warning in filter(None, [*doubts(settings), too_little]):
            say(warning)
        if missing_gpu is not None:
            say(f"A machine with a GPU must join: {missing_gpu}")
        dashboard = node.start(num_cpus)
        interrupt_on_signals()  # again, since Ray's library sets its own handler
        if not may_grow and (problems := resource_problems(config, node.resources())):
            raise ValueError("\n".join(problems))
        voice, names = first_voice(config), model_names(config)
        failed: set[str] = set()
        serve_api.deploy(dashboard, first_stage(config))
        wanted = names if voice is None else {voice}
        wait_until_ready(settings, dashboard, wanted, names, failed)
        speaks = "is ready" if voice is None else "starts" if voice in failed else "speaks"
        announce(speaks, settings, dashboard, started)
        show_notes(config, free)
        show_key(first_key)
        first_key = None
        if voice is not None:
            serve_api.deploy(dashboard, config)
            wait_until_ready(settings, dashboard, names, names, failed)
            others = f"All models except {', '.join(sorted(failed))}" if failed else "All models"
            say(f"{others} are ready after {time.monotonic() - started:.1f} s")
        if names and failed == names:
            raise RuntimeError("no model can be loaded")
        if "files" in (readyz(f"{local_url(settings)}/readyz") or {}).get("degraded", ()):
            say(f"Files cannot be stored; this says why: {operator_command('check-storage')}")
        arrival = ModelArrival(settings, dashboard, say)
        give_back()  # measured: 11 MB after the start
        watch(settings)
    except KeyboardInterrupt:
        say("Stopping ...")
    except (ValueError, RuntimeError, TimeoutError) as error:
        for line in filter(None, [str(error), killed_for_memory(settings.data_dir)]):
            click.echo(line, err=True)  # at once, since the stop may take minutes
        sys.exit(1)
    finally:
        show_key(first_key)  # even after a failed start, since the key is shown only once
        stop(arrival)


def interrupt_on_signals() -> None:
    """Make SIGTERM and SIGINT raise KeyboardInterrupt; background jobs of a shell ignore SIGINT by
    default."""
    signal.signal(signal.SIGTERM, _interrupt)
    signal.signal(signal.SIGINT, _interrupt)


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt, repeatedly until `stop` begins, since exceptions during a fork or in
    a `__del__` are dropped. Further signals change nothing."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    signal.signal(signal.SIGALRM, _interrupt)  # replaces the handler of Ray's library, which aborts
    signal.alarm(AGAIN_S)
    raise KeyboardInterrupt


async def prepare_database(settings: Settings) -> str | None:
    """Migrate the database; at the first start, also create a workspace and return its API key. If
    the service serves only this machine, also tells its processes which workspace has no limits.
    Raises SettingsError for a wrong WYOMING_KEY, or DatabaseError."""
    with closing(await open_database(settings)) as database:
        accounts = accounts_of(database, settings)
        for account in await database.read(discrepancies):
            say(f"The ledger does not match the balance of an account: {account}")
        await check_wyoming_key(settings, accounts.authenticator)
        first_key = await accounts.ensure_first_workspace()
        is_alone = serves_only_this_machine(settings.host)
        os.environ[OWNER] = str(await accounts.owner_workspace() or "") if is_alone else ""
        return first_key


def wait_until_ready(
    settings: Settings, dashboard: str, wanted: set[str], models: set[str], failed: set[str]
) -> None:
    """Wait until the models `wanted` answer, except those in `failed`. Reports which of
    `models` cannot be loaded in time, and adds them to `failed`. Raises RuntimeError
    if another part of the service cannot start, or TimeoutError."""
    url = local_url(settings)
    deadline = time.monotonic() + READY_TIMEOUT_S
    next_look = time.monotonic() + 5
    while time.monotonic() < deadline:
        names = ",".join(sorted(wanted - failed))
        if readyz(f"{url}/{f'readyz?models={names}' if names else 'healthz'}"):
            return
        if time.monotonic() > next_look:
            next_look = time.monotonic() + 5
            state: dict[str, Any] = {}
            with suppress(ValueError):  # the dashboard is busy
                state = serve_api.applications(dashboard)
            for place, why in serve_api.failures(state).items():
                name = place.rpartition("/")[2]
                if name not in models:
                    raise RuntimeError(f"{place}: {why}")
                if name not in failed:
                    failed.add(name)
                    say(f"{name} is not available: {why}")
        time.sleep(0.1)
    late = f"not ready after {READY_TIMEOUT_S} s; the logs in Ray's dashboard say more"
    if not readyz(f"{url}/healthz"):
        raise TimeoutError(f"the gateway is {late}")
    for name in sorted(wanted - failed):
        status, body = ask(f"{url}/readyz?models={name}") or (503, {})
        if status != 200:
            message = body.get("message", name)
            if name not in message:  # the reason is the database, or the gateway stops
                raise TimeoutError(f"{late}: {message}")
            failed.add(name)
            say(f"{name} is not available: {late}")


def watch(settings: Settings) -> NoReturn:
    """Print when Ray kills processes for lack of memory, and when no gateway answers any more."""
    url, reported, misses = local_url(settings), "", 0
    while True:
        time.sleep(WATCH_S)
        if (killed := killed_for_memory(settings.data_dir)) not in ("", reported):
            reported = killed
            say(killed)
        if ask(f"{url}/healthz") is not None:
            if misses >= MISSES:
                say(f"{url} answers again.")
            misses = 0
            continue
        misses += 1
        if misses == MISSES:
            say(f"{url} does not answer any more. Ray tries to start its gateway again;")
            say(f"  Ray's dashboard says more, and so does {operator_command('doctor')}")


def doubts(settings: Settings) -> list[str]:
    """Return a warning for each setting or library version that may not work as intended."""
    warnings = untested_versions()
    for name, near in misspelt_settings():
        warnings.append(f"{name} is not a setting and has no effect; did you mean {near}?")
    if listens_everywhere(settings.host) and settings.public_url == local_url(settings):
        warnings.append(
            "Other machines can connect, but file URLs start with "
            f"{local_url(settings)}, which they cannot reach: set PUBLIC_URL."
        )
    if urlsplit(settings.public_url).path:
        warnings.append(
            "PUBLIC_URL has a path, below which only the API works: the console, the guide and "
            "/docs need a host name of their own."
        )
    for own, announced in settings.webrtc.addresses if settings.webrtc else ():
        if problem := listen_problem(own, 0):
            everywhere = "::" if ":" in own else "0.0.0.0"
            warnings.append(
                f"WEBRTC_ADDRESSES: no call can listen on {own}: {problem}. If a NAT or a "
                f"container maps this address to the machine, set {everywhere}={announced}."
            )
    return warnings


def announce(what: str, settings: Settings, dashboard: str, started: float) -> None:
    url = local_url(settings)
    say(f"{BRAND} {what} after {time.monotonic() - started:.1f} s")
    say(f"  Service    {url}")
    if url != "http://127.0.0.1:8000":  # the default of clients
        say(f"             For `antiphon` and the examples: export ANTIPHON_URL={url}")
    if settings.public_url != url:
        say(f"  Public     {settings.public_url}")
    show_console(settings)
    say(f"  Guide      {url}/guide")
    say(f"  Reference  {url}/docs")
    say(f"  Dashboard  {dashboard}")
    if token := os.environ.get("RAY_AUTH_TOKEN_PATH"):
        say(f"             It asks for the token in {token}")
    if (wyoming := settings.wyoming) is not None:
        say(f"  Wyoming    {wyoming.host}:{wyoming.port}, without authentication")
    if (joined := cluster_address()) is not None:
        address = f"ADDRESS={':'.join(map(str, joined))}"
        say(f"  Join       {shlex.join([*own_variables(PROFILE), 'make', 'join', address])}")
        say("             on other machines with the same environment")
    say(f"  Sign-up    {settings.sign_up} (SIGN_UP)")
    say(f"  Plans      {settings.plan_changes} (PLAN_CHANGES)")


def show_console(settings: Settings) -> None:
    """Print the console's address: on a terminal a login link, which must not get into logs."""
    link = None
    if sys.stdout.isatty():
        with suppress(DatabaseError), closing(Database(settings.database_url)) as database:
            link = asyncio.run(console_link(settings, accounts_of(database, settings)))
    say(f"  Console    {link or f'{local_url(settings)}/console'}")
    if link is not None:
        minutes = LINK_LIFETIME.total_seconds() / 60
        say(f"             Logs in without a password, once, within {minutes:.0f} minutes")
    elif os.environ.get(OWNER):
        command = operator_command("login-link")
        say(f"             To log in without a password: {command}")
    else:
        command = operator_command(*SET_PASSWORD)
        say(f"             To log in, set a password: {command}")


def operator_command(*arguments: str) -> str:
    """Return a shell command for this service, with the variables of its data and addresses."""
    variables = own_variables(("ANTIPHON_DATA", *running.VARIABLES, *STORES))
    script = Path(sys.executable).with_name("antiphon")
    program = str(script) if script.exists() else "antiphon"
    return shlex.join([*(["env", *variables] if variables else ()), program, *arguments])


def own_variables(names: Iterable[str]) -> list[str]:
    """Return the assignments of those variables that are set, without those that may be secret: by
    their name, or as an address with a user or a query."""
    values = {name: os.environ[name] for name in names if os.environ.get(name)}
    if folder := values.get("ANTIPHON_DATA"):
        values["ANTIPHON_DATA"] = str(Path(folder).expanduser().resolve())
    secret = re.compile(
        r"\w*(?:KEYS?|PEPPER|TOKEN|SECRETS?|PASSW\w*|WEBHOOK_URL)=|\w+=\w+://[^?#]*[@?]"
    )
    given = [f"{name}={value}" for name, value in values.items()]
    return [assignment for assignment in given if not secret.match(assignment)]


def show_notes(config: serve_config.Config, free: int) -> None:
    """Print which chat models answer, which one is coming, and which better ones fit in the memory
    that was `free` before the start (bytes). A configuration's problem is reported when the model
    is loaded."""
    variables = sorted(setting_names() - {"CHAT_MODEL"})
    for application in config["applications"]:
        chat = (application.get("args") or {}).get("chat", ())
        for entry in serve_config.entries(application):
            if entry["name"] in chat:
                with suppress(EngineError, OSError, ValueError, YAMLError):
                    _show_chat(entry, free / GB, own_variables(variables))


def _show_chat(entry: dict[str, Any], free_gb: float, variables: list[str]) -> None:
    chosen = ModelUserConfig.model_validate(entry.get("user_config") or {})
    for model in chosen.models:
        shape = CHAT.read(model)
        notes = f": {shape.description}" if shape.description else f", by {shape.owned_by}"
        say(f"  Chat       {shape.id}{notes}")
    if chosen.wanted is None:
        if chat_model() != AUTO:
            say(f"             CHAT_MODEL is not used: {entry['name']} names its model")
        return
    if chosen.wanted != chosen.model:
        say(f"  Chat       {CHAT.read(chosen.wanted).id} will answer after its download")
    options = load_yaml(DefaultChatConfig, "default_chat")
    best = options.models[0]
    if chat_model() == AUTO and chosen.wanted != best.model:
        has, needs = beside(free_gb, options.own_gb + best.free_gb, 1)
        say(f"             Chosen because only {has} GB of memory were free: a better one")
        say(f"             needs {needs} GB ({best.model})")
    better = [option.model for option in options.better_than(chosen.wanted, free_gb)]
    present = {name: is_here(name) for name in better}  # may read the weights: once
    for name in sorted(better, key=present.__getitem__, reverse=True):  # without a download first
        where = "and on this machine" if present[name] else "if it can be downloaded"
        command = shlex.join([*variables, f"CHAT_MODEL={name}"])
        say(f"             Better, {where}: {command} make run")


def show_key(first_key: str | None) -> None:
    """Print the key, if there is one."""
    if first_key is not None:
        say(f"  API key    {first_key}")
        say("             Shown only once; keep it. More keys: POST /developer/api.")


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def stop(arrival: ModelArrival | None) -> None:
    """End downloads, drain the gateways and stop the cluster; further interrupts are ignored. The
    gateways end before the models: a model without a running call would end at once, so that the
    next chunk of a stream would find no model."""
    signal.alarm(0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if arrival is not None:
        arrival.close()
    import ray

    if ray.is_initialized():
        # Without a controller, such as after Ray has killed it for memory, Serve waits for ever.
        thread = Thread(target=_stop_serve, daemon=True)
        thread.start()
        thread.join(SERVE_STOP_S)
    ray.shutdown()  # also stops what an interrupted start has begun


def _stop_serve() -> None:
    from ray import serve

    until = time.monotonic() + GATEWAYS_STOP_S
    with suppress(Exception):  # Ray raises if its controller has died, or was not started yet
        running, ingress = serve.status().applications, {"Gateway", "Wyoming"}
        gateways = {name for name in running if ingress & running[name].deployments.keys()}
        for name in gateways:
            serve.delete(name, _blocking=False)
        while gateways & serve.status().applications.keys() and time.monotonic() < until:
            time.sleep(0.2)
    with suppress(Exception):  # likewise
        serve.shutdown()


if __name__ == "__main__":
    main()

"""The commands of `antiphon` for users of a service, which they reach over HTTP."""

import os
import tomllib
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import click

from antiphon.cli import account, jobs, models, pronunciations, speech, talk, text, trial
from antiphon.cli.service import CommandGroup, end
from antiphon.version import __version__

_REQUESTS = Path(__file__).with_name("requests.toml")
EXTENSIONS = "antiphon.commands"
"""The group of entry points: functions that add commands to a click.Group."""
WITHOUT_SERVER = (
    "The commands of operators, such as `serve`, come with the server: install 'antiphon[server]'."
)


@click.group(
    cls=CommandGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option(
    "--url",
    envvar="ANTIPHON_URL",
    help="URL of the service. Default: the last login's, else this machine's: at PORT, as the data "
    "folder says, or at port 8000.",
)
@click.option("--key", envvar="ANTIPHON_KEY", help="API key. Default: the key of `antiphon login`.")
@click.version_option(__version__, message="%(prog)s %(version)s")
@click.option("--json", "as_json", is_flag=True, help="Print the full response as JSON.")
def antiphon(url: str | None, key: str | None, as_json: bool) -> None:
    """Speech, transcription, chat and correction from the shell.

    \b
    antiphon login
    antiphon try
    antiphon speak "Good morning." -o morning.mp3
    antiphon listen interview.mp3 --format srt

    Exit statuses: 1 failure, 2 wrong arguments, 3 key refused, 4 service not reachable.
    `eval "$(_ANTIPHON_COMPLETE=bash_source antiphon)"` enables completion in bash (or zsh, fish).
    """


def main() -> None:
    """Run the command that the arguments name; an installed server adds commands of its own."""
    for extension in entry_points(group=EXTENSIONS):
        extension.load()(antiphon)
    if "serve" not in antiphon.commands:
        antiphon.epilog = WITHOUT_SERVER
    try:
        antiphon(prog_name=os.environ.get("ANTIPHON_BRAND", "antiphon").lower())
    except OSError as error:  # about the user's file: no space, no permission
        end(f"{error.filename or 'the output'}: {error.strerror or error}", 1)


for command in (
    *(account.login, trial.try_service),
    *(speech.speak, speech.listen, talk.talk, text.chat, text.correct, jobs.job, jobs.jobs),
    *(pronunciations.explain, pronunciations.pronunciations, account.voices, models.models),
    *(account.usage, account.keys, account.webhooks),
):
    antiphon.add_command(command)
groups: dict[str, dict[str, dict[str, Any]]] = tomllib.loads(_REQUESTS.read_text("utf-8"))
for group, requests in groups.items():
    for name, spec in requests.items():
        account.add_request(antiphon.commands.get(group, antiphon), name, spec)

if __name__ == "__main__":
    main()

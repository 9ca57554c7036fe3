"""The commands of `antiphon` for users of a service, which they reach over HTTP."""

from pathlib import Path
from typing import Any

import click
import yaml

from antiphon.cli import account, jobs, pronunciations, speech, talk, text
from antiphon.cli.service import end
from antiphon.version import __version__

_REQUESTS = Path(__file__).with_name("requests.yaml")


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--url", envvar="ANTIPHON_URL", help="URL of the service. Default: http://127.0.0.1:8000."
)
@click.option("--key", envvar="ANTIPHON_KEY", help="API key. Default: the key of `antiphon login`.")
@click.version_option(__version__, message="%(prog)s %(version)s")
@click.option("--json", "as_json", is_flag=True, help="Print the full response as JSON.")
def antiphon(url: str | None, key: str | None, as_json: bool) -> None:
    """Speech, transcription, chat and correction from the shell.

    \b
    antiphon login
    antiphon speak "Good morning."
    antiphon listen interview.mp3 --format srt

    Exit statuses: 1 failure, 2 wrong arguments, 3 key refused, 4 service not reachable.
    `eval "$(_ANTIPHON_COMPLETE=bash_source antiphon)"` enables completion in bash; zsh, fish alike.
    """


def main(program: str = "antiphon") -> None:
    """Runs the command of the arguments under the name `program`."""
    try:
        antiphon(prog_name=program)
    except OSError as error:  # of a file of the user: no space, no permission
        end(f"{error.filename or 'the output'}: {error.strerror or error}", 1)


for command in (
    *(speech.speak, speech.listen, jobs.job, talk.talk, text.chat, text.correct),
    *(account.voices, account.keys, account.usage, account.webhooks, account.login),
    *(pronunciations.explain, pronunciations.pronunciations),
):
    antiphon.add_command(command)
groups: dict[str, dict[str, dict[str, Any]]] = yaml.safe_load(_REQUESTS.read_text("utf-8"))
for group, requests in groups.items():
    for name, spec in requests.items():
        account.add_request(antiphon.commands.get(group, antiphon), name, spec)

if __name__ == "__main__":
    main()

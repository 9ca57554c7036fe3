"""`antiphon chat` and `antiphon correct`."""

import difflib
import json
import sys
from pathlib import Path
from typing import Any

import click

from antiphon.cli.service import ServiceClient, check_target, pass_service
from antiphon.client import given

COMPLETIONS = "/v1/chat/completions"


@click.command()
@click.argument("message", nargs=-1)
@click.option("-m", "--model", help="Chat model. Default: the service's model.")
@click.option("-s", "--system", help="Instructions for the model.")
@click.option("-c", "--chat", "chat_id", help="Id of a saved chat to continue.")
@click.option("--temperature", type=click.FloatRange(0, 2))
@click.option("--max-tokens", type=click.IntRange(1), help="Limit of the answer in tokens.")
@pass_service
def chat(
    service: ServiceClient, /, message: tuple[str, ...], system: str | None, **options: Any
) -> None:
    """Ask the chat model. Without a message, chat until Ctrl-D.

    \b
    antiphon chat "Name three birds."
    git diff | antiphon chat "Summarise this:" -
    """
    asked = " ".join(message)
    if asked == "-" or asked.endswith(" -"):
        asked = asked[:-1] + sys.stdin.read()
    is_dialogue = not message
    while True:
        if is_dialogue:
            try:
                asked = click.prompt("", prompt_suffix="> ", err=True)
            except click.Abort:
                return
        is_new = options["chat_id"] is None
        first = [{"role": "system", "content": system}] if system and is_new else []
        messages = [*first, {"role": "user", "content": asked}]
        text = ""
        with service.client() as client:
            for event in client.stream_chat(messages, **given(**options)):
                options["chat_id"] = event.get("chat_id") or options["chat_id"]
                for choice in event.get("choices", ()):
                    delta = choice["delta"].get("content") or ""
                    text += delta
                    if not service.as_json:
                        click.echo(delta, nl=False)
        answer = {"text": text, "chat_id": options["chat_id"]}
        click.echo(json.dumps(answer) if service.as_json else "")
        if not is_dialogue:
            return


@click.command()
@click.argument("text", required=False)
@click.option("-f", "--file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("-i", "--in-place", is_flag=True, help="Write the correction to the file.")
@click.option("-d", "--diff", is_flag=True, help="Show the changes; exit status 1 if any.")
@click.option("-t", "--tone", help="Rewrite the text in a tone, such as professional or friendly.")
@pass_service
def correct(
    service: ServiceClient,
    text: str | None,
    file: Path | None,
    in_place: bool,
    diff: bool,
    tone: str | None,
) -> None:
    """Correct grammar and spelling. A warning names each requested change that was not made.

    \b
    antiphon correct "i cant beleive its allready friday"
    antiphon correct -f letter.txt --diff
    antiphon correct -f letter.txt --in-place
    antiphon correct --tone friendly "Send me the report."
    """
    if in_place and file is None:
        raise click.UsageError("--in-place needs --file")
    if in_place and file is not None:
        check_target(file)
    if file is not None:
        text = file.read_text(encoding="utf-8")
    elif text is None or text == "-":
        text = sys.stdin.read()
    body = {"text": text, "stream": False, **given(style=None if tone is None else {"tone": tone})}
    answer = service.ask("POST", COMPLETIONS, json=body)
    for warning in answer["correction"]["warnings"]:
        click.echo(f"Warning: {warning['message']}", err=True)
    corrected: str = answer["choices"][0]["message"]["content"]
    if in_place and file is not None:
        file.write_text(corrected, encoding="utf-8")
        edits = len(answer["correction"]["edits"])
        service.show(answer, f"{file}: {edits} correction{'s' * (edits != 1)}")
    elif diff:
        name = str(file or "text")
        lines = difflib.unified_diff(
            text.splitlines(), corrected.splitlines(), name, name, lineterm="", n=1
        )
        changes = [click.style(line, fg={"+": "green", "-": "red"}.get(line[0])) for line in lines]
        service.show(answer, *changes)
        sys.exit(1 if changes else 0)
    else:
        service.show(answer, corrected)

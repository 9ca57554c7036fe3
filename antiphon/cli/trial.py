"""`antiphon try`: speech, transcription and chat once, with the time that each took."""

import re
import time
from collections.abc import Callable
from typing import Any

import click

from antiphon import Antiphon
from antiphon.cli.service import ServiceClient, end, pass_service

SENTENCE = "Good morning. The train leaves at half past eight."
QUESTION = "Name a colour of the rainbow."


@click.command("try")
@pass_service
def try_service(service: ServiceClient) -> None:
    """Speak, listen and chat once, and print how long each took.

    \b
    antiphon try
    """
    steps: list[dict[str, Any]] = []

    def step(name: str, ask: Callable[[Antiphon], Any], text_of: Callable[[Any], str]) -> Any:
        started = time.monotonic()
        with service.client(purpose=name) as client:
            answer = ask(client)
        seconds = time.monotonic() - started
        text = text_of(answer).strip()
        steps.append({"step": name, "seconds": round(seconds, 2), "text": text})
        if not service.as_json:
            click.echo(f"{name:<8}{seconds:6.2f} s  {text}")
        return answer

    speech = step("speak", lambda client: client.speak(SENTENCE), lambda speech: SENTENCE)
    step(
        "listen",
        lambda client: client.transcribe(("speech.mp3", speech)),
        lambda answer: answer["text"],
    )
    spoken, recognised = (words_of(steps[number]["text"]) for number in (0, 1))
    if 2 * len(spoken & recognised) < len(spoken):
        end("listen: the transcript is not what was spoken", 1)
    step(
        "chat",
        lambda client: client.chat(QUESTION),
        lambda answer: answer["choices"][0]["message"]["content"],
    )
    if not steps[-1]["text"]:
        end("chat: the answer is empty", 1)
    service.show({"steps": steps}, f"Speech, transcription and chat of {service.url} work.")


def words_of(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.lower()))

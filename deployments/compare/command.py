"""`antiphon models compare`: models of one kind, measured one after the other on this machine."""

import json
import os
import platform
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import click

from configs.load import load_yaml
from deployments.compare import measure
from deployments.compare.measure import Examination, Figures, apart
from deployments.compare.report import as_svg, as_table
from models.errors import EngineError
from models.registry import CHAT, STT, TTS
from pipelines.errors import PipelineError
from pipelines.voices.fitting.trials import sentences_of

SUFFIXES = (".wav", ".flac", ".mp3", ".ogg", ".m4a", ".webm")
QUESTIONS = Path(__file__).with_name("questions.yaml")
FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


class _Options(NamedTuple):
    language: str
    voice: str | None
    texts: list[str]
    recordings: Path | None
    speaker: str
    questions: Path


@click.command("compare")
@click.argument("names", nargs=-1, required=True)
@click.option("--language", default="en", show_default=True, help="ISO 639-1, of speech.")
@click.option("--voice", help="TTS: its key; by default that of the language.")
@click.option("--texts", type=FILE, help="Sentences to speak, one a line, in place of ours.")
@click.option("--number", type=click.IntRange(1, 200), default=12, help="Of sentences; 12.")
@click.option(
    "--recordings",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="STT: a folder of recordings, each with its transcript in a .txt of the same name.",
)
@click.option("--speaker", default="tts/hibari", help="STT without recordings: the voice's model.")
@click.option("--questions", type=FILE, default=QUESTIONS, help="Chat: a YAML like ours.")
@click.option("--picture", type=click.Path(path_type=Path), default=Path("compare.svg"))
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
def compare(names: tuple[str, ...], as_json: bool, **given: Any) -> None:
    """Measure models of one kind on this machine, each alone in a process of its own.

    \b
    antiphon models compare tts/kokoro tts/hibari
    antiphon models compare stt/whisper_base stt/whisper_tiny_en --recordings talks
    antiphon models compare llm/smollm2 /models/mine.yaml
    """
    kind, *others = {kind_of(name) for name in names}
    if others:
        raise click.UsageError("compare models of one kind: TTS, STT or chat")
    picture, number, texts = (given.pop(one) for one in ("picture", "number", "texts"))
    language = given["language"]
    if texts is not None:
        said = [one.strip() for one in texts.read_text("utf-8").splitlines() if one.strip()]
    elif (ours := sentences_of(language))[0] == language or kind == "chat":
        said = [*ours[1].search]
    else:
        raise click.UsageError(f"--texts: there are no sentences of ours in {language!r}")
    found: dict[str, Figures] = {}
    failures: dict[str, str] = {}
    with TemporaryDirectory() as folder:
        options = _Options(**given, texts=said[:number])
        measured, note = _prepare(kind, options, Path(folder))
        for name in dict.fromkeys(names):
            click.echo(f"measuring {name} …", err=True)
            try:
                found[name] = measured(name)
            except (EngineError, PipelineError, RuntimeError, OSError) as error:
                failures[name] = str(error)
                click.echo(f"{name}: {error}", err=True)
    if not found:
        raise click.ClickException("no model could be measured")
    title = f"{note}; {os.cpu_count()} cores of {platform.machine()}, {platform.system()}"
    picture.write_text(as_svg(kind, found, title), encoding="utf-8")
    if as_json:
        answer = {"kind": kind, "note": title, "figures": found, "failures": failures}
        click.echo(json.dumps(answer, ensure_ascii=False))
    else:
        click.echo(f"{as_table(kind, found)}\n{title}\nThe picture is {picture}")


def kind_of(name: str) -> str:
    """Of the configuration `name`: tts, stt or chat. Raises click.UsageError."""
    problem = ""
    for kind in (TTS, STT, CHAT):
        try:
            kind.read(name)
            return kind.name
        except (EngineError, ValueError) as error:
            problem = problem or str(error)
        except OSError as error:
            raise click.UsageError(f"{name}: {error.strerror}") from None
    raise click.UsageError(f"{name} is no configuration of TTS, STT or chat: {problem}")


def _prepare(kind: str, options: _Options, folder: Path) -> tuple[Any, str]:
    """A function that measures a model by name, and what it measures."""
    language, texts = options.language, options.texts

    def speech(name: str) -> Figures:
        figures, sounds, _ = apart(measure.measure_speech, name, language, options.voice, texts)
        return figures | apart(measure.judge_speech, texts, sounds, language)

    if kind == "tts":
        return speech, f"{len(texts)} sentences ({language}), one after the other"
    if kind == "chat":
        asked = load_yaml(Examination, str(options.questions))
        note = f"{len(asked.questions)} questions and {len(asked.forms)} schemas, one at a time"
        return (lambda name: apart(measure.measure_chat, name, asked)), note
    if options.recordings is None:
        _, sounds, _ = apart(measure.measure_speech, options.speaker, language, None, texts)
        measure.write_clips(folder, texts, sounds)
        note = f"{len(texts)} sentences ({language}) spoken by {options.speaker}, not by people"
    else:
        note = f"recordings of {options.recordings} ({language})"
    clips = _clips(options.recordings or folder)
    note += f": {len(clips)} files" * (options.recordings is not None)
    return (lambda name: apart(measure.measure_recognition, name, language, clips)), note


def _clips(folder: Path) -> list[tuple[Path, str]]:
    """The recordings that have transcripts. Raises click.UsageError if none has."""
    paths = sorted(one for one in folder.rglob("*") if one.suffix.lower() in SUFFIXES)
    found = [
        (path, beside.read_text("utf-8").strip())
        for path in paths
        if (beside := path.with_suffix(".txt")).is_file()
    ]
    if not found:
        raise click.UsageError(f"{folder} has no recording with a .txt of the same name")
    return found


def main() -> None:
    compare(prog_name="antiphon models compare")

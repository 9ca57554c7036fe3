"""Measure models of one kind on this machine, one by one: `python -m benchmarks.compare`."""

import json
import os
import platform
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
from pydantic import ValidationError
from yaml import YAMLError

from benchmarks.compare import measure
from benchmarks.compare.measure import Examination, Figures, apart
from benchmarks.compare.report import as_svg, as_table
from configs.load import explain, load_yaml
from models.errors import EngineError
from models.registry import CHAT, ENGINES, STT, TTS, EngineKind
from pipelines.voices.fitting.trials import sentences_of

SUFFIXES = (".wav", ".flac", ".mp3", ".ogg", ".m4a", ".webm")
QUESTIONS = Path(__file__).with_name("questions.yaml")
FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)
TRANSCRIPTS = "STT: a folder of recordings, each with its transcript in a .txt of the same name."


@click.command("compare")
@click.argument("names", nargs=-1, required=True)
@click.option("--language", default="en", show_default=True, help="Language of speech (ISO 639-1).")
@click.option("--voice", help="TTS: key of a voice. Default: by language.")
@click.option("--texts", type=FILE, help="Sentences to speak, one a line.")
@click.option("--number", type=click.IntRange(1, 200), default=12, help="Sentences. Default: 12.")
@click.option("--recordings", type=FOLDER, help=TRANSCRIPTS)
@click.option("--speaker", default="tts/hibari", help="STT without recordings: model that speaks.")
@click.option("--questions", type=FILE, default=QUESTIONS, help="Chat: YAML with questions.")
@click.option("--picture", type=click.Path(path_type=Path), default=Path("compare.svg"))
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
def compare(names: tuple[str, ...], picture: Path, as_json: bool, **options: Any) -> None:
    """Measure models of one kind on this machine, each alone in a process of its own.

    \b
    python -m benchmarks.compare tts/kokoro tts/hibari
    python -m benchmarks.compare stt/whisper_base stt/whisper_tiny_en --recordings talks
    python -m benchmarks.compare llm/smollm2 /models/mine.yaml
    """
    kind, *others = {kind_of(name) for name in names}
    if others:
        raise click.UsageError("compare models of one kind: TTS, STT or chat")
    figures: dict[str, Figures] = {}
    failures: dict[str, str] = {}
    with TemporaryDirectory() as folder:
        measured, note = _prepare(kind, Path(folder), options)
        for name in dict.fromkeys(names):
            click.echo(f"measuring {name} …", err=True)
            try:
                figures[name] = measured(name)
            except Exception as error:  # of any library
                failures[name] = explain(error)
                click.echo(f"{name}: {failures[name]}", err=True)
    if not figures:
        raise click.ClickException("no model could be measured")
    note += f"; {os.cpu_count()} cores of {platform.machine()}, {platform.system()}"
    picture.write_text(as_svg(figures, note), encoding="utf-8")
    if as_json:
        answer = {"kind": kind, "note": note, "figures": figures, "failures": failures}
        click.echo(json.dumps(answer, ensure_ascii=False))
    else:
        click.echo(f"{as_table(figures)}\n{note}\nThe picture is {picture}")
    sys.exit(int(bool(failures)))


def kind_of(name: str) -> str:
    """The kind of the configuration `name`: tts, stt or chat. Raises click.UsageError."""
    for kind in (TTS, STT, CHAT):
        try:
            kind.read(name)
            return kind.name
        except ValidationError as error:
            if _is_of(kind, name):
                raise click.UsageError(f"{name}: {explain(error)}") from None
        except EngineError:
            continue  # an engine of another kind, perhaps
        except (OSError, YAMLError) as error:
            raise click.UsageError(f"{name}: {explain(error)}") from None
    raise click.UsageError(f"{name} is no configuration of TTS, STT or chat")


def _is_of(kind: EngineKind[Any], name: str) -> bool:
    """Whether a configuration that is not valid names an engine of that kind."""
    try:
        engine = str(load_yaml(dict[str, Any], name).get("engine"))
        return engine in ENGINES[kind.name] or (":" in engine and bool(kind.engine_class(engine)))
    except (EngineError, ValidationError):
        return False


def _prepare(
    kind: str, folder: Path, options: dict[str, Any]
) -> tuple[Callable[[str], Figures], str]:
    """A function that measures a model by name, and what it is measured on."""
    if kind == "chat":
        try:
            asked = load_yaml(Examination, str(options["questions"]))
        except (ValueError, YAMLError) as error:
            raise click.UsageError(f"--questions: {explain(error)}") from None
        note = f"{len(asked.questions)} questions and {len(asked.forms)} schemas, one at a time"
        return (lambda name: apart(measure.measure_chat, name, asked)), note
    language = options["language"]
    recordings = options["recordings"]
    speaker = options["speaker"]
    if kind == "stt" and recordings is not None:
        clips = _clips(recordings)
        note = f"{len(clips)} recordings of {recordings} ({language})"
        return (lambda name: apart(measure.measure_recognition, name, language, clips)), note
    texts = _texts(language, options["texts"])[: options["number"]]
    note = f"{len(texts)} sentences ({language})"
    if kind == "stt":
        try:
            _, sounds = apart(measure.measure_speech, speaker, language, None, texts)
        except Exception as error:  # of any library
            raise click.ClickException(f"--speaker: {speaker}: {explain(error)}") from None
        spoken = measure.write_clips(folder, texts, sounds)
        note += f" spoken by {speaker}, not by people"
        return (lambda name: apart(measure.measure_recognition, name, language, spoken)), note

    def speech(name: str) -> Figures:
        figures, sounds = apart(measure.measure_speech, name, language, options["voice"], texts)
        return figures | apart(measure.judge_speech, texts, sounds, language)

    return speech, note


def _texts(language: str, file: Path | None) -> list[str]:
    if file is not None:
        try:
            lines = [line.strip() for line in file.read_text("utf-8").splitlines()]
        except ValueError:
            raise click.UsageError(f"--texts: {file} is not text in UTF-8") from None
        if not any(lines):
            raise click.UsageError(f"--texts: {file} has no sentence")
        return [line for line in lines if line]
    spoken_language, ours = sentences_of(language)
    if spoken_language != language:
        raise click.UsageError(f"--texts: there are no sentences of ours in {language!r}")
    return [*ours.search]


def _clips(folder: Path) -> list[tuple[Path, str]]:
    """The recordings that have transcripts. Raises click.UsageError if none has."""
    paths = sorted(path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES)
    texts = {path: path.with_suffix(".txt") for path in paths if path.with_suffix(".txt").is_file()}
    if not texts:
        raise click.UsageError(f"{folder} has no recording with a .txt of the same name")
    return [(path, text.read_text("utf-8").strip()) for path, text in texts.items()]

"""`python -m benchmarks.compare`: its figures, table and picture, over engines of the tests."""

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result

from benchmarks.compare.measure import Figures, obeys
from benchmarks.compare.program import compare
from benchmarks.compare.report import as_svg, as_table
from models.weights.store import WeightStore
from tests.engines import ECHO, SCRIPTED, TONE
from tests.hostile.audio_files import wav
from tests.models.sounds import speak


def run(*arguments: str, status: int = 0) -> Result:
    done = CliRunner().invoke(compare, arguments)
    assert done.exit_code == status, done.output
    return done


def figures(*arguments: str) -> dict[str, Any]:
    """The JSON that is printed."""
    found: dict[str, Any] = json.loads(run(*arguments, "--json").stdout)
    return found


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow  # 13 s: three processes, and the recogniser
@pytest.mark.weights
def test_a_voice_that_speaks_is_told_from_one_that_hums(folder: Path) -> None:
    found = figures("tts/hibari", TONE, "--number", "3")
    assert found["note"].startswith("3 sentences (en); ")
    speaks, hums = found["figures"]["tts/hibari"], found["figures"][TONE]
    assert speaks["wer"] < 20 and hums["wer"] > 90 and speaks["quality"] > hums["quality"]
    for one in (speaks, hums):
        assert one["first"] > 0 and one["speed"] > 1 and one["memory"] > 50
    picture = ElementTree.parse(folder / "compare.svg").getroot()
    assert len(picture.findall("{http://www.w3.org/2000/svg}rect")) == 1 + 2 * 6


@pytest.mark.slow
@pytest.mark.weights
def test_recognisers_are_measured_on_recordings_with_transcripts(
    folder: Path, weights: WeightStore
) -> None:
    pcm = speak("The old clock had stopped.", weights)
    sound = wav((pcm * 32767).astype("<i2").tobytes(), rate=16_000)
    for name, text in (("a", "The quick brown fox!"), ("b", "The quick brown dog"), ("c", "")):
        (folder / f"{name}.wav").write_bytes(sound)
        if text:
            (folder / f"{name}.txt").write_text(text)
    found = figures(SCRIPTED, "--recordings", str(folder))
    assert found["note"].startswith(f"2 recordings of {folder} (en)")
    assert found["figures"][SCRIPTED]["wer"] == pytest.approx(100 / 8)
    spoken = figures(SCRIPTED, "--number", "1")
    assert "spoken by tts/hibari, not by people" in spoken["note"]
    assert spoken["figures"][SCRIPTED]["wer"] > 50


def test_chat_models_are_judged_by_their_answers(folder: Path) -> None:
    own = {
        "questions": [
            {"ask": "Say FOUR.", "answer": r"\bfour\b"},
            {"ask": "What is two and two?", "answer": r"\bfour\b"},
        ],
        "forms": [
            {"ask": '{"a": 1}', "json_schema": {"type": "object"}},
            {"ask": '{"a": 1}', "json_schema": {"type": "array"}},
        ],
    }
    (folder / "own.yaml").write_text(json.dumps(own))
    found = figures(ECHO, "--questions", str(folder / "own.yaml"))
    judged = found["figures"][ECHO]
    assert (judged["right"], judged["valid"], found["kind"]) == (50, 50, "chat")
    assert judged["rate"] > 0 and judged["first"] >= 0


def test_a_broken_model_is_named_and_the_others_are_compared(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTIPHON_WEIGHTS", str(folder / "none"))
    found = json.loads(run("llm/smollm2", ECHO, "--json", status=1).stdout)
    assert list(found["figures"]) == [ECHO]
    assert "smollm2-135m-q4" in found["failures"]["llm/smollm2"]


def test_a_comparison_without_any_model_fails(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTIPHON_WEIGHTS", str(folder / "none"))
    assert "no model could be measured" in run("llm/smollm2", status=1).output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "Missing argument"),
        ((TONE, SCRIPTED), "models of one kind"),
        (("tts/none",), "tts/none"),
        (("plans",), "no configuration of TTS, STT or chat"),
        ((TONE, "--language", "xx"), "no sentences of ours in 'xx'"),
        ((SCRIPTED, "--recordings", "."), "has no recording with a .txt"),
        ((ECHO, "--questions", "bad.yaml"), "questions"),
        ((ECHO, "--questions", "broken.yaml"), "--questions: line 2, column 1"),
        ((TONE, "--number", "0"), "--number"),
        ((TONE, "--texts", "empty.txt"), "--texts: empty.txt has no sentence"),
        ((TONE, "--texts", "binary.txt"), "--texts: binary.txt is not text in UTF-8"),
        (("broken.yaml",), "broken.yaml: line 2, column 1"),
        (("wrong.yaml",), "wrong.yaml: kokoro.speeed: Extra inputs"),
        (("own.yaml",), "own.yaml: id: Field required"),
    ],
)
def test_wrong_arguments_are_named(folder: Path, arguments: tuple[str, ...], said: str) -> None:
    (folder / "bad.yaml").write_text("questions: []")
    (folder / "broken.yaml").write_text("a: [")
    (folder / "wrong.yaml").write_text("like: tts/kokoro\nspeeed: 1")
    (folder / "own.yaml").write_text("engine: tests.engines.echo:EchoEngine")
    (folder / "empty.txt").write_text("\n \n")
    (folder / "binary.txt").write_bytes(b"\xff\xfe\x00")
    assert said in run(*arguments, status=2).output


def test_a_table_and_a_picture_take_missing_figures_and_any_name() -> None:
    found: dict[str, Figures] = {
        "<a & b>": {"wer": None, "speed": 0.0},
        "b": {"wer": 12.34, "speed": 20.0},
    }
    lines = as_table(found).splitlines()
    assert lines[1].split() == ["<a", "&", "b>", "0.0", "-"]
    drawn = as_svg(found, "1 < 2")
    assert "&lt;a &amp; b&gt;" in drawn and "12.3" in drawn
    ElementTree.fromstring(drawn)


def test_json_that_obeys_its_schema_is_told_from_other_texts() -> None:
    assert obeys("[1]", {"type": "array"})
    for text in ("", "{", "[1] and more", '{"a": 1}'):
        assert not obeys(text, {"type": "array"})

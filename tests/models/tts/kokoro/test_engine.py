"""Behaviour of Kokoro only: long texts, voice packs, silence and compiled graphs."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from configs.settings import weights_dir
from models.errors import UnknownVoice, UnsupportedLanguage, WeightsCorrupt
from models.runtimes.onnx import open_session
from models.runtimes.openvino import OpenVinoModel, Values, tensor
from models.tts.base import SynthesisRequest
from models.tts.kokoro.engine import LENGTHS, read_voice_pack, sounding_part, split_phonemes
from models.tts.kokoro.phonemes import SYMBOL_IDS
from models.tts.trimming import LEAD_S, TAIL_S, sounding
from models.weights.convert.kokoro import PLAN_OUTPUTS
from models.weights.store import WeightStore
from tests.models.tts.loaded import loaded, speech
from tests.stopwatch import stopwatch


def test_phonemes_below_the_limit_are_not_split() -> None:
    assert list(split_phonemes(" həlˈO. ", 400)) == ["həlˈO."]


def test_long_phonemes_are_split_after_a_clause() -> None:
    assert list(split_phonemes("aaa bbb, ccc ddd", 12)) == ["aaa bbb,", "ccc ddd"]


@pytest.mark.parametrize("limit", [5, 7, 20, 60])
def test_no_word_is_lost_when_phonemes_are_split(limit: int) -> None:
    text = "wan tuː, θɹiː fɔː; faɪv sɪks sɛvən eɪt naɪn tɛn ɪlɛvən twɛlv. " * 3
    pieces = list(split_phonemes(text, limit))
    assert all(len(piece) <= limit for piece in pieces)
    assert "".join("".join(pieces).split()).rstrip(".") == "".join(text.split()).rstrip(".")


def test_a_word_longer_than_the_limit_is_split_at_the_limit() -> None:
    assert list(split_phonemes("a" * 25, 10)) == ["a" * 10, "a" * 10, "a" * 5]


def test_text_without_phonemes_gives_no_pieces() -> None:
    assert list(split_phonemes(" … ", 400)) == []


@pytest.mark.parametrize("values", [np.zeros(1000), np.full((510, 256), np.nan)], ids=len)
def test_a_voice_pack_of_wrong_size_or_with_a_nan_is_refused(
    tmp_path: Path, values: NDArray[np.float64]
) -> None:
    pack = tmp_path / "broken.bin"
    pack.write_bytes(values.astype(np.float32).tobytes())
    with pytest.raises(WeightsCorrupt, match="broken"):
        read_voice_pack(pack)


def test_a_missing_voice_pack_raises_unknown_voice(tmp_path: Path) -> None:
    with pytest.raises(UnknownVoice, match="ghost"):
        read_voice_pack(tmp_path / "ghost.bin")


def test_silence_around_speech_is_trimmed_to_the_lead_and_the_tail() -> None:
    rate = 24_000
    tone = 0.5 * np.sin(np.arange(rate) / 20).astype(np.float32)
    silence = np.zeros(rate, np.float32)
    start, end = sounding(np.concatenate([silence, tone, silence]), rate)
    assert (end - start) / rate == pytest.approx(1 + LEAD_S + TAIL_S, abs=0.02)


def test_a_silent_signal_is_trimmed_to_nothing() -> None:
    start, end = sounding(np.zeros(24_000, np.float32), 24_000)
    assert start == end


@pytest.mark.weights
@pytest.mark.timeout(1200)  # with SSE4.1 alone over 5 minutes on two busy cores
@pytest.mark.slow
def test_a_text_of_many_clauses_is_synthesised_completely() -> None:
    engine, _ = loaded("kokoro")
    clause = "and the old man walked slowly home along the quiet river, "
    request = SynthesisRequest(clause * 9, "af_heart", "en", speed=2.0)
    pieces = [len(c.pcm) for c in engine.synthesize(request) if len(c.pcm)]
    one = len(speech(engine, replace(request, text=clause)))
    assert len(pieces) > 1
    assert sum(pieces) == pytest.approx(9 * one, rel=0.25)


@pytest.mark.slow
@pytest.mark.weights
def test_the_converted_graphs_give_the_audio_of_the_published_graph() -> None:
    loaded("kokoro")  # or skip
    store = WeightStore(weights_dir())
    graphs = store.converted("kokoro-82m-int8")
    published = open_session(store.folder("kokoro-82m-int8") / "kokoro.onnx", 2)
    style = read_voice_pack(store.folder("kokoro-voices") / "voices" / "af_heart.bin")[9:10]
    symbols = np.array([[0, *(SYMBOL_IDS[s] for s in "həlˈO ðˈɛɹ."), 0]], np.int64)
    feed = {"tokens": symbols, "style": style, "speed": np.ones(1, np.float32)}
    wanted = published.run(None, feed)[0]
    _, features, source = open_session(graphs.pop("plan.onnx"), 2).run(PLAN_OUTPUTS, feed)
    values = {
        "features": tensor(features[:, :, None]),
        "source": tensor(source[:, :, None]),
        "style": tensor(style[:, :128]),
        "share": tensor(np.zeros(1, np.float32)),
    }
    for path in graphs.values():
        run = OpenVinoModel(path, 2).run(values)
        while True:
            try:
                next(run)
            except StopIteration as done:
                values |= done.value
                break
    heard = values["audio"].data
    assert np.corrcoef(heard.reshape(-1), wanted)[0, 1] > 0.97  # int8 against a higher precision
    assert heard.std() == pytest.approx(wanted.std(), rel=0.05)


@pytest.mark.weights
@pytest.mark.slow
def test_a_compiled_graph_is_cached_on_disk_and_gives_the_same_output(tmp_path: Path) -> None:
    loaded("kokoro")  # or skip
    part = WeightStore(weights_dir()).converted("kokoro-82m-int8")["part4.onnx"]
    (tmp_path / "part.onnx").write_bytes(part.read_bytes())
    heard = [_part4_output(OpenVinoModel(tmp_path / "part.onnx", 2)) for _ in range(2)]
    (kept,) = tmp_path.glob("part-*.openvino")
    processor, _, compiler = kept.stem.removeprefix("part-").partition("-")
    old = tmp_path / f"part-{processor}-0{compiler[1:]}x.openvino"
    foreign = tmp_path / f"part-{processor[::-1]}x-{compiler}.openvino"
    for path in (old, foreign):
        path.write_bytes(b"of another compiler, of another processor")
    kept.unlink()
    heard.append(_part4_output(OpenVinoModel(tmp_path / "part.onnx", 2)))
    assert kept.exists() and foreign.exists() and not old.exists()
    assert np.array_equal(heard[0], heard[1]) and np.array_equal(heard[1], heard[2])


@pytest.mark.weights
def test_a_graph_that_cannot_be_cached_on_disk_is_compiled_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded("kokoro")
    part = WeightStore(weights_dir()).converted("kokoro-82m-int8")["part4.onnx"]
    (tmp_path / "part.onnx").write_bytes(part.read_bytes())

    def refuse(path: Path, content: bytes) -> None:
        raise PermissionError(f"{path.name}, {len(content)} bytes")

    monkeypatch.setattr("models.runtimes.openvino.write_whole", refuse)
    assert np.isfinite(_part4_output(OpenVinoModel(tmp_path / "part.onnx", 2))).all()
    assert not list(tmp_path.glob("*.openvino"))


@pytest.mark.weights
def test_releasing_memory_keeps_the_output_even_during_a_run() -> None:
    loaded("kokoro")
    model = OpenVinoModel(WeightStore(weights_dir()).converted("kokoro-82m-int8")["part4.onnx"], 2)
    heard = _part4_output(model)
    model.release_memory()
    assert np.array_equal(_part4_output(model), heard)
    closed = model.run(_part4_inputs(frames=400))
    next(closed)
    closed.close()  # its run still computes
    model.release_memory()
    assert np.array_equal(_part4_output(model), heard)


def _part4_output(model: OpenVinoModel) -> NDArray[np.float32]:
    """The output of `part4.onnx` for a source of four frames."""
    run = model.run(_part4_inputs())
    while True:
        try:
            next(run)
        except StopIteration as done:
            return np.array(done.value["excited"].data, np.float32)


@pytest.mark.parametrize("frames", [1, 24, 25, 97, 288, 289, 700])
def test_pieces_are_padded_to_usual_lengths_or_by_few_frames(frames: int) -> None:
    durations = np.array([[3, frames]], np.int64)  # below the length of kept silence
    values, lead = sounding_part(
        durations, np.ones((1, 514, frames), np.float32), np.ones((1, 22, 120 * frames + 1), "f4")
    )
    made = values["features"].shape[3]
    assert lead == 0
    assert made >= frames
    assert made in LENGTHS or 0 <= made - frames < 16
    assert values["source"].shape[3] == 120 * made + 1


def test_a_piece_is_filled_with_its_leading_silence_before_padding() -> None:
    durations = np.array([[14, 26]], np.int64)
    values, lead = sounding_part(
        durations, np.ones((1, 514, 40), np.float32), np.ones((1, 22, 4801), np.float32)
    )
    assert (values["features"].shape[3], lead) == (40, 0)
    assert values["share"].data[0] == 0


@pytest.mark.weights
def test_a_warm_up_runs_in_steps_and_can_be_closed_early() -> None:
    engine, _ = loaded("kokoro")
    steps = engine.warm_up()
    done = [len(next(steps).pcm) for _ in range(12)]
    assert 0 in done
    steps.close()
    assert len(speech(engine, SynthesisRequest("Hello.", "af_heart", "en"))) > 0


@pytest.mark.slow
@pytest.mark.weights
def test_a_closed_request_stops_within_half_a_second() -> None:
    engine, _ = loaded("kokoro")
    long = "and the old man walked slowly home along the quiet river, " * 2
    for steps in (1, 3, 5):
        generator = engine.synthesize(SynthesisRequest(long, "af_heart", "en"))
        for _ in range(steps):
            assert len(next(generator).pcm) == 0  # a step without audio
        with stopwatch() as waited_s:
            generator.close()
        assert waited_s() < 0.5  # 0.02 s on an idle machine
        short = SynthesisRequest("Hello.", "af_heart", "en")
        assert len(speech(engine, short)) == len(speech(engine, short)) > 0


@pytest.mark.weights
def test_an_unknown_language_is_refused_before_any_speech() -> None:
    engine, _ = loaded("kokoro")
    with pytest.raises(UnsupportedLanguage, match="xx"):
        next(engine.synthesize(SynthesisRequest("Hello.", "af_heart", "xx")))


def _part4_inputs(frames: int = 4) -> Values:
    steps = frames * 120 + 1
    source = np.sin(np.arange(22 * steps, dtype=np.float32)).reshape(1, 22, 1, steps)
    return {
        "source": tensor(source),
        "style": tensor(np.ones((1, 128), np.float32)),
        "share": tensor(np.zeros(1, np.float32)),
    }

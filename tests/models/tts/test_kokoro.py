"""What is Kokoro's own: long texts, packs and silence."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from models.errors import UnknownVoice, UnsupportedLanguage, WeightsCorrupt
from models.tts.base import SynthesisRequest
from models.tts.kokoro import read_voice_pack, split_phonemes
from models.tts.silence import LEAD_S, TAIL_S, trim
from tests.models.tts.loaded import loaded, speech


def test_short_phonemes_stay_whole() -> None:
    assert list(split_phonemes(" həlˈO. ", 400)) == ["həlˈO."]


def test_long_phonemes_are_cut_after_a_clause() -> None:
    assert list(split_phonemes("aaa bbb, ccc ddd", 12)) == ["aaa bbb,", "ccc ddd"]


@pytest.mark.parametrize("limit", [5, 7, 20, 60])
def test_no_word_is_lost_when_phonemes_are_split(limit: int) -> None:
    text = "wan tuː, θɹiː fɔː; faɪv sɪks sɛvən eɪt naɪn tɛn ɪlɛvən twɛlv. " * 3
    pieces = list(split_phonemes(text, limit))
    assert all(len(piece) <= limit for piece in pieces)
    assert "".join("".join(pieces).split()).rstrip(".") == "".join(text.split()).rstrip(".")


def test_a_word_over_the_limit_is_cut_hard() -> None:
    assert list(split_phonemes("a" * 25, 10)) == ["a" * 10, "a" * 10, "a" * 5]


def test_nothing_to_say_gives_no_piece() -> None:
    assert list(split_phonemes(" … ", 400)) == []


def test_a_voice_pack_of_the_wrong_size_is_refused(tmp_path: Path) -> None:
    pack = tmp_path / "broken.bin"
    pack.write_bytes(np.zeros(1000, np.float32).tobytes())
    with pytest.raises(WeightsCorrupt, match="broken"):
        read_voice_pack(pack)


def test_a_voice_pack_with_a_nan_is_refused(tmp_path: Path) -> None:
    pack = tmp_path / "nan.bin"
    pack.write_bytes(np.full((510, 256), np.nan, np.float32).tobytes())
    with pytest.raises(WeightsCorrupt, match="nan"):
        read_voice_pack(pack)


def test_a_voice_pack_that_is_not_there_is_an_unknown_voice(tmp_path: Path) -> None:
    with pytest.raises(UnknownVoice, match="ghost"):
        read_voice_pack(tmp_path / "ghost.bin")


def test_silence_around_speech_is_cut_to_a_breath() -> None:
    rate = 24_000
    tone = 0.5 * np.sin(np.arange(rate) / 20).astype(np.float32)
    silence = np.zeros(rate, np.float32)
    cut = trim(np.concatenate([silence, tone, silence]), rate)
    assert len(cut) / rate == pytest.approx(1 + LEAD_S + TAIL_S, abs=0.02)


def test_all_silence_is_cut_to_nothing() -> None:
    assert len(trim(np.zeros(24_000, np.float32), 24_000)) == 0


@pytest.mark.weights
def test_a_text_of_many_clauses_is_spoken_to_its_end() -> None:
    engine, _ = loaded("kokoro")
    clause = "and the old man walked slowly home along the quiet river, "
    request = SynthesisRequest(clause * 9, "af_heart", "en", speed=2.0)
    pieces = [len(chunk.pcm) for chunk in engine.synthesize(request)]
    one = len(speech(engine, replace(request, text=clause)))
    assert len(pieces) > 1
    assert sum(pieces) == pytest.approx(9 * one, rel=0.25)


@pytest.mark.weights
def test_an_unknown_language_is_refused_before_any_speech() -> None:
    engine, _ = loaded("kokoro")
    with pytest.raises(UnsupportedLanguage, match="xx"):
        next(engine.synthesize(SynthesisRequest("Hello.", "af_heart", "xx")))

"""Channels and levels of audio before it is recognised."""

import numpy as np
import pytest
from numpy.typing import NDArray

from models.audio import Pcm
from models.stt.base import STT_SAMPLE_RATE
from pipelines.audio.levels import FRAME_SAMPLES, TARGET, Leveller, Mixdown, levelled
from tests.pipelines.stt.voiced import voiced


def speech(seconds: float = 2.0) -> Pcm:
    """Syllables in two phrases, after a little silence and with one between."""
    pause = np.zeros(STT_SAMPLE_RATE // 2, np.float32)
    phrase = voiced(seconds / 2, sample_rate=STT_SAMPLE_RATE)
    return np.concatenate([pause, phrase, pause, phrase])


def noise(seconds: float = 2.0, level: float = 0.01) -> Pcm:
    samples = round(seconds * STT_SAMPLE_RATE)
    return level * np.random.default_rng(5).standard_normal(samples, np.float32)


def mixed(channels: NDArray[np.floating], block: int = 1000) -> Pcm:
    mixdown, samples = Mixdown(), channels.astype(np.float32)
    blocks = [mixdown.mix(samples[:, at : at + block]) for at in range(0, samples.shape[1], block)]
    return np.concatenate(blocks)


def loudest(pcm: Pcm) -> float:
    frames = pcm[: len(pcm) // FRAME_SAMPLES * FRAME_SAMPLES].reshape(-1, FRAME_SAMPLES)
    return float(np.sqrt(np.square(frames).mean(axis=1)).max())


CHANNELS = {
    "equal": ((1, 0), (1, 0), 1.0),
    "in opposite phase": ((1, 0), (-1, 0), 1.0),
    "in opposite phase, uneven": ((0.2, 0), (-1, 0), 0.6),
    "in opposite phase, with an offset": ((1, 0.2), (-1, 0.2), 1.0),
    "the second silent": ((1, 0), (0, 0), 0.5),
    "the first silent": ((0, 0), (1, 0), 0.5),
}


@pytest.mark.parametrize("kind", CHANNELS)
def test_no_two_channels_of_one_voice_cancel_out(kind: str) -> None:
    *channels, expected = CHANNELS[kind]
    pcm = speech()
    result = mixed(np.stack([gain * pcm + offset for gain, offset in channels]))
    last = slice(-STT_SAMPLE_RATE // 2, None)
    offset = result[last].mean() - expected * pcm[last].mean()
    assert result[last] - offset == pytest.approx(expected * pcm[last], abs=1e-3)


def test_channels_of_two_speakers_are_averaged() -> None:
    first, second = speech(), np.roll(speech(), STT_SAMPLE_RATE // 3) + noise(3.0)
    assert mixed(np.stack([first, second])) == pytest.approx((first + second) / 2, abs=1e-6)


def test_three_channels_of_which_one_is_inverted_are_mixed() -> None:
    pcm = speech()
    assert mixed(np.stack([pcm, -pcm, pcm])) == pytest.approx(pcm, abs=1e-6)


@pytest.mark.parametrize("decibels", [-20, -30, -45, -55])
def test_quiet_speech_gets_the_level_of_loud_speech(decibels: int) -> None:
    quiet = np.round(speech() * 10 ** (decibels / 20) * 32768) / 32768
    assert TARGET / 2 < loudest(levelled(quiet.astype(np.float32))[0]) < 2 * TARGET


def test_speech_that_is_loud_enough_stays_as_it_is() -> None:
    pcm = speech()
    assert levelled(pcm)[0] is pcm


def test_the_loud_speech_after_quiet_speech_is_not_clipped() -> None:
    pcm = np.concatenate([0.005 * speech(), 5 * speech()])
    assert levelled(pcm)[0][-STT_SAMPLE_RATE:] == pytest.approx(pcm[-STT_SAMPLE_RATE:], abs=1e-3)


@pytest.mark.parametrize("level", [1e-5, 1e-4, 1e-3])
def test_noise_without_a_sound_is_not_amplified(level: float) -> None:
    pcm = noise(6.0, level)
    assert loudest(levelled(pcm)[0]) <= 1.01 * loudest(pcm)


def test_noise_that_begins_in_silence_is_soon_left_alone() -> None:
    pcm = np.concatenate([np.zeros(STT_SAMPLE_RATE, np.float32), noise(8.0, 3e-4)])
    assert loudest(levelled(pcm)[0][-STT_SAMPLE_RATE:]) <= 1.01 * loudest(pcm)


@pytest.mark.parametrize("gain", [1.0, 0.01])
def test_an_offset_is_removed(gain: float) -> None:
    pcm = gain * speech()
    result, _ = levelled(pcm + np.float32(0.3))
    assert abs(result.mean()) < 0.01
    assert result[STT_SAMPLE_RATE:] == pytest.approx(levelled(pcm)[0][STT_SAMPLE_RATE:], abs=0.02)


@pytest.mark.parametrize("frames", [1, 3, 40])
def test_blocks_of_a_stream_change_nothing(frames: int) -> None:
    pcm = 0.01 * speech() + np.float32(0.01)
    whole = pcm[: len(pcm) // FRAME_SAMPLES * FRAME_SAMPLES].reshape(-1, FRAME_SAMPLES)
    leveller = Leveller()
    blocks = [leveller.process(whole[at : at + frames]) for at in range(0, len(whole), frames)]
    expected = Leveller().process(whole)
    assert np.concatenate(blocks) == pytest.approx(expected, abs=1e-6)
    assert TARGET / 2 < loudest(expected[-40:].reshape(-1)) < 2 * TARGET


def test_soft_beginnings_are_not_raised_above_the_rest() -> None:
    pcm = np.concatenate([0.002 * speech(), speech()])
    assert levelled(pcm)[0] is pcm

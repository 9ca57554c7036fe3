"""Watermark: quality, cost, robustness and false positives, by which to choose the default.

`python -m benchmarks.tts.watermark [FOLDER]` speaks sentences in several voices, marks them as a
stream of chunks of 100 ms, and prints the level of the mark, what it does to DNSMOS and to a
recogniser, its detection after codecs, and what it costs. With a FOLDER of recordings of
people it also counts how many of their stretches of 4 s seem marked; `--cuts` draws that many from
them.
"""

import io
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import av
import numpy as np
import yaml

from benchmarks.harness.recognition import bare_engine, transcribe_alone
from benchmarks.harness.recordings import audio_files, read_pcm, word_error_rate
from benchmarks.harness.report import begin, parser
from benchmarks.harness.speech import SENTENCES_FILE, store, voices, whole_speech
from models.audio import Pcm, encode_g711, resample
from models.registry import QUALITY, WATERMARK, load
from models.stt.base import STT_SAMPLE_RATE
from models.tts.base import SynthesisRequest
from models.watermark.base import Watermark
from models.watermark.perth import STRETCH_S
from pipelines.audio.watermarking import DETECTION_THRESHOLD

VOICES = {
    "tts/kokoro": ("af_heart", "am_adam", "bf_emma", "bm_george"),
    "tts/vits": (),  # all voices of the engine
}
SENTENCES = 6
CHUNK_S = 0.1


@dataclass(frozen=True, slots=True)
class Clip:
    """A synthesised sentence, without and with the watermark."""

    text: str
    pcm: Pcm
    marked: Pcm
    sample_rate: int
    cost: float  # seconds per second of audio

    def at_16_khz(self, *, marked: bool) -> Pcm:
        return resample(self.marked if marked else self.pcm, self.sample_rate, STT_SAMPLE_RATE)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("folder", type=Path, nargs="?", help="recordings of people")
    options.add_argument("--cuts", type=int, default=2000, help="stretches of the recordings")
    arguments = begin(options)
    watermark = load(WATERMARK, "watermark/perth", store())
    clips = _clips(watermark)
    print(f"{len(clips)} sentences, {sum(len(c.pcm) / c.sample_rate for c in clips):.0f} s\n")
    decibels = [10 * np.log10(_power(c.pcm) / _power(c.marked - c.pcm)) for c in clips]
    print(f"the mark lies {np.mean(decibels):.1f} dB below the speech ({min(decibels):.1f} least)")
    print(f"highest peak {max(float(np.abs(c.marked).max()) for c in clips):.2f}")
    print(f"cost {np.mean([c.cost for c in clips]):.3f} s a second, in chunks of {CHUNK_S:g} s")
    plain = [clip.at_16_khz(marked=False) for clip in clips]
    marked = [clip.at_16_khz(marked=True) for clip in clips]
    quality = load(QUALITY, "quality/dnsmos", store())
    drops = [quality.rate(a) - quality.rate(b) for a, b in zip(plain, marked, strict=True)]
    print(f"DNSMOS falls by {np.mean(drops):.3f} (at most {max(drops):.3f} for one sentence)")
    texts = [clip.text for clip in clips]
    plain_wer, marked_wer = (
        word_error_rate(texts, [transcribe_alone(bare_engine(), pcm) for pcm in sounds])
        for sounds in (plain, marked)
    )
    print(f"words that Whisper reads wrongly: {plain_wer:.2%} plain, {marked_wer:.2%} marked\n")
    print(f"{'after':12} {'found':>7} {'least likely':>13} {'unmarked, most likely':>23}")
    for name, change in CHANGES.items():
        detected = [_likelihood(watermark, change(pcm)) for pcm in marked]
        unmarked = [_likelihood(watermark, change(pcm)) for pcm in plain]
        share = np.mean([likelihood >= DETECTION_THRESHOLD for likelihood in detected])
        print(f"{name:12} {share:7.1%} {min(detected):13.2f} {max(unmarked):23.2f}")
    if arguments.folder is not None:
        _count_false(watermark, arguments.folder, arguments.cuts)


def _clips(watermark: Watermark) -> list[Clip]:
    texts = yaml.safe_load(SENTENCES_FILE.read_text(encoding="utf-8"))["en"][:SENTENCES]
    clips = []
    for model, keys in VOICES.items():
        engine, info = voices(model)
        rate = engine.capabilities.sample_rate
        for key in keys or [voice.key for voice in info.voices]:
            for text in texts:
                pcm = whole_speech(engine, SynthesisRequest(text=text, voice=key, language="en"))
                began = time.perf_counter()
                marked = mark(watermark, pcm, rate)
                cost = (time.perf_counter() - began) / (len(pcm) / rate)
                clips.append(Clip(text, pcm, marked, rate, cost))
    return clips


def mark(watermark: Watermark, pcm: Pcm, sample_rate: int) -> Pcm:
    """Mark `pcm` as a stream of short chunks, which must join without a seam."""
    stream = watermark.stream(sample_rate)
    size = round(CHUNK_S * sample_rate)
    parts = [stream.process(pcm[start : start + size]) for start in range(0, len(pcm), size)]
    return np.concatenate([*parts, stream.flush()])


def _count_false(watermark: Watermark, folder: Path, cuts: int) -> None:
    random = np.random.default_rng(1)
    size = int(STRETCH_S * STT_SAMPLE_RATE)
    recordings = [pcm for path in audio_files(folder) if len(pcm := read_pcm(path)) > size]
    seconds = sum(map(len, recordings)) / STT_SAMPLE_RATE
    likelihoods = []
    for _ in range(cuts):
        pcm = recordings[random.integers(len(recordings))]
        start = random.integers(len(pcm) - size)
        likelihoods.append(_likelihood(watermark, pcm[start : start + size]))
    wrong = sum(likelihood >= DETECTION_THRESHOLD for likelihood in likelihoods)
    print(
        f"\n{wrong} of {cuts} cuts of {len(recordings)} recordings of people are detected as marked"
        f" ({seconds:.0f} s in all, so cuts overlap): at most {max(likelihoods):.2f} likely, "
        f"99.9 % under {np.percentile(likelihoods, 99.9):.2f}"
    )


def _likelihood(watermark: Watermark, pcm: Pcm) -> float:
    stretches = watermark.likelihoods(pcm, STT_SAMPLE_RATE)
    return max((likelihood for _, _, likelihood in stretches), default=0.0)


def _power(pcm: Pcm) -> float:
    return float(np.square(pcm, dtype=np.float64).mean())


def _telephone(pcm: Pcm) -> Pcm:
    return resample(resample(pcm, STT_SAMPLE_RATE, 8000), 8000, STT_SAMPLE_RATE)


def _mulaw(pcm: Pcm) -> Pcm:
    codes = encode_g711(resample(pcm, STT_SAMPLE_RATE, 8000), "mulaw")
    return _decoded(io.BytesIO(codes), "mulaw", {"sample_rate": "8000"})


def _through(codec: str, container: str, bit_rate: int) -> Callable[[Pcm], Pcm]:
    def change(pcm: Pcm) -> Pcm:
        target = io.BytesIO()
        # PyAV's types do not express that a codec of this name makes an audio stream.
        with cast(Any, av.open(target, "w", format=container)) as out:
            stream = out.add_stream(codec, rate=STT_SAMPLE_RATE)
            stream.layout = "mono"
            stream.bit_rate = bit_rate
            layout = "fltp" if codec == "libmp3lame" else "flt"
            frame = av.AudioFrame.from_ndarray(np.ascontiguousarray(pcm[None]), layout, "mono")
            frame.sample_rate = STT_SAMPLE_RATE
            out.mux(stream.encode(frame))
            out.mux(stream.encode(None))
        return _decoded(io.BytesIO(target.getvalue()), container, {})

    return change


def _decoded(source: io.BytesIO, container: str, options: dict[str, str]) -> Pcm:
    to_float = av.AudioResampler("flt", "mono", STT_SAMPLE_RATE)
    with av.open(source, "r", format=container, options=options) as opened:
        frames = [part for frame in opened.decode(audio=0) for part in to_float.resample(frame)]
    return np.asarray(np.concatenate([frame.to_ndarray()[0] for frame in frames]), np.float32)


def _noisy(pcm: Pcm) -> Pcm:
    noise = np.random.default_rng(2).standard_normal(len(pcm)) * np.sqrt(_power(pcm) / 100)
    return np.asarray(pcm + noise, np.float32)


CHANGES: dict[str, Callable[[Pcm], Pcm]] = {
    "nothing": lambda pcm: pcm,
    "MP3 64k": _through("libmp3lame", "mp3", 64_000),
    "MP3 24k": _through("libmp3lame", "mp3", 24_000),
    "Opus 24k": _through("libopus", "ogg", 24_000),
    "8 kHz": _telephone,
    "mu-law": _mulaw,
    "half level": lambda pcm: pcm * np.float32(0.5),
    "noise 20 dB": _noisy,
    "1 s of it": lambda pcm: pcm[len(pcm) // 3 : len(pcm) // 3 + STT_SAMPLE_RATE],
    "speed 1.05": lambda pcm: resample(pcm, 16_800, STT_SAMPLE_RATE),
}

if __name__ == "__main__":
    main()

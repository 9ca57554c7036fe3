"""Whether short turns stay in the language of their session, and sentences in another change it.

`python -m benchmarks.stt.languages.session` speaks the answers, names and numbers of
`short_turns.yaml` and sentences with this service's voices in twelve languages, asks Whisper once
for the language probabilities of each, and keeps these in the file `--keep`, so that an interrupted
run can continue. Sessions are then played with the service's own estimate of their language. Each
begins with a sentence that makes the language certain. In some, all short turns of the same
language and half follow; a turn that is taken for another language is a flip. In the others, a
sentence of two seconds or more in another language follows, at once or after three short turns. A
hash tells whether a text is in the tuned or the held-out half.
"""

import json
import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from itertools import product
from pathlib import Path

import numpy as np
import yaml

from benchmarks.harness.recognition import bare_engine
from benchmarks.harness.report import begin, parser
from benchmarks.harness.speech import HALVES, SENTENCES_FILE, half_of, noise, silence, speak
from models.audio import Pcm
from models.stt.base import LEAST_PROBABILITY, STT_SAMPLE_RATE, Transcript
from models.stt.whisper.engine import WhisperEngine
from models.stt.whisper.languages import DOUBTFUL, chosen
from pipelines.stt.heard_language import SessionLanguage

TURNS = Path(__file__).with_name("short_turns.yaml")
VOICES = {
    "en": ("af_heart", "am_michael"),
    "de": ("de:im_nicola", "de:ff_siwis"),
    "es": ("ef_dora", "em_alex"),
    "fr": ("ff_siwis", "fr:im_nicola"),
    "it": ("if_sara", "im_nicola"),
    "pt": ("pf_dora", "pm_alex"),
    "nl": ("nl:em_alex",),
    "pl": ("pl:em_alex",),
    "hi": ("hf_alpha", "hm_omega"),
    "ja": ("jf_alpha", "jm_kumo"),
    "zh": ("zf_xiaoxiao", "zm_yunxi"),
    "ar": ("ar:ff_siwis",),
}
UNSPACED = ("ja", "zh")  # whose sentences here are so short that two make one
BEFORE_S, AFTER_S = 0.3, 0.16  # of silence around an utterance, as in a live session
NOISE = 0.001  # RMS
VOICED = 0.01  # of full scale
LEAST_CHANGE_S = 2.0
TURNS_BETWEEN = (0, 3)

Scores = dict[str, float]


@dataclass(frozen=True, slots=True)
class Clip:
    """What Whisper hears in an utterance: in its states alone and, if doubtful, in all 30 s."""

    kind: str  # short or sentence
    language: str
    voice: str
    text: str
    seconds: float
    scores: list[Scores]

    @property
    def half(self) -> str:
        return half_of(self.language + self.text)

    def heard_in(self, session: SessionLanguage, languages: Sequence[str]) -> str:
        """The language that a session hears in the clip, which becomes evidence for the session."""
        seconds = self.seconds + BEFORE_S + AFTER_S
        best = ""
        probability = 0.0
        scores = Scores()
        prior = session.prior(seconds)
        for scores in self.scores:
            best, probability = chosen(scores, prior, languages)
            if probability >= DOUBTFUL:
                break
        likely = {code: score for code, score in scores.items() if score > LEAST_PROBABILITY}
        session.note(Transcript(best, probability, scores=likely), seconds)
        return best


def utterances() -> list[tuple[str, str, str, str]]:
    """Kind, language, voice and text of each, in an order by hash, so that any part is a sample."""
    turns = yaml.safe_load(TURNS.read_text(encoding="utf-8"))
    sentences = yaml.safe_load(SENTENCES_FILE.read_text(encoding="utf-8"))
    listed = []
    for language, voices in VOICES.items():
        texts = sentences[language]
        if language in UNSPACED:
            pairs = zip(texts, texts[1:] + texts[:1], strict=True)
            texts = [first + second for first, second in pairs]
        for voice in voices:
            listed += [("short", language, voice, text) for text in turns[language]]
            listed += [("sentence", language, voice, text) for text in texts]
    return sorted(listed, key=lambda key: sha256(repr(key).encode()).hexdigest())


def clips(keep: Path) -> Iterator[Clip]:
    """All clips; those that are not kept yet are spoken and heard."""
    kept = [json.loads(line) for line in keep.read_text().splitlines()] if keep.exists() else []
    yield from (Clip(**fields) for fields in kept)
    done = {
        tuple(fields[name] for name in ("kind", "language", "voice", "text")) for fields in kept
    }
    missing = [key for key in utterances() if key not in done]
    with keep.open("a") as file:
        for number, (kind, language, voice, text) in enumerate(missing):
            pcm = speak(text, voice, language)
            loud = np.flatnonzero(np.abs(pcm) > VOICED)
            pcm = pcm[loud[0] : loud[-1] + 1]
            whole = np.concatenate([silence(BEFORE_S), pcm, silence(AFTER_S)])
            whole += noise(len(whole), number, NOISE)
            seconds = len(pcm) / STT_SAMPLE_RATE
            clip = Clip(kind, language, voice, text, seconds, scores_of(whole))
            print(json.dumps(asdict(clip), ensure_ascii=False), file=file, flush=True)
            yield clip


def scores_of(pcm: Pcm) -> list[Scores]:
    """The probable languages of a sound, by their probabilities."""
    recogniser = bare_engine()
    assert isinstance(recogniser, WhisperEngine)
    steps: list[Scores] = []
    states = recogniser._window.encode(pcm)
    for part in (states, recogniser._window.fill(states)):
        ranking = recogniser._model.detect_language(recogniser._view([part]))[0]
        steps.append(
            {token[2:-2]: round(share, 5) for token, share in ranking if share > LEAST_PROBABILITY}
        )
        if max(steps[-1].values(), default=0.0) >= DOUBTFUL:
            break
    return steps


def report(half: str, heard: Sequence[Clip], languages: Sequence[str]) -> None:
    """Play all sessions of one half."""
    draw = random.Random(half)
    wrong = Counter[str]()
    short = [clip for clip in heard if clip.half == half and clip.kind == "short"]
    certain: dict[str, list[Clip]] = defaultdict(list)
    for clip in heard:
        if clip.half == half and clip.kind == "sentence":
            session = SessionLanguage()
            clip.heard_in(session, languages)
            if session.certain == clip.language:
                certain[clip.language].append(clip)
    turns = flips = changes = missed = 0
    for language, sentences in certain.items():
        own = [clip for clip in short if clip.language == language]
        for sentence in sentences:
            session = SessionLanguage()
            sentence.heard_in(session, languages)
            for clip in draw.sample(own, len(own)):
                turns += 1
                guess = clip.heard_in(session, languages)
                if guess != language:
                    flips += 1
                    wrong[f"flip {language} to {guess}: {clip.text}"] += 1
        others = [clip for code in certain if code != language for clip in certain[code]]
        for sentence, other, between in product(sentences, others, TURNS_BETWEEN):
            if other.seconds < LEAST_CHANGE_S:
                continue
            session = SessionLanguage()
            for clip in (sentence, *draw.sample(own, min(between, len(own)))):
                clip.heard_in(session, languages)
            changes += 1
            if other.heard_in(session, languages) != other.language:
                missed += 1
                wrong[f"missed {language} to {other.language}: {other.text}"] += 1
    alone = sum(clip.heard_in(SessionLanguage(), languages) != clip.language for clip in short)
    usual = sum(
        clip.heard_in(SessionLanguage(clip.language), languages) != clip.language for clip in short
    )
    print(
        f"{half}: of {len(short)} short turns, {alone} are taken for another language alone,"
        f" {usual} if theirs is the usual one;"
        f" {flips} of {turns} flip in {sum(map(len, certain.values()))} sessions;"
        f" {missed} of {changes} changes are missed ({missed / max(changes, 1):.1%})"
    )
    for line, count in wrong.most_common(10):
        print(f"  {count} times {line}")


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--keep", type=Path, default=Path("/tmp/session_language.jsonl"))
    heard = list(clips(begin(options).keep))
    languages = sorted({code for clip in heard for scores in clip.scores for code in scores})
    for half in HALVES:
        report(half, heard, languages)


if __name__ == "__main__":
    main()

"""Spoken consent: the sentence must be said before it expires, in its own workspace."""

import time
from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest
from rapidfuzz import fuzz

from configs.load import load_yaml
from configs.schema.voices import ConsentConfig
from configs.settings import weights_dir
from models.audio import Pcm
from models.base import ModelInfo
from models.registry import STT, load_model
from models.speaker.base import mean_embedding
from models.stt.base import Segment, Transcript, TranscriptionRequest, Word
from models.weights.store import WeightStore
from pipelines.errors import InvalidRequest
from pipelines.ports import STTModel
from pipelines.storage.encryption import Encryption
from pipelines.voices.checks import CheckedSamples
from pipelines.voices.consent import Consent, plain
from tests.altered import altered
from tests.clock import WallClock
from tests.local_ports import LocalSTTModel
from tests.models.sounds import speak

KEY = "A" * 43 + "="
CONFIG = load_yaml(ConsentConfig, "consent")
AUDIO: Pcm = np.full(16_000 * 40, 0.1, np.float32)


class Recogniser:
    """A recogniser that returns these texts one after the other."""

    def __init__(self, *texts: str) -> None:
        self._texts = list(texts)
        self.requests: list[TranscriptionRequest] = []

    async def describe(self) -> ModelInfo:
        raise NotImplementedError

    async def transcribe(self, request: TranscriptionRequest) -> Transcript:
        self.requests.append(request)
        text = self._texts.pop(0)
        words = [Word(word, 0.5 * n, 0.5 * n + 0.4, 0.9) for n, word in enumerate(text.split())]
        segment = Segment(text, 0.0, 1.0, -0.1, 0.0, tuple(words))
        return Transcript("en", 1.0, (segment,))


def consent(transcriber: STTModel | None = None, config: ConsentConfig = CONFIG) -> Consent:
    return Consent(Encryption([KEY]), config, transcriber or Recogniser())


def test_a_consent_token_is_valid_in_its_workspace_only() -> None:
    issuer = consent()
    sentence, token = issuer.issue(7)
    assert issuer.open(7, token) == sentence
    assert all(word in sentence.text for word in sentence.words) and len(sentence.words) == 4
    assert issuer.issue(7)[0].text != sentence.text
    changed = altered(token[:-8]) + token[-8:]
    for workspace, wrong in ((8, token), (7, changed), (7, ""), (7, "?"), (7, "é" * 9)):
        with pytest.raises(InvalidRequest, match="consent_token"):
            issuer.open(workspace, wrong)


def test_a_consent_token_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    issuer, began = consent(), time.time()
    sentence, token = issuer.issue(7)
    assert began + 3599 <= sentence.expires <= time.time() + 3601  # in whole seconds
    WallClock(monkeypatch).ahead = timedelta(seconds=3602)
    with pytest.raises(InvalidRequest, match="expired"):
        issuer.open(7, token)


@pytest.mark.parametrize("language", list(CONFIG.sentences))
def test_a_spoken_consent_sentence_is_recognised_and_other_speech_is_not(language: str) -> None:
    issuer = consent()
    sentence, _ = issuer.issue(1, f"{language}-XX")
    other = replace(sentence, words=issuer.issue(1, language)[0].words)
    assert sentence.language == language
    assert issuer.is_said(sentence, sentence.text)
    assert issuer.is_said(sentence, f"Well. {sentence.text.upper()} And then some more words.")
    assert issuer.is_said(sentence, sentence.text.replace(sentence.words[1], "mumble"))
    last_two = sentence.text.replace(sentence.words[2], "x").replace(sentence.words[3], "y")
    assert not issuer.is_said(sentence, last_two)
    assert not issuer.is_said(sentence, " ".join(sentence.words))
    assert not issuer.is_said(sentence, "")
    if len(set(other.words) & set(sentence.words)) < CONFIG.heard_words:
        assert not issuer.is_said(other, sentence.text)


@pytest.mark.parametrize(
    ("language", "consents", "refuses"),
    [
        ("en", "I agree", "I do not agree"),
        ("en", "I agree", "I don't agree"),
        ("en", "I consent", "I never consent"),
        ("de", "Ich stimme zu", "Ich stimme nicht zu"),
        ("de", "bin damit einverstanden", "bin damit nicht einverstanden"),
        ("es", "Acepto", "No acepto"),
        ("es", "doy mi", "no doy mi"),
        ("fr", "J'accepte", "Je n'accepte pas"),
        ("fr", "j'autorise", "je n'autorise pas"),
        ("it", "Accetto", "Non accetto"),
        ("it", "acconsento", "non acconsento"),
        ("pt", "Eu concordo", "Eu não concordo"),
        ("pt", "autorizo", "não autorizo"),
    ],
)
def test_a_sentence_that_is_denied_is_no_consent(
    language: str, consents: str, refuses: str
) -> None:
    issuer = consent()
    sentences = [issuer.issue(1, language)[0], issuer.phrase(language)]
    (sentence,) = [one for one in sentences if consents in one.text]
    for after in ("", " And I do not smoke. Nein. No. Non."):
        assert issuer.is_said(sentence, f"Well. {sentence.text}{after}")
        assert not issuer.is_said(sentence, f"Well. {sentence.text.replace(consents, refuses)}")


@pytest.mark.parametrize("language", list(CONFIG.sentences))
def test_the_words_of_consent_sentences_are_not_confusable(language: str) -> None:
    of_language = CONFIG.sentences[language]
    words = [plain(word) for word in of_language.words]
    others = plain(of_language.sentence).split()
    for number, word in enumerate(words):
        for other in words[number + 1 :] + others:
            assert fuzz.ratio(word, other) < CONFIG.word_likeness, (word, other)


def test_a_language_without_a_consent_sentence_is_refused() -> None:
    for ask in (lambda: consent().issue(1, "xx"), lambda: consent().phrase("xx")):
        with pytest.raises(InvalidRequest, match="'xx'.*en, de"):
            ask()


@pytest.mark.parametrize("language", list(CONFIG.sentences))
def test_a_fixed_phrase_is_recognised_and_other_consent_is_not(language: str) -> None:
    issuer = consent()
    phrase = issuer.phrase(f"{language}-XX")
    assert issuer.is_said(phrase, phrase.text.lower().replace("openai", "open ai"))
    others = {code: issuer.phrase(code).text for code in CONFIG.sentences if code != language}
    for other in (issuer.issue(1, language)[0].text, *others.values(), phrase.text[:60], ""):
        assert not issuer.is_said(phrase, other), other


def test_the_reader_of_a_phrase_must_be_the_speaker_of_the_files() -> None:
    speakers = np.eye(256, dtype=np.float32)
    checked = CheckedSamples(
        samples=(), pitch_hz=None, excerpt=AUDIO, openings=(), speakers=speakers[[3, 3, 3]]
    )
    consent().check_same_speaker(speakers[3], checked)
    with pytest.raises(InvalidRequest, match="not that of the consent recording"):
        consent().check_same_speaker(speakers[4], checked)
    other = 0.5 * speakers[3] + np.sqrt(0.75, dtype=np.float32) * speakers[4]
    spliced = replace(checked, speakers=np.stack([speakers[3], speakers[3], other]))
    assert mean_embedding(spliced.speakers) @ speakers[3] > 0.9
    with pytest.raises(InvalidRequest, match="not that of the consent recording"):
        consent().check_same_speaker(speakers[3], spliced)


async def test_any_file_may_begin_with_consent_and_only_beginnings_are_transcribed() -> None:
    recogniser = Recogniser("Something else.", "")
    issuer = consent(recogniser)
    sentence, _ = issuer.issue(1)
    recogniser._texts.append(sentence.text)
    place, said = await issuer.find(sentence, [AUDIO, AUDIO, AUDIO, AUDIO])
    seconds = 0.5 * len(sentence.text.split()) - 0.1  # until its last word
    assert (place, len(said)) == (2, int(seconds * 16_000))
    assert len(recogniser.requests) == 3  # the last was not needed
    assert {len(one.pcm) for one in recogniser.requests} == {28 * 16_000}
    assert {one.language for one in recogniser.requests} == {"en"}


async def test_speech_before_and_after_the_consent_sentence_is_cut_off() -> None:
    recogniser = Recogniser()
    issuer = consent(recogniser)
    sentence, _ = issuer.issue(1)
    # Another speaker talks for seconds and happens to say one of the words.
    recogniser._texts.append(
        f"{sentence.words[0]} and what more there was. {sentence.text} " + "Oh " * 8
    )
    _, said = await issuer.find(sentence, [np.arange(16_000 * 40, dtype=np.float32)])
    length = len(sentence.text.split())
    assert (said[0], len(said)) == (6 * 8_000, int((0.5 * length - 0.1) * 16_000))


async def test_missing_consent_is_refused_with_the_sentence_to_say() -> None:
    issuer = consent(Recogniser("Something else.", "I agree."))
    sentence, _ = issuer.issue(1)
    with pytest.raises(InvalidRequest) as refused:
        await issuer.find(sentence, [AUDIO, AUDIO])
    assert sentence.text in str(refused.value)


@pytest.mark.weights
@pytest.mark.slow
async def test_the_shipped_recogniser_understands_the_consent_sentence() -> None:
    weights = WeightStore(weights_dir())
    issuer = consent(LocalSTTModel(*load_model(STT, "stt/whisper_base", weights)))
    sentence, _ = issuer.issue(1)
    said = speak(sentence.text, weights)
    more = np.concatenate([said, speak("And then some more, which is not it.", weights)])
    place, found = await issuer.find(sentence, [said[:16_000], more])
    assert place == 1 and abs(len(found) - len(said)) < 16_000
    with pytest.raises(InvalidRequest):
        await issuer.find(issuer.issue(1)[0], [speak("A quite different sentence.", weights)])

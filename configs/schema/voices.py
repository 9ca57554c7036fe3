"""The schemas of `configs/{voices,openai,custom_voices,consent}.yaml`."""

from typing import Literal

from pydantic import Field, model_validator

from configs.schema.base import StrictModel
from configs.schema.jobs import WorkConfig


class VoiceRef(StrictModel):
    """A reference to a voice: its engine and the engine's key."""

    engine: str  # name in the registry, such as "kokoro"
    key: str  # VoiceInfo.key


class VoicesConfig(StrictModel):
    """The default voice of each language, and the maximum duration of speech."""

    defaults: dict[str, VoiceRef] = Field(min_length=1)  # ISO 639-1 code to voice
    # Maximum speech per 5,000 characters of a text, or part of them; longer speech is refused.
    longest_s: float = Field(default=900.0, gt=0)


Tier = Literal["fast", "quality"]


class OpenAIVoice(StrictModel):
    """A voice of OpenAI's, with the voices that replace it here."""

    gender: Literal["male", "female"]  # gender of another replacement if none is available
    fast: VoiceRef | None = None
    quality: VoiceRef | None = None

    def refs(self, tier: Tier | None) -> list[VoiceRef]:
        """Lists the replacements, beginning with the one of the tier."""
        both = [self.fast, self.quality] if tier != "quality" else [self.quality, self.fast]
        return [voice for voice in both if voice is not None]


class OpenAIConfig(StrictModel):
    """Names of voices and models that OpenAI's clients send by default."""

    speech_models: dict[str, Tier]
    realtime_models: dict[str, Tier]  # tier of the voices
    chat_models: tuple[str, ...]
    transcription_models: list[str] = Field(min_length=1)
    voices: dict[str, OpenAIVoice] = Field(min_length=1)


class SampleRules(StrictModel):
    """Requirements on samples; others are refused."""

    min_files: int = Field(ge=1)
    max_files: int = Field(ge=1)
    min_seconds: float = Field(gt=0)  # per file
    max_seconds: float = Field(gt=0)
    min_total_seconds: float = Field(gt=0)
    min_speech_share: float = Field(ge=0, le=1)  # share of speech in a file
    speech_threshold: float = Field(gt=0, lt=1)  # probability of the voice detector
    min_snr_db: float
    max_clipped_share: float = Field(ge=0, le=1)  # share of clipped samples of a file
    min_level_dbfs: float = Field(le=0)  # level of the speech
    # Power above the band of telephones, relative to the speech; None allows recordings of calls.
    min_treble_db: float | None = None
    min_similarity: float = Field(ge=-1, le=1)  # cosine of a file with the most typical one
    min_piece_similarity: float = Field(ge=-1, le=1)  # cosine of each of its pieces with that file


class VoiceWorkConfig(WorkConfig):
    """The jobs that build custom voices: their models, resources, leases and attempts."""

    model: str  # path under configs/ without .yaml: the engine that a voice is built for
    encoder: str  # path of the speaker encoder that measures similarity
    most_workers: int = Field(ge=1)  # processes for one voice, at most one per core of the cluster
    seconds_per_voice: float = Field(gt=0)  # used for `estimated_completion`


class FitConfig(StrictModel):
    """Parameters of the search for a voice, and its acceptance thresholds."""

    search: Literal["cma-es with surrogate"] = "cma-es with surrogate"  # the only method
    seed: int
    evaluations: int = Field(ge=1)  # maximum number of sentences synthesised in the search
    generation: int = Field(ge=2)  # sentences synthesised in one generation of the search
    choice_sentences: int = Field(ge=1)  # sentences for the rating of each last candidate
    min_quality: float = Field(ge=1, le=5)  # mean opinion score; candidates below it are penalised
    judge_sentences: int = Field(ge=1)  # maximum number of sentences for rating the voice
    min_similarity: float = Field(ge=-1, le=1)  # similarity of the finished voice to the recordings


class PromptConfig(StrictModel):
    """Selection of the recording that a cloning engine uses. Models are paths under configs/."""

    model: str  # the engine that the voice is built for: one whose packs are recordings
    vad: str
    min_seconds: float = Field(ge=2)  # length of the recording
    max_seconds: float = Field(le=18)
    candidates: int = Field(ge=1)  # recordings that are evaluated
    judge: bool  # whether workers load the engine, to measure similarity
    gpus: float = Field(ge=0, le=1)  # share of a GPU per worker, if the engine has one
    judged_sentences: int = Field(ge=1)  # per candidate
    min_confidence: float = Field(ge=0, le=1)  # of a transcript that an engine reads
    min_similarity: float = Field(ge=-1, le=1)  # similarity of the voice to the other recordings


class CustomVoicesConfig(StrictModel):
    """`configs/custom_voices.yaml`."""

    # How voices are built; "auto" is "prompt" if its model is deployed and speaks the language.
    method: Literal["auto", "fit", "prompt"] = "auto"

    samples: SampleRules
    clips: SampleRules  # rules for recordings of clients whose vendors need only seconds of speech
    speakers: SampleRules  # rules for enrolled speakers
    consents: SampleRules  # rules for recordings of a consent phrase
    work: VoiceWorkConfig
    fit: FitConfig
    prompt: PromptConfig

    @property
    def models(self) -> tuple[str, ...]:
        """The engines that voices are built for, the preferred one first, as paths under configs/
        without .yaml."""
        both = {"prompt": self.prompt.model, "fit": self.work.model}
        return tuple(both.values()) if self.method == "auto" else (both[self.method],)


class ConsentWords(StrictModel):
    """The consent sentences of one language, each with {words}, and its fixed phrase."""

    sentence: str  # consent to a custom voice
    speaker_sentence: str  # consent to an enrolled speaker
    phrase: str  # fixed consent to a custom voice, for OpenAI's clients
    words: tuple[str, ...] = Field(min_length=20)  # all different; some are drawn for each sentence
    refusals: tuple[str, ...] = ()  # words, without accents, that turn a sentence into its opposite

    @model_validator(mode="after")
    def _is_usable(self) -> "ConsentWords":
        has_place = "{words}" in self.sentence and "{words}" in self.speaker_sentence
        if not has_place or len(set(self.words)) != len(self.words):
            raise ValueError("each sentence needs {words}, and all words must be different")
        return self


class ConsentConfig(StrictModel):
    """`configs/consent.yaml`."""

    lasts_s: float = Field(gt=0)  # validity of an issued sentence
    drawn_words: int = Field(ge=2)
    heard_words: int = Field(ge=1)  # minimum number of drawn words that are recognised
    word_likeness: float = Field(gt=0, le=100)  # minimum for a recognised word
    likeness: float = Field(gt=0, le=100)  # minimum between the transcript and the sentence
    heard_seconds: float = Field(gt=0, le=30)  # transcribed from the start of each file
    min_similarity: float = Field(ge=-1, le=1)  # between the sentence's speaker and the samples
    min_part_similarity: float = Field(ge=-1, le=1)  # the phrase's speaker and each sample
    sentences: dict[str, ConsentWords]  # sentences by ISO 639-1 code

    @model_validator(mode="after")
    def _has_english(self) -> "ConsentConfig":
        if "en" not in self.sentences or self.heard_words > self.drawn_words:
            raise ValueError(
                "an English sentence is required, and heard_words must not exceed drawn_words"
            )
        return self

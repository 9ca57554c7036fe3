"""The shape of `configs/cloning.yaml`: what samples must be, and how the work is given out."""

from typing import Literal

from pydantic import Field, model_validator

from configs.schema.strict import StrictModel

SearchKind = Literal["cma-es", "surrogate", "cma-es with surrogate"]
"""What a fit learns from what it heard: a population, a forecast of all styles, or both."""

LEAST_POPULATION = 4  # of CMA-ES without a forecast


class SampleRules(StrictModel):
    """What is refused before a voice is made."""

    min_files: int = Field(ge=1)
    max_files: int = Field(ge=1)
    min_seconds: float = Field(gt=0)  # of each file
    max_seconds: float = Field(gt=0)
    min_total_seconds: float = Field(gt=0)
    min_speech_share: float = Field(ge=0, le=1)  # of a file
    speech_threshold: float = Field(gt=0, lt=1)  # probability of the voice detector
    min_snr_db: float
    max_clipped_share: float = Field(ge=0, le=1)  # of the samples of a file
    min_level_dbfs: float = Field(le=0)  # of the speech
    min_similarity: float = Field(ge=-1, le=1)  # cosine of a file with the most typical one
    min_piece_similarity: float = Field(ge=-1, le=1)  # the same of each of its pieces


class CloningWork(StrictModel):
    """What makes voices, how long one takes, and when it is given up."""

    model: str  # a file under configs/ without .yaml: the engine that a voice is made for
    encoder: str  # the same of the encoder that hears how alike it is
    most_workers: int = Field(ge=1)  # processes for one voice; one a core of the cluster up to that
    seconds_per_voice: float = Field(gt=0)  # what `estimated_completion` counts with
    at_once: int = Field(ge=1)  # voices that are made at the same time
    lease_s: float = Field(gt=0)  # after which another worker may take over
    most_attempts: int = Field(ge=1)
    give_up_after_hours: float = Field(gt=0)  # since it was asked for and any was finished


class FitConfig(StrictModel):
    """How a voice is searched for, and what it must reach."""

    search: SearchKind
    seed: int
    evaluations: int = Field(ge=1)  # sentences that are spoken in the search, at most
    generation: int = Field(ge=2)  # of them between two looks at the results
    choice_sentences: int = Field(ge=1)  # that each of the last candidates is judged with
    min_quality: float = Field(ge=1, le=5)  # mean opinion score that likeness should not cost
    judge_sentences: int = Field(ge=1)  # that the voice is judged with when it is done, at most
    min_similarity: float = Field(ge=-1, le=1)  # of the finished voice with the recordings

    @model_validator(mode="after")
    def _has_a_population(self) -> "FitConfig":
        if self.search == "cma-es" and self.generation < LEAST_POPULATION:
            raise ValueError(f"search: cma-es needs a generation of at least {LEAST_POPULATION}")
        return self


class PromptConfig(StrictModel):
    """Which recording an engine is given to speak on from. Models are files under configs/."""

    model: str  # the engine that the voice is made for
    vad: str
    min_seconds: float = Field(ge=2)  # of the recording
    max_seconds: float = Field(le=18)
    candidates: int = Field(ge=1)  # recordings that are tried
    judge: bool  # whether workers load the engine, to hear how alike it sounds
    gpus: float = Field(ge=0, le=1)  # share of one that a worker takes, where the cluster has any
    judged_sentences: int = Field(ge=1)  # for each candidate
    min_confidence: float = Field(ge=0, le=1)  # of the recogniser
    min_similarity: float = Field(ge=-1, le=1)  # of the voice with the other recordings


class CloningConfig(StrictModel):
    """All of it. `model` is a file under configs/: the engine that voices are made for."""

    method: Literal["fit", "prompt"]  # how voices are made

    samples: SampleRules
    work: CloningWork
    fit: FitConfig
    prompt: PromptConfig

    @property
    def model(self) -> str:
        return self.prompt.model if self.method == "prompt" else self.work.model

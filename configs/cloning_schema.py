"""The shape of `configs/cloning.yaml`: what samples must be, and how the work is given out."""

from pydantic import Field

from configs.strict import StrictModel


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
    """How long a voice takes, and when it is given up."""

    seconds_per_voice: float = Field(gt=0)  # what `estimated_completion` counts with
    at_once: int = Field(ge=1)  # voices that are made at the same time
    lease_s: float = Field(gt=0)  # after which another worker may take over
    most_attempts: int = Field(ge=1)
    give_up_after_hours: float = Field(gt=0)  # since the voice was asked for


class FitConfig(StrictModel):
    """How a voice is searched for, and what it must reach."""

    seed: int
    evaluations: int = Field(ge=1)  # sentences that are spoken in the search, at most
    generation: int = Field(ge=2)  # of them between two looks at the results
    min_similarity: float = Field(ge=-1, le=1)  # of the finished voice with the recordings


class CloningConfig(StrictModel):
    """All of it."""

    require_consent: bool  # whether `POST /voices` must say what the speaker agreed to
    samples: SampleRules
    work: CloningWork
    fit: FitConfig

"""The schema of `configs/jobs.yaml`, and how work in a queue is claimed."""

from pydantic import Field

from configs.schema.base import StrictModel


class WorkConfig(StrictModel):
    """Leases and attempts of the work in a queue."""

    at_once: int = Field(ge=1)  # rows that are worked on at the same time
    lease_s: float = Field(gt=0)  # time after which another process may take over
    most_attempts: int = Field(ge=1)
    give_up_after_hours: float = Field(gt=0)  # time without progress or finished work
    turn_s: float = Field(gt=0)  # time after which work yields to others that wait


class JobsConfig(WorkConfig):
    """Jobs of long recordings, long texts and batches."""

    upload_mb: int = Field(ge=1)  # size of a recording in one request
    part_mb: int = Field(ge=1)  # size of a part of a recording
    most_parts: int = Field(ge=1)
    most_hours: float = Field(gt=0)  # longest recording
    window_s: float = Field(ge=60)  # audio that is transcribed and stored at a time
    document_mb: int = Field(ge=1)
    most_characters: int = Field(ge=1)  # longest text
    block_characters: int = Field(ge=100)  # text that is spoken and stored at a time
    batch_mb: int = Field(ge=1)  # size of the file of a batch
    batch_lines: int = Field(ge=1)
    batch_block: int = Field(ge=1)  # lines that are answered and stored at a time
    batch_hours: float = Field(gt=0)  # time after which a batch ends with the answers it has
    fetches_at_once: int = Field(ge=1)  # recordings fetched from addresses, by one worker
    fetches_of_workspace: int = Field(ge=1)
    requested_per_job: int = Field(ge=1)  # AssemblyAI's transcripts, per job that a plan allows


class HeadingWords(StrictModel):
    """Words of headings in one language; `configs/headings.yaml` explains them."""

    language: str = Field(pattern=r"^[a-z]{2,3}$")  # ISO 639-1 or 639-3
    nouns: tuple[str, ...] = Field(min_length=1)
    names: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()
    joins: tuple[str, ...] = ()
    by: tuple[str, ...] = ()
    alone: tuple[str, ...] = ()
    extras: tuple[str, ...] = ()

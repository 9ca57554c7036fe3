"""The shape of `configs/consent.yaml`: sentences of consent, and when one counts as read."""

from pydantic import Field, model_validator

from configs.schema.strict import StrictModel


class ConsentWords(StrictModel):
    """A sentence of one language."""

    sentence: str  # with {words}
    words: tuple[str, ...] = Field(min_length=20)  # all different; some are drawn each time

    @model_validator(mode="after")
    def _is_usable(self) -> "ConsentWords":
        if "{words}" not in self.sentence or len(set(self.words)) != len(self.words):
            raise ValueError("the sentence has a place for words, and these are all different")
        return self


class ConsentConfig(StrictModel):
    """All of it."""

    lasts_s: float = Field(gt=0)  # how long a sentence may be used
    drawn_words: int = Field(ge=2)
    heard_words: int = Field(ge=1)  # so many of them must be recognised
    word_likeness: float = Field(gt=0, le=100)  # from which a word counts as recognised
    likeness: float = Field(gt=0, le=100)  # of what was heard with the sentence
    heard_seconds: float = Field(gt=0, le=30)  # of the beginning of each file
    min_similarity: float = Field(ge=-1, le=1)  # of the sentence's speaker with the samples
    sentences: dict[str, ConsentWords]  # by ISO 639-1 code

    @model_validator(mode="after")
    def _has_english(self) -> "ConsentConfig":
        if "en" not in self.sentences or self.heard_words > self.drawn_words:
            raise ValueError("there is an English sentence, and no more words are heard than drawn")
        return self

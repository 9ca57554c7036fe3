"""What would be spoken of a text, free of charge."""

from pydantic import BaseModel, Field

from api.http.routing import PrincipalDep, SpeechDep, make_router
from api.native.speech import SpeechBody
from pipelines.billing.billing import to_usd
from pipelines.text.spoken_length import LETTERS_PER_S, spoken_length

router = make_router("text to speech", scope="tts")


class ExplainBody(SpeechBody):
    """A request for speech; nothing of it is synthesised."""

    language: str | None = Field(default=None, max_length=3, description="Where no voice is named.")


class SpokenSentence(BaseModel):
    text: str = Field(description="As it is spoken: numbers, dates and signs are words.")
    language: str
    voice_id: str
    phonemes: str | None = Field(description="The symbols of the engine; null where it has none.")


class Explanation(BaseModel):
    sentences: list[SpokenSentence] = Field(description="A long one is in parts.")
    voice_id: str
    language: str = Field(description="Of the voice.")
    characters: int = Field(description="Those that would be charged.")
    price: float = Field(description="USD.")
    estimated_seconds: float


@router.post("/tts/explain", summary="Show what would be spoken, free of charge")
async def explain(body: ExplainBody, principal: PrincipalDep, speech: SpeechDep) -> Explanation:
    pipeline = speech.synthesis.pipeline
    plan = await pipeline.plan(body.to_request(principal.workspace_id))
    explained = await pipeline.explain(plan)
    passages, characters = plan.passages, speech.synthesis.characters(plan)
    sentences = [
        SpokenSentence(
            text=chunk.text,
            language=chunk.language,
            voice_id=passages[chunk.passage].voice.voice.voice_id,
            phonemes=phonemes or None,
        )
        for chunk, phonemes in explained
    ]
    seconds = sum(one.pause_s or one.gap_s / one.speed for one in passages) + sum(
        spoken_length(chunk.text) / LETTERS_PER_S / passages[chunk.passage].speed
        for chunk, _ in explained
    )
    return Explanation(
        sentences=sentences,
        voice_id=plan.voice.voice.voice_id,
        language=plan.voice.voice.language,
        characters=characters,
        price=to_usd(speech.billing.cost("tts", characters)),
        estimated_seconds=round(seconds, 1),
    )

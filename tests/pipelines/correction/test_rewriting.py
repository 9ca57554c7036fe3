"""Corrections by a language model, with scripted answers."""

import asyncio
from collections.abc import AsyncGenerator, Callable

from configs.load import load_yaml
from configs.schema.correction import CorrectionConfig
from models.base import ModelInfo
from models.llm.base import GenerationDelta, GenerationRequest, TokenUsage
from pipelines.correction.edits import apply_edits
from pipelines.correction.request import CorrectionRequest, CorrectionStyle
from pipelines.correction.rewriting import Rewriter, most_for

CONFIG = load_yaml(CorrectionConfig, "correction")


class Scripted:
    """Answers each sentence with `answer` of it."""

    def __init__(self, answer: Callable[[str], str], pause_s: float = 0.0) -> None:
        self.asked: list[GenerationRequest] = []
        self._answer = answer
        self._pause_s = pause_s

    async def describe(self) -> ModelInfo:
        raise NotImplementedError

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[GenerationDelta, None]:
        self.asked.append(request)
        sentence = request.messages[-1].content.removeprefix("<text>").removesuffix("</text>")
        yield GenerationDelta(text=self._answer(sentence), usage=TokenUsage(30, 5))
        await asyncio.sleep(self._pause_s)
        yield GenerationDelta(finish_reason="stop", usage=TokenUsage(30, 10))


async def rewritten(
    model: Scripted,
    text: str,
    tone: str | None = None,
    *,
    config: CorrectionConfig = CONFIG,
    is_worse: bool = False,
) -> tuple[str, TokenUsage]:
    request = CorrectionRequest(1, text, style=CorrectionStyle(tone=tone))

    async def judge(before: str, after: str) -> bool:
        return is_worse

    rewriter = Rewriter(model, request, config, judge)
    return apply_edits(text, await rewriter.edits(text)), rewriter.usage


async def test_accepted_answers_are_applied_sentence_by_sentence() -> None:
    model = Scripted(lambda sentence: sentence.replace("was", "were"))
    text, used = await rewritten(model, "We was here.  They was  there.\r\nGood.")
    assert text == "We were here.  They were  there.\r\nGood."
    assert used == TokenUsage(90, 30)


async def test_refused_answers_leave_the_text_unchanged_but_count_their_tokens() -> None:
    for answer in ("Sure! We met 2 of them.", "We met 3 of them.", "", "I cannot help with that."):
        replies = {"We met 2 of them.": answer}
        text, used = await rewritten(Scripted(replies.__getitem__), "We met 2 of them.")
        assert text == "We met 2 of them." and used.total_tokens == 40


async def test_an_answer_with_more_mistakes_by_the_rules_is_refused() -> None:
    model = Scripted(lambda sentence: sentence.replace("is", "are"))
    text, _ = await rewritten(model, "It is late.", is_worse=True)
    assert text == "It is late."


async def test_a_long_text_asks_the_model_for_a_few_sentences_at_once() -> None:
    running: list[int] = [0, 0]  # now, and at most

    class Counting(Scripted):
        async def generate(
            self, request: GenerationRequest
        ) -> AsyncGenerator[GenerationDelta, None]:
            running[0] += 1
            running[1] = max(running)
            async for delta in super().generate(request):
                yield delta
            running[0] -= 1

    model = Counting(lambda sentence: sentence, pause_s=0.01)
    await rewritten(model, "They were here. " * 30)
    assert len(model.asked) == 30 and running == [0, CONFIG.sentences_at_once]


async def test_an_answer_beyond_the_timeout_is_dropped_but_its_tokens_count() -> None:
    config = CONFIG.model_copy(update={"sentence_s": 0.05})
    model = Scripted(lambda sentence: sentence.replace("was", "were"), pause_s=5)
    text, used = await rewritten(model, "We was here.", config=config)
    assert text == "We was here." and used == TokenUsage(30, 5)


async def test_the_tone_and_the_token_limit_are_sent_to_the_model() -> None:
    model = Scripted(lambda sentence: sentence)
    await rewritten(model, "Give me the report.", "friendly")
    (asked,) = model.asked
    assert "warm and friendly" in asked.messages[0].content
    assert asked.sampling.temperature == 0 and asked.sampling.max_tokens is not None
    request = CorrectionRequest(1, "Give me the report.", style=CorrectionStyle(tone="friendly"))
    assert most_for(request, CONFIG) > asked.sampling.max_tokens + 40


async def test_text_without_words_or_above_the_token_limit_is_not_sent_to_the_model() -> None:
    model = Scripted(lambda sentence: sentence)
    for text in ("1 2 3 ...", "😀", "word " * 2000):
        await rewritten(model, text)
    assert model.asked == []

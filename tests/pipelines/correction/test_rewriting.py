"""Corrections by a language model, with scripted answers."""

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Sequence

from configs.load import load_yaml
from configs.schema.correction import CorrectionConfig, Purpose
from models.base import ModelInfo
from models.errors import EngineLost
from models.llm.base import GenerationDelta, GenerationRequest, TokenUsage
from pipelines.correction.edits import apply_edits
from pipelines.correction.passages import Passage
from pipelines.correction.protection import Protected
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
        sentence = request.messages[-1].content.split("<text>")[1].removesuffix("</text>")
        yield GenerationDelta(text=self._answer(sentence), usage=TokenUsage(30, 5))
        await asyncio.sleep(self._pause_s)
        yield GenerationDelta(finish_reason="stop", usage=TokenUsage(30, 10))


async def rewritten(
    model: Scripted,
    text: str,
    tone: str | None = None,
    *,
    language: str = "en",
    held: Sequence[Protected] = (),
    config: CorrectionConfig = CONFIG,
    is_worse: bool = False,
) -> tuple[str, str | None, TokenUsage]:
    """The sentence after its edits, the check that failed, and the tokens."""
    request = CorrectionRequest(1, text, style=CorrectionStyle(tone=tone))

    async def judge(before: str, after: str) -> bool:
        return is_worse

    rewriter = Rewriter(model, request, config, judge)
    asked: tuple[Purpose, ...] = ("tone",) if tone else ()
    passage = Passage(0, len(text), True, language=language, asked=asked)
    edits, reason = await rewriter.edits(text, passage, held)
    check = re.search(r"failed a check \((\w+)\)$", reason or "")
    return apply_edits(text, edits), check[1] if check else reason, rewriter.usage


async def test_an_accepted_answer_is_applied() -> None:
    model = Scripted(lambda sentence: sentence.replace("was", "were"))
    text, guard, used = await rewritten(model, "We was  there.")
    assert (text, guard) == ("We were  there.", None)
    assert used == TokenUsage(30, 10)


async def test_refused_answers_leave_the_text_unchanged_but_count_their_tokens() -> None:
    for answer, named in (
        ("Sure! We met 2 of them.", "chatter"),
        ("We met 3 of them.", "protected"),
        ("", "empty"),
        ("I cannot help with that.", "chatter"),
    ):
        replies = {"We met 2 of them.": answer}
        text, guard, used = await rewritten(Scripted(replies.__getitem__), "We met 2 of them.")
        assert (text, guard) == ("We met 2 of them.", named) and used.total_tokens == 40


async def test_an_answer_with_more_mistakes_by_the_rules_is_refused() -> None:
    model = Scripted(lambda sentence: sentence.replace("is", "are"))
    text, guard, _ = await rewritten(model, "It is late.", is_worse=True)
    assert (text, guard) == ("It is late.", "mistakes")


async def test_a_failing_model_leaves_the_sentence_and_is_named() -> None:
    class Failing(Scripted):
        async def generate(
            self, request: GenerationRequest
        ) -> AsyncGenerator[GenerationDelta, None]:
            raise EngineLost("gone")
            yield

    text, guard, _ = await rewritten(Failing(str), "We was here.")
    assert (text, guard) == ("We was here.", "the language model failed")


async def test_changes_of_a_protected_term_are_dropped_from_an_answer() -> None:
    model = Scripted(
        lambda sentence: sentence.replace("antifon", "antiphon").replace("was", "were")
    )
    held = [Protected(3, 10, "term")]
    text, guard, _ = await rewritten(model, "We antifon users was here.", held=held)
    assert (text, guard) == ("We antifon users were here.", None)
    text, guard, _ = await rewritten(model, "We antifon users was here.", "formal", held=held)
    assert (text, guard) == ("We antifon users was here.", "dictionary")


async def test_british_spellings_stay_british_and_american_ones_american() -> None:
    british = "The organisers apologised for there programme, colour and travelling theatre."
    american = "The organizers apologized for their program, color and traveling theater."
    model = Scripted({british: american}.__getitem__)
    text, guard, _ = await rewritten(model, british)
    assert (text, guard) == (british.replace("there", "their"), None)
    model = Scripted({american: british}.__getitem__)
    text, guard, _ = await rewritten(model, american)
    assert (text, guard) == (american.replace("their", "there"), None)


async def test_a_prompt_names_the_language_of_the_text() -> None:
    model = Scripted(lambda sentence: sentence)
    await rewritten(model, "Das ist gut.", language="de")
    assert "German text" in model.asked[0].messages[0].content


async def test_a_sentence_without_the_tone_is_said() -> None:
    told = "the language model left it as it was"
    for tone, expected in (("pirate", told), (None, None)):
        text, reason, _ = await rewritten(Scripted(lambda sentence: sentence), "It is late.", tone)
        assert (text, reason) == ("It is late.", expected)


async def test_an_answer_beyond_the_timeout_is_dropped_but_its_tokens_count() -> None:
    config = CONFIG.model_copy(update={"sentence_s": 0.05})
    model = Scripted(lambda sentence: sentence.replace("was", "were"), pause_s=5)
    text, guard, used = await rewritten(model, "We was here.", config=config)
    assert (text, guard) == (
        "We was here.",
        "the language model took too long",
    ) and used == TokenUsage(30, 5)


async def test_the_tone_and_the_token_limit_are_sent_to_the_model() -> None:
    model = Scripted(lambda sentence: sentence)
    await rewritten(model, "Give me the report.", "friendly")
    (asked,) = model.asked
    assert "warm and friendly" in asked.messages[0].content
    assert asked.sampling.temperature == 0 and asked.sampling.max_tokens is not None
    request = CorrectionRequest(1, "Give me the report.", style=CorrectionStyle(tone="friendly"))
    passages = [Passage(0, len(request.text), True, asked=("tone",))]
    assert most_for(passages, request, CONFIG) > asked.sampling.max_tokens + 40


async def test_wordless_and_too_long_texts_are_not_sent_to_the_model() -> None:
    model = Scripted(lambda sentence: sentence)
    for text in ("1 2 3 ...", "😀", "word " * 2000):
        await rewritten(model, text)
    assert model.asked == []

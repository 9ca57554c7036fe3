"""Terms of the dictionary win over every rule and every model, whatever they are."""

import random
import re
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass
from typing import Any, cast

import pytest

from configs.load import load_yaml
from configs.schema.correction import CorrectionConfig
from configs.schema.platform import PlansConfig
from models.base import ModelInfo
from models.errors import EngineLost
from models.llm.base import GenerationDelta, GenerationRequest
from models.registry import GRAMMAR_CHECK
from pipelines.billing.billing import Billing, Charge, Service
from pipelines.billing.operation import Operation
from pipelines.chat.history import ChatHistory
from pipelines.chat.pipeline import ChatPipeline
from pipelines.correction.edits import apply_edits
from pipelines.correction.pipeline import CorrectionPipeline
from pipelines.correction.request import CorrectionRequest, CorrectionStyle, DictionaryEntry
from pipelines.correction.rules import CorrectionRules
from tests.models.configured import configured

UNUSED = cast(Any, None)
UNSPACED = re.compile("[北京안녕ไทย]")
TERMS = (
    # Misspellings that rules correct, words that they confuse, and respellings.
    "antifon postgress recieve definately teh alot wont its u ur thru their then loose kubectl"
    " pytest numpy advices informations goed dont cant"
    # Brands in lower case, with digits, with signs.
    " ebay adidas npm iphone k8s b2b log4j web3 gr8 2moro c++ node.js x-ray e-mial co-opp pre-alfa"
    " O'Rielly at&t #teh @recieve foo_bar"
    # Other scripts.
    " 北京 Москва müller naïve cafe\u0301 안녕 ไทย ελλάδα"
    # Of several words, and one within another.
    " new_yrok over_all a_lot_of them_selves could_of me_and_him more_better acme acme_corp"
    " acme_corp_gmbh corp the_the he_go"
)
FRAMES = r"""{} is down.|i beleive {} dont work|We has {}, {} and {}-based things.|the {}s are broke
Me and him uses {}'s tools.|Did you recieve {}?\nYes , {} came.|({}) is more better then "{}".
He go to {} on monday and she dont.|An {} and a {} is here. {} were late|its {}, isnt it
There is many {} in the the {}.|Ich weiss nicht, wo {} ist.|`{}` or https://x.org/{}|{}
I could of used {} alot. {} {} {}|{}: thier best. We was their, {}!|- {}\n- {}\n\n1. {}"""
STYLE = CorrectionStyle(use_contractions=True, expand_abbreviations=True)


@dataclass(frozen=True)
class Case:
    text: str
    entries: tuple[DictionaryEntry, ...]
    expected: tuple[str, ...]  # the replacements of all terms in the text, in order


def cases(count: int) -> Iterator[Case]:
    choose = random.Random(48)
    known = [term if term == "foo_bar" else term.replace("_", " ") for term in TERMS.split()]
    frames = [frame.replace("\\n", "\n") for frame in re.split(r"[|\n]", FRAMES)]
    for number in range(count):
        terms = choose.sample(known, choose.randint(1, 5))
        entries = tuple(
            DictionaryEntry(term, replacement_of(choose, term, index))
            for index, term in enumerate(terms)
        )
        text = ""
        for _ in range(choose.randint(1, 3)):
            frame = choose.choice(frames)
            words = (written(choose, choose.choice(terms)) for _ in range(frame.count("{}")))
            text += frame.format(*words) + choose.choice((" ", "\n", "\n\n"))
        if number % 20 == 0:
            text += "Fine words are here. " * 60 + choose.choice(terms)
        yield Case(text, entries, expected(text, entries))


def written(choose: random.Random, term: str) -> str:
    return choose.choice(
        (term, term, term, term.capitalize(), term.upper(), term.replace(" ", "\n"))
    )


def replacement_of(choose: random.Random, term: str, index: int) -> str:
    """A text that no rule writes; some are wrong English."""
    names = (
        f"Antiphon{index}x",
        f"zzyzx{index}x",
        f"Teh Recieve{index}x",
        f"北京{index}x",
        f"q{index}x Corp.",
    )
    return choose.choice(names)


def expected(text: str, entries: tuple[DictionaryEntry, ...]) -> tuple[str, ...]:
    """At each place the longest term, as whole words of any case, by trying all of them."""
    by_term = {entry.term.lower(): entry.replacement for entry in entries}
    folded = re.sub(r"\s", " ", text.lower())
    assert len(folded) == len(text)
    replacements = []
    at = 0
    while at < len(text):
        fitting = (term for term in by_term if folded.startswith(term, at))
        whole = (
            term for term in fitting if is_boundary(text, at) and is_boundary(text, at + len(term))
        )
        term = max(whole, key=len, default=None)
        if term is not None:
            replacements.append(by_term[term])
        at += len(term or " ")
    return tuple(replacements)


def is_boundary(text: str, at: int) -> bool:
    around = text[max(0, at - 1) : at + 1]
    return (
        at in (0, len(text)) or UNSPACED.search(around) is not None or not all(map(joins, around))
    )


def joins(character: str) -> bool:
    return character.isalnum() or character in "_\u0301"


class FreeBilling(Billing):
    """Holds nothing."""

    def __init__(self) -> None:
        super().__init__(UNUSED, load_yaml(PlansConfig, "plans").prices, UNUSED)

    async def hold(
        self, workspace_id: int, service: Service, units: int, operation: Operation, **_: Any
    ) -> Charge:
        return Charge(self, workspace_id, service, units, "free", is_settled=True)


class Vandal:
    """Answers with the text, its terms "corrected"."""

    info = ModelInfo("vandal", "chat", "none", "us", 0, languages=("en", "de"))

    async def describe(self) -> ModelInfo:
        return self.info

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[GenerationDelta, None]:
        sentence = request.messages[-1].content.removeprefix("<text>").removesuffix("</text>")
        words = [word[::-1] if len(word) == 4 else word for word in sentence.split(" ")]
        yield GenerationDelta(text=" ".join(words).replace("n", "m").title())
        yield GenerationDelta(finish_reason="stop")


class Down(Vandal):
    async def describe(self) -> ModelInfo:
        raise EngineLost("down")


def pipeline_with(model: Vandal, rules: CorrectionRules) -> CorrectionPipeline:
    billing = FreeBilling()
    chat = ChatPipeline({"Chat": model}, UNUSED, billing)
    history = ChatHistory(UNUSED, UNUSED, UNUSED)
    return CorrectionPipeline(
        chat, lambda: rules, history, billing, load_yaml(CorrectionConfig, "correction")
    )


@pytest.fixture(scope="module")
def rules() -> CorrectionRules:
    engine = configured(GRAMMAR_CHECK, "harper")
    return CorrectionRules(engine, load_yaml(CorrectionConfig, "correction"))


async def corrected(pipeline: CorrectionPipeline, request: CorrectionRequest) -> str:
    completion = await pipeline.start(request)
    content = "".join([delta.text async for delta in completion.deltas()])
    assert apply_edits(request.text, completion.edits) == content
    return content


@pytest.mark.parametrize("texts", [150, pytest.param(2000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("model", [Down(), Vandal()])
@pytest.mark.timeout(600)
async def test_no_rule_and_no_model_changes_a_term(
    rules: CorrectionRules, model: Vandal, texts: int
) -> None:
    pipeline = pipeline_with(model, rules)
    for case in cases(texts):
        request = CorrectionRequest(1, case.text, case.entries, STYLE, save_chat=False)
        remaining = iter(marks(await corrected(pipeline, request)))
        # A corrected misspelling may be a term as well.
        assert all(mark in remaining for mark in marks(" ".join(case.expected))), case


@pytest.mark.parametrize(
    ("text", "entries", "content"),
    [
        ("Deploy the antifon cluster", {"antifon": "Antiphon"}, "Deploy the Antiphon cluster"),
        ("please use postgress now", {"postgress": "Postgres"}, "Please use Postgres now."),
        ("we like antifon and antiphonn.", {"antifon": "Antiphon", "antiphonn": "Antiphon"},
         "We like Antiphon and Antiphon."),
        ("Antiphonn is is up", {"antifon": "Antiphonn"}, "Antiphonn is up."),  # a replacement
        ("the antifons is up", {"antifon": "Antiphon"}, "The antifons is up."),  # a plural
        ("ebay is down. ebay dont work", {"ebay": "eBay"}, "eBay is down. eBay don't work."),
        ("this aa b c is here", {"b c": "X", "a b": "Y"}, "This aa X is here."),
        ("it is here ASAP", {"asap": "asap"}, "It is here asap."),
        ("we met acme", {"acme": "ACME Corp."}, "We met ACME Corp."),
        ("it is fine words. teh end", {"words. teh": "W"}, "It is fine W end"),
    ],
)  # fmt: skip
async def test_a_term_is_replaced_however_it_is_written(
    rules: CorrectionRules, text: str, entries: dict[str, str], content: str
) -> None:
    dictionary = tuple(DictionaryEntry(*pair) for pair in entries.items())
    request = CorrectionRequest(1, text, dictionary, save_chat=False)
    assert await corrected(pipeline_with(Down(), rules), request) == content


def marks(text: str) -> list[str]:
    """The replacements in `text`, all of which end in a digit and an x."""
    return re.findall(r"(?:Antiphon|zzyzx|Teh Recieve|北京|q)\dx", text)

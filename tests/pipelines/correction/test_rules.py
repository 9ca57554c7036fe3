"""Corrections of English by rules, with Harper and word frequencies."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from configs.load import load_yaml
from configs.schema.correction import CorrectionConfig
from models.registry import GRAMMAR_CHECK
from pipelines.correction.edits import apply_edits
from pipelines.correction.protection import protected_spans
from pipelines.correction.request import CorrectionRequest
from pipelines.correction.rules import CorrectionRules
from tests.models.configured import configured


@pytest.fixture(scope="module")
def rules() -> CorrectionRules:
    engine = configured(GRAMMAR_CHECK, "harper")
    return CorrectionRules(engine, load_yaml(CorrectionConfig, "correction"))


def corrected(rules: CorrectionRules, text: str) -> str:
    return apply_edits(text, rules.mistakes(text, CorrectionRequest(1, text)))


@pytest.mark.parametrize(
    ("faulty", "right"),
    [
        ("She go to school.", "She goes to school."),
        ("There is many reasons.", "There are many reasons."),
        ("They didn't knew it.", "They didn't know it."),
        ("We could of met.", "We could have met."),
        ("Your right, its late.", "You're right, it's late."),
        ("I like there house more then ours.", "I like their house more than ours."),
        ("It is a honest answer from an university.", "It is an honest answer from a university."),
        ("I definately recieved the mesage.", "I definitely received the message."),
        ("Yesturday I read thiss book.", "Yesterday I read this book."),
        ("Nguyễn Văn Thịnh dont know it.", "Nguyễn Văn Thịnh don't know it."),
        ("This is the the end.", "This is the end."),
        ("Its my brothers car.", "It's my brother's car."),
        ("I look forward to meet you on monday.", "I look forward to meeting you on Monday."),
        ("I don't know where is the station.", "I don't know where the station is."),
        ("Its already friday, me and him was late.", "It's already Friday, he and I were late."),
        ("Me and Hermione was tired.", "Hermione and I were tired."),
        ("Please call Kowalcyzk, he is form Gdansk.", "Please call Kowalcyzk, he is from Gdansk."),
    ],
)
def test_english_mistakes_are_corrected(rules: CorrectionRules, faulty: str, right: str) -> None:
    assert corrected(rules, faulty) == right


@pytest.mark.parametrize(
    "text",
    [
        "The colour of the centre was organised by our neighbours.",
        "His will left everything to Ms. van der Berg.",
        "She wondered whether he, too, had read more than two of them.",
        "Install numpy, then run kubectl and update-passwd.",
        "What it is about, no one knows; it's Tom's.",
        "If I were you, I'd accept it, since they're quite loose.",
        "The company cut its already low prices, which told me and him enough.",
        "It is a damn shame, and complete bullshit.",
        "The shockwaves reached urban curbsides and the conspecifics beyond.",
        "The ritualised dramatisation of iodised additionality was impermissibly vague.",
        "He told El Mundo that Punta del Este and the Plaza de las Victorias were full.",
        "They sing at the La Comédie humaine, as Auguste Rodin did.",
        "I think that that was clear, and she had had enough.",
        "Their report grew too large, where later two more were added.",
        "The values our founders chose are considered open now, and no garbage can bothered mice.",
        "Turkey and Kiev are in the news of the last decades, in a vicious cycle.",
        "We do all we can to keep our children's wellbeing quite high.",
        "Did you guys hear it, or was it — as so often — a ten-hour wait?",
        'He runs one of the most revelled concerti," Leive said in a review.',
        "Winstone plays a successful glover who practised improv.",
        "These findings form the basis of a reference to harmonised standards.",
        "But a- anyway, she broke off, and then I—",
        "The next step is form validation, and what I need is form W-2.",
        "Wo ist der Bahnhof? Ich weiss es nicht.",
        "Il a dit que la voiture est dans la rue.",
    ],
)
def test_correct_text_is_unchanged(rules: CorrectionRules, text: str) -> None:
    assert corrected(rules, text) == text


@settings(max_examples=40)
@given(
    st.lists(
        st.sampled_from(
            "teh dont i its beleive https://x.org/teh `dont` 3.5 @teh #alot {recieve} user_nam "
            "he go , . ? ! your a apple 10:30 /tmp/teh x@dont.io 😀 Kowalcyzk".split()
        ),
        max_size=12,
    ).map(" ".join)
)
def test_protected_spans_survive_corrections(rules: CorrectionRules, text: str) -> None:
    after = corrected(rules, text)
    for span in protected_spans(text):
        held = text[span.start : span.end]
        assert after.count(held) >= text.count(held)


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Die Kinder spielt im Garten.", "de"),  # its words resemble English ones
        ("Wir hat morgen ein Termin.", "de"),
        ("please contact jon smyth about the nginx server and postgress", "en"),
        ("Zoë Günther", None),
        ("Zdfg qwrt plkj vbnm.", None),
        ("https://example.com/dont 12 😀", "en"),
    ],
)
def test_the_language_of_a_text_is_told_apart_or_left_open(
    rules: CorrectionRules, text: str, language: str | None
) -> None:
    assert rules.language(text) == language

"""The judges of others' tests of chat models, on answers that were written by hand."""

import json
from typing import Any

import pytest

from benchmarks.chat import agents, bfcl, everyday, ifeval
from benchmarks.chat.asking import Answer, drawn, parser

PLAY = {
    "name": "music.play",
    "description": "Plays an artist.",
    "parameters": {
        "type": "dict",
        "properties": {
            "artist": {"type": "string"},
            "minutes": {"type": "integer"},
            "volume": {"type": "float"},
            "genres": {"type": "array", "items": {"type": "string"}},
            "place": {"type": "dict", "properties": {"room": {"type": "string"}}},
        },
        "required": ["artist"],
    },
}
TRUTH = {
    "artist": ["Taylor Swift"],
    "minutes": [20, ""],
    "volume": [0.5, 2.0, ""],
    "genres": [["pop", "rock"], ""],
    "place": [{"room": ["kitchen", ""]}, ""],
}


def called(*calls: dict[str, Any], name: str = "music_play") -> Answer:
    listed = [{"name": name, "arguments": json.dumps(arguments)} for arguments in calls]
    return Answer("", listed, was_cut=False, tokens=1)


def case(*truths: dict[str, Any]) -> dict[str, Any]:
    return {"function": [PLAY], "truth": [{"music.play": truth} for truth in truths]}


@pytest.mark.parametrize(
    "arguments",
    [
        {"artist": "Taylor Swift"},
        {"artist": "taylor-swift", "minutes": 20},
        {"artist": "Taylor Swift", "volume": 2},
        {"artist": "Taylor Swift", "genres": ["Pop", "rock"], "place": {"room": "Kitchen"}},
    ],
)
def test_bfcl_accepts_right_calls(arguments: dict[str, Any]) -> None:
    assert bfcl.fault(case(TRUTH), called(arguments)) == ""


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"artist": "Adele"},
        {"artist": "Taylor Swift", "minutes": "20"},
        {"artist": "Taylor Swift", "minutes": 21},
        {"artist": "Taylor Swift", "volume": 1.0},
        {"artist": "Taylor Swift", "genres": ["rock", "pop"]},
        {"artist": "Taylor Swift", "genres": "pop"},
        {"artist": "Taylor Swift", "place": {"room": "hall"}},
        {"artist": "Taylor Swift", "shuffle": True},
    ],
)
def test_bfcl_refuses_wrong_arguments(arguments: dict[str, Any]) -> None:
    assert bfcl.fault(case(TRUTH), called(arguments))


def test_bfcl_takes_parallel_calls_in_any_order_and_none_for_irrelevance() -> None:
    both = case({"artist": ["Abba"]}, {"artist": ["Queen"]})
    assert bfcl.fault(both, called({"artist": "Queen"}, {"artist": "Abba"})) == ""
    assert bfcl.fault(both, called({"artist": "Queen"}, {"artist": "Queen"}))
    assert bfcl.fault(both, called({"artist": "Queen"}))
    assert bfcl.fault(case(TRUTH), called({"artist": "Taylor Swift"}, name="music_stop"))
    assert bfcl.fault(case(), called()) == ""
    assert bfcl.fault(case(), called({"artist": "Queen"}))


def test_bfcl_sends_json_schema_and_names_without_dots() -> None:
    question = {"question": [[{"role": "user", "content": "Play."}]], "function": [PLAY]}
    tool = bfcl.fields(question)["tools"][0]["function"]
    assert tool["name"] == "music_play" and tool["parameters"]["type"] == "object"
    assert tool["parameters"]["properties"]["volume"] == {"type": "number"}


OBEYED: list[tuple[str, dict[str, Any], str, str]] = [
    ("change_case:english_lowercase", {}, "this is all small.", "This is not."),
    ("change_case:english_capital", {}, "THIS IS LOUD.", "THIS is not."),
    (
        "change_case:capital_word_frequency",
        {"capital_relation": "at least", "capital_frequency": 2},
        "We SHOUT very LOUDLY.",
        "We SHOUT.",
    ),
    ("combination:repeat_prompt", {"prompt_to_repeat": "Say hi."}, "Say hi. Hi!", "Hi!"),
    ("combination:two_responses", {}, "One.\n******\nTwo.", "One.\n******\nOne."),
    ("detectable_content:number_placeholders", {"num_placeholders": 2}, "[a] [b]", "[a]"),
    ("detectable_content:postscript", {"postscript_marker": "P.S."}, "Bye.\nP.S. Hi", "Bye."),
    ("detectable_format:constrained_response", {}, "My answer is no.", "No."),
    ("detectable_format:json_format", {}, '```json\n{"a": 1}\n```', '{"a": 1'),
    (
        "detectable_format:multiple_sections",
        {"section_spliter": "Section", "num_sections": 2},
        "Section 1\na\nSection 2\nb",
        "Section 1\na",
    ),
    ("detectable_format:number_bullet_lists", {"num_bullets": 2}, "* a\n- b", "* a\n* b\n* c"),
    ("detectable_format:number_highlighted_sections", {"num_highlights": 1}, "*a*", "a"),
    ("detectable_format:title", {}, "<<A title>>\ntext", "<<>>\ntext"),
    ("keywords:existence", {"keywords": ["tea", "milk"]}, "Tea with milk", "Tea"),
    ("keywords:forbidden_words", {"forbidden_words": ["tea"]}, "A teapot", "Some Tea"),
    (
        "keywords:frequency",
        {"keyword": "tea", "relation": "less than", "frequency": 2},
        "Tea.",
        "Tea, tea.",
    ),
    (
        "keywords:letter_frequency",
        {"letter": "e", "let_relation": "at least", "let_frequency": 3},
        "Eleven e",
        "Ten",
    ),
    ("language:response_language", {"language": "de"}, "Ich mag diesen Tee sehr.", "I like tea."),
    (
        "length_constraints:nth_paragraph_first_word",
        {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "so"},
        "First.\n\nSo, second.",
        "First.\n\nSecond.",
    ),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 2}, "a\n***\nb", "a\n\nb"),
    (
        "length_constraints:number_sentences",
        {"relation": "less than", "num_sentences": 3},
        "Dr. Who came. He left!",
        "He came. He saw. He left.",
    ),
    (
        "length_constraints:number_words",
        {"relation": "at least", "num_words": 3},
        "One two three.",
        "One two.",
    ),
    ("punctuation:no_comma", {}, "First then second.", "First, second."),
    ("startend:end_checker", {"end_phrase": "Bye."}, 'I go. "Bye."', "Bye. I go."),
    ("startend:quotation", {}, '"All of it."', '"Some" of it.'),
]


@pytest.mark.parametrize(
    ("kind", "more", "right", "wrong"), OBEYED, ids=[kind for kind, *_ in OBEYED]
)
def test_ifeval_judges_each_kind_of_instruction(
    kind: str, more: dict[str, Any], right: str, wrong: str
) -> None:
    prompt = {"instruction_id_list": [kind], "kwargs": [{**more, "unused": None}]}
    assert ifeval.judge(prompt, right) == [True]
    assert ifeval.judge(prompt, wrong) == ifeval.judge(prompt, " ") == [False]


def test_ifeval_kinds_all_have_a_judged_example() -> None:
    assert {kind for kind, *_ in OBEYED} == ifeval.CHECKS.keys()


@pytest.mark.parametrize(
    ("key", "right", "wrong"),
    [
        ("Watson and Crick", "James Watson and Francis Crick.", "Rosalind Franklin and Watson."),
        ("Thirty two", "Adults have 32 teeth.", "Adults have 332 teeth."),
        ("One hundred ninety three", "193 countries", "One hundred countries"),
        ("Brasília", "It is Brasilia.", "It is Rio."),
        ("Ni", "Nickel's symbol is Ni.", "The knights say ni."),
        ("Challenger Deep, Mariana Trench", "The Mariana Trench.", "The Tonga Trench."),
        ("Kidneys", "The kidney does.", "The liver does."),
        ("Four", "There are four truths.", "There are fourteen or 24."),
    ],
)
def test_key_of_a_question_is_found_in_other_spellings(key: str, right: str, wrong: str) -> None:
    assert everyday.has_key(right, key) and not everyday.has_key(wrong, key)


def test_draws_ignore_order_and_extend_smaller_ones() -> None:
    names = [str(number) for number in range(50)]
    few = drawn(names, 5, str)
    assert few == drawn(reversed(names), 5, str) == drawn(names, 20, str)[:5]


Acts = tuple[tuple[str, dict[str, Any]], ...]
ENDS: dict[str, tuple[Acts, str]] = {
    "weather of a city": ((("get_weather", {"city": "Paris"}),), "It is 18 degrees."),
    "sum of two numbers": ((("add", {"a": 4817, "b": 2954}),), "That is 7,771."),
    "look up an order, then cancel it": (
        (("get_order", {"order_id": "A17"}), ("cancel_order", {"order_id": "A17"})),
        "It is cancelled.",
    ),
    "convert money, then add": (
        (("convert_currency", {"amount": 100, "source": "USD", "target": "EUR"}),),
        "That is 105 euros.",
    ),
    "question that needs no tool": ((), "William Shakespeare."),
    "ask for a missing argument": ((), "What is the number of the order?"),
    "choose one tool of four": ((("set_timer", {"minutes": 10}),), "The timer is set."),
    "compare two cities": (
        (("get_weather", {"city": "Rome"}), ("get_weather", {"city": "Oslo"})),
        "Rome is warmer.",
    ),
    "say that an order is unknown": ((("get_order", {"order_id": "Z99"}),), "It does not exist."),
    "fill in three arguments": (
        (("book_table", {"name": "Maria", "people": 4, "time": "19:30"}),),
        "The table is booked.",
    ),
    "price of a share": ((("get_share_price", {"company": "Nokia"}),), "It costs 4 euros."),
    "product of two numbers": ((("multiply", {"a": 364, "b": 27}),), "That is 9,828."),
    "check a room, then reserve it": (
        (("check_room", {"room": "Oak"}), ("reserve_room", {"room": "Oak"})),
        "It is reserved.",
    ),
    "convert a length, then multiply": (
        (("convert_length", {"value": 10, "source": "mi", "target": "km"}),),
        "That is 48 kilometers.",
    ),
    "fact that needs no tool": ((), "Mercury."),
    "ask for a missing name": ((), "Which room do you want?"),
    "choose one device of four": (
        (("switch_light", {"place": "Kitchen", "on": False}),),
        "The light is off.",
    ),
    "compare two shares": (
        (("get_share_price", {"company": "Nokia"}), ("get_share_price", {"company": "Siemens"})),
        "Siemens costs more.",
    ),
    "say that a book is unknown": (
        (("find_book", {"title": "Winter Harbour"}),),
        "There is no such book.",
    ),
    "fill in an event": (
        (("add_event", {"title": "Dentist", "day": "Friday", "time": "9:15"}),),
        "The event Dentist is added.",
    ),
}
AGENTS_TASKS = [
    pytest.param(world, task, id=task.name)
    for world, tasks in agents.HALVES.values()
    for task in tasks
]


@pytest.mark.parametrize(("kind", "task"), AGENTS_TASKS)
def test_agents_task_ends_rightly_by_its_tools_and_answer(
    kind: type[agents.World], task: agents.Task
) -> None:
    world = kind()
    acts, text = ENDS[task.name]
    for name, arguments in acts:
        assert name in task.tools
        getattr(world, name)(**arguments)
    assert task.is_right(world, text)
    assert not task.is_right(world, "I am an assistant.")


def test_the_model_of_the_service_is_asked_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHAT_MODEL", "llm/smollm3")
    assert parser("").parse_args([]).model == "llm/smollm3"
    monkeypatch.delenv("CHAT_MODEL")
    monkeypatch.setattr("deployments.replicas.choice.free_bytes", lambda: 64 << 30)
    assert parser("").parse_args([]).model == "llm/qwen2_5_coder_1_5b"

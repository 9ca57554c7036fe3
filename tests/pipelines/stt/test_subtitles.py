"""SRT and WebVTT."""

import re

import pytest

from models.stt.base import Word
from pipelines.stt.subtitles import MAX_CUE_S, paragraphs_of, sentences_of, to_srt, to_vtt
from tests.cpu_time import check_cpu_units

WORDS = [
    Word("Hello", 0.5, 0.9, 0.9),
    Word("<world>.", 1.0, 1.5, 0.9),
    Word("Again", 3661.0, 3661.5, 0.9),
]


def test_cues_are_numbered_break_at_sentences_and_are_escaped() -> None:
    assert to_srt([(None, WORDS)], "en") == (
        "1\n00:00:00,500 --> 00:00:01,500\nHello <world>.\n\n"
        "2\n01:01:01,000 --> 01:01:02,000\nAgain\n\n"
    )
    assert to_vtt([(None, WORDS)], "en").startswith(
        "WEBVTT\n\n00:00:00.500 --> 00:00:01.500\nHello &lt;world&gt;.\n\n"
    )
    assert (to_srt([], "en"), to_vtt([], "en")) == ("", "WEBVTT\n\n")


def test_a_long_text_is_split_into_several_cues() -> None:
    words = [Word("word", float(second), second + 0.9, 0.9) for second in range(30)]
    assert to_srt([(None, words)], "en").count("-->") == 30 // int(MAX_CUE_S)


def test_words_of_languages_without_spaces_are_joined_directly() -> None:
    words = [Word("你", 0, 1, 0.9), Word("好", 1, 2, 0.9)]
    assert "你好" in to_srt([(None, words)], "zh")


def test_no_cue_mixes_speakers() -> None:
    turns = [("A", [Word("Hello", 0.0, 0.5, 0.9)]), ("B", [Word("you", 0.6, 1.0, 0.9)])]
    assert to_srt(turns, "en") == (
        "1\n00:00:00,000 --> 00:00:01,000\nA: Hello\n\n2\n00:00:01,000 --> 00:00:02,000\nB: you\n\n"
    )
    assert "<v A>Hello\n" in to_vtt(turns, "en")


def test_cues_of_overlapping_turns_are_in_order() -> None:
    long = [Word(f"w{number}", number, number + 0.9, 0.9) for number in range(20)]
    turns = [("A", long), ("B", [Word("Yes", 5.0, 5.4, 0.9)])]
    cues = [line for line in to_vtt(turns, "en").splitlines() if "-->" in line]
    assert len(cues) > 3
    assert cues == sorted(cues)


@pytest.mark.parametrize(
    ("language", "sentences"),
    [
        ("en", ["Dr. Smith came at 9 a.m. today.", "He left."]),
        ("en", ["Houses in the U.S. are expensive.", "J. R. R. Tolkien had none."]),
        ("en", ['He said "Go."', "Then (they went.)", "Why?!", "Because!"]),
        ("de", ["Das ist z. B. Dr. Weber.", "Er kam am 3. Mai an."]),
        ("fr", ["Voici M. Dupont.", "Il dort."]),
        ("ur", ["یہ ایک ہے۔", "وہ دو ہیں۔"]),
        ("zh", ["他来了。", "「好。」", "我走了。"]),
    ],
)
def test_abbreviations_end_no_sentence_and_quoted_sentences_end(
    language: str, sentences: list[str]
) -> None:
    is_spaced = language != "zh"
    parts = [sentence.split() if is_spaced else [sentence] for sentence in sentences]
    words = [
        Word(text, 2 * number + at / len(part), 2 * number + (at + 1) / len(part), 0.9)
        for number, part in enumerate(parts)
        for at, text in enumerate(part)
    ]
    assert [[word.word for word in part] for part in sentences_of(words, language)] == parts
    assert [part for group in paragraphs_of(words, language) for part in group] == sentences_of(
        words, language
    )
    cues = to_srt([(None, words)], language).split("\n\n")[:-1]
    assert [cue.split("\n")[2] for cue in cues] == sentences


@pytest.mark.parametrize(
    "times",
    [
        [(1, 1), (1, 1)],
        [(0, 1), (0.9, 1.4), (1.3, 1.2)],
        [(0, 2), (1, 3), (1, 1)],
        [(1.0001, 1.0004), (1.0004, 1.0004), (1.2, 1.2)],
    ],
)
def test_every_cue_has_a_length(times: list[tuple[float, float]]) -> None:
    words = [Word("Yes.", start, end, 0.9) for start, end in times]
    spans = re.findall(r"(\S+) --> (\S+)", to_srt([(None, words)], "en"))
    assert all(start < end for start, end in spans)
    starts = [start for start, _ in spans]
    assert starts == sorted(starts)


def lines_of(text: str, pieces: list[str], language: str) -> list[list[str]]:
    """The lines of each cue of a text that is spoken in `pieces` of 0.2 s without a pause."""
    assert "".join(pieces) == text.replace(" ", "")
    words = [Word(piece, at / 5, (at + 1) / 5, 0.9) for at, piece in enumerate(pieces)]
    return [cue.split("\n")[2:] for cue in to_srt([(None, words)], language).split("\n\n")[:-1]]


ENGLISH = "When the rain came at last, the whole village went outside to stand in it and to laugh"
JAPANESE = (
    "参加者は三百二十五人で、午前9時から午後10時まで話し合いが続き、"
    "部長は「来年の予算は20億円を超える」と述べた"
)
CHINESE = (
    "來自全國各地的325名代表參加了討論，會議從九點開始，"
    "一直持續到下午五點，「預算可能會超過20億元」"
)


@pytest.mark.parametrize(
    ("text", "language"), [(ENGLISH, "en"), (JAPANESE, "ja"), (CHINESE, "zh"), (CHINESE * 2, "zh")]
)
def test_lines_fit_the_screen_and_break_at_marks_or_between_words(text: str, language: str) -> None:
    pieces = text.split() if language == "en" else list(text)
    cues = lines_of(text, pieces, language)
    lines = [line for cue in cues for line in cue]
    assert len(lines) > 1 and max(map(len, cues)) == 2
    for line in lines:
        assert len(line) <= (42 if language == "en" else 21)
        assert line[0] not in "、。，」" and line[-1] not in "「"
    assert not any(line[-1].isdigit() for line in lines[:-1])
    assert any(line[-1] in ",、，" for line in lines[:-1])
    assert (" " if language == "en" else "").join(lines) == text


BOUND = {
    "en": (ENGLISH + " at the end of the day", "the in to a of and at When"),
    "de": (
        "Wir haben den Weg durch den Wald genommen und sind mit dem Hund zum See gegangen",
        "den durch dem zum mit und",
    ),
    "fr": (
        "Nous avons pris le chemin de la forêt et nous sommes allés avec le chien au lac",
        "le de la et avec au",
    ),
    "pl": (
        "Poszliśmy drogą przez las i doszliśmy razem z psem do jeziora za wsią i do domu",
        "z do przez za i",
    ),
}


@pytest.mark.parametrize("language", BOUND)
@pytest.mark.parametrize(
    "speaker", [None, "A", "Speaker 1", "王小明", "The woman with the long name"]
)
def test_lines_count_the_label_and_keep_words_together(language: str, speaker: str | None) -> None:
    text, bound = BOUND[language]
    pieces = f"{text}, {text}".split()
    words = [Word(piece, at / 5, (at + 1) / 5, 0.9) for at, piece in enumerate(pieces)]
    shown = [cue.split("\n")[2:] for cue in to_srt([(speaker, words)], language).split("\n\n")[:-1]]
    wide = sum(2 if letter > "⺀" else 1 for letter in speaker or "")
    for number, cue in enumerate(shown):
        assert len(cue) <= 2
        if speaker and number:  # the label is not repeated
            assert not cue[0].startswith(f"{speaker}: ")
        elif speaker:
            assert cue[0].startswith(f"{speaker}: ")
            cue[0] = "·" * min(wide + 2, 21) + cue[0].removeprefix(f"{speaker}: ")
        assert max(map(len, cue)) <= 42, cue
        bound_words = rf"((?: (?:{'|'.join(bound.split())}))+)$"
        assert not re.search(bound_words, cue[-1]), cue
        if parted := re.search(bound_words, cue[0]):  # a break before them would not fit
            assert len(f"{parted[1].lstrip()} {cue[-1]}") > 42, cue
    spoken = re.sub(r"<v [^>]+>", "", to_vtt([(speaker, words)], language)).split("\n\n")[1:-1]
    assert all(len(line) <= 42 for cue in spoken for line in cue.split("\n")[1:])
    assert speaker is None or len(spoken) <= len(shown)  # players do not show the voices


def test_a_label_stands_where_the_speaker_changes() -> None:
    def said(start: float) -> list[Word]:
        text = f"{ENGLISH} {ENGLISH}".split()
        return [
            Word(word, start + at / 5, start + (at + 1) / 5, 0.9) for at, word in enumerate(text)
        ]

    def labels(*turns: tuple[str, float]) -> list[str]:
        cues = to_srt([(speaker, said(start)) for speaker, start in turns], "en").split("\n\n")[:-1]
        lines = [line for cue in cues for line in cue.split("\n")[2:]]
        assert all(len(line) <= 42 for line in lines)
        return [match[0] if (match := re.search("[AB](?=: )", cue)) else "" for cue in cues]

    shown = labels(("A", 0), ("A", 10), ("B", 20), ("A", 30))
    assert [label for label in shown if label] == ["A", "B", "A"] and len(shown) > 6
    mixed = labels(("A", 0), ("B", 1))  # channels
    assert mixed == ["A", "B"] * (len(mixed) // 2)


def test_a_short_cue_joins_its_sentence_or_stays_for_a_second() -> None:
    def said(text: str, start: float, word_s: float = 0.3) -> list[Word]:
        return [
            Word(word, start + at * word_s, start + (at + 1) * word_s, 0.9)
            for at, word in enumerate(text.split())
        ]

    turns = [
        ("A", [*said("Yes. We went home at last.", 0), *said("Right.", 1.9)]),
        ("B", said("Oh.", 2.3)),
        ("A", said("And then we slept until noon.", 2.6)),
        *(("BA"[at % 2], said("No.", 5 + 0.3 * at)) for at in range(4)),
    ]
    cues = to_srt(turns, "en").split("\n\n")[:-1]
    texts = ["A: Yes. We went home at last. Right.", "B: Oh.", "A: And then we slept until noon."]
    assert [cue.split("\n", 2)[2] for cue in cues][:3] == texts
    spans = [
        [float(time[6:].replace(",", ".")) for time in cue.split("\n")[1].split(" --> ")]
        for cue in cues
    ]
    assert [round(end - start, 3) for start, end in spans][:3] == [2.2, 1.0, 1.1]
    starts = [2.3, 2.6, *(5 + 0.3 * at for at in range(4))]
    assert all(start - spoken <= 1 for (start, _), spoken in zip(spans[1:], starts, strict=True))
    assert all(end <= start for (_, end), (start, _) in zip(spans, spans[1:], strict=False))


def test_the_cost_of_a_phrase_grows_with_its_length_alone() -> None:
    words = [Word("word", at / 4, at / 4 + 0.2, 0.9) for at in range(20_000)]
    # About 5 are measured; the remaining words, summed for each cue, took some 600.
    check_cpu_units(lambda: to_srt([(None, words)], "en"), below=60)

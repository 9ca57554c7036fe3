"""SRT and WebVTT."""

from models.stt.base import Word
from pipelines.stt.subtitles import MAX_CUE_S, to_srt, to_vtt

WORDS = [
    Word("Hello", 0.5, 0.9, 0.9),
    Word("<world>.", 1.0, 1.5, 0.9),
    Word("Again", 3661.0, 3661.5, 0.9),
]


def test_cues_are_numbered_break_at_sentences_and_are_escaped() -> None:
    assert to_srt([(None, WORDS)]) == (
        "1\n00:00:00,500 --> 00:00:01,500\nHello <world>.\n\n"
        "2\n01:01:01,000 --> 01:01:01,500\nAgain\n\n"
    )
    assert to_vtt([(None, WORDS)]).startswith(
        "WEBVTT\n\n00:00:00.500 --> 00:00:01.500\nHello &lt;world&gt;.\n\n"
    )
    assert (to_srt([]), to_vtt([])) == ("", "WEBVTT\n\n")


def test_a_long_text_is_split_into_several_cues() -> None:
    words = [Word("word", float(second), second + 0.9, 0.9) for second in range(30)]
    assert to_srt([(None, words)]).count("-->") == 30 // int(MAX_CUE_S)


def test_words_of_languages_without_spaces_are_joined_directly() -> None:
    words = [Word("你", 0, 1, 0.9), Word("好", 1, 2, 0.9)]
    assert "你好" in to_srt([(None, words)], "")


def test_no_cue_mixes_speakers() -> None:
    turns = [("A", [Word("Hello", 0.0, 0.5, 0.9)]), ("B", [Word("you", 0.6, 1.0, 0.9)])]
    assert to_srt(turns) == (
        "1\n00:00:00,000 --> 00:00:00,500\nA: Hello\n\n2\n00:00:00,600 --> 00:00:01,000\nB: you\n\n"
    )
    assert "<v A>Hello\n" in to_vtt(turns)

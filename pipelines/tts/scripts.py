"""Gives each run of letters to a voice that reads their script.

Every engine reads Latin letters and lone Greek letters in all of its languages, but drops or spells
letters of other scripts: espeak-ng spells Cyrillic letters by their names."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from models.scripts import letters_outside
from pipelines.text.language_detection import (
    detect_language,
    paragraph_language,
    runs_outside,
    script_languages,
    shares_script,
)
from pipelines.tts.reading import Runs, SpokenPassage
from pipelines.tts.voices import AvailableVoice

Nearest = Callable[[AvailableVoice, str], AvailableVoice]
"""Finds, among the voices that speak a language, the one most like a given voice."""


class ScriptReaders:
    """The available voices, by the letters that they read."""

    def __init__(self, offered: Sequence[AvailableVoice], nearest: Nearest) -> None:
        self._codes = frozenset(code for voice in offered for code in voice.languages)
        self._nearest = nearest

    def runs(self, text: str, style: SpokenPassage) -> Runs:
        """Return the parts of a text with their styles; None for letters that no voice reads."""
        if letters_outside(frozenset({style.spoken_in})).search(text) is None:
            yield text, style
            return
        for line in text.splitlines(keepends=True):
            written = line.splitlines()[0]
            base = self._style_of(written, style)
            for part, is_unread in _split(written, runs_outside(self._codes)):
                if is_unread:
                    yield part, None
                else:
                    yield from self._read(part, base)
            yield line[len(written) :], base

    def _style_of(self, line: str, style: SpokenPassage) -> SpokenPassage:
        """Return the style of a line, in the language of most of its letters."""
        spoken = paragraph_language(line, style.languages, style.spoken_in)
        most = paragraph_language(line, self._codes, spoken)
        if not shares_script(most, spoken):
            spoken = most
        return style if spoken == style.spoken_in else self._in(spoken, style)

    def _read(self, text: str, style: SpokenPassage) -> Iterator[tuple[str, SpokenPassage]]:
        own = frozenset({style.spoken_in})
        for part, is_foreign in _split(text, runs_outside(own)):
            if is_foreign and (letter := letters_outside(own).search(part)):
                codes = self._codes.intersection(script_languages(letter[0]))
                yield from self._read(part, self._in(detect_language(part, codes), style))
            else:
                yield part, style

    def _in(self, language: str, style: SpokenPassage) -> SpokenPassage:
        return replace(style, voice=self._nearest(style.voice, language), language=language)


def _split(text: str, runs: re.Pattern[str]) -> Iterator[tuple[str, bool]]:
    """Yield the parts between the runs (False), and the runs (True)."""
    position = 0
    for run in runs.finditer(text):
        yield text[position : run.start()], False
        yield run[0], True
        position = run.end()
    yield text[position:], False

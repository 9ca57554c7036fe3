"""A request as passages: the parts that are read, each in one voice and manner.

SSML 1.1 (https://www.w3.org/TR/speech-synthesis11/), dictionaries, the turns of several speakers
and cues all become passages. A text without any of them is plain, and is read as it is, in a
single passage if one voice reads all of its letters. An unknown element of SSML is an error, and an
unknown attribute is ignored."""

import re
import string
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import unescape

from pydantic import BaseModel, ConfigDict, Field

from configs.load import load_yaml
from configs.schema.base import StrictModel
from models.errors import EngineLost
from pipelines.audio.effects import PARAGRAPH_PAUSE_S, SENTENCE_PAUSE_S
from pipelines.errors import InvalidRequest
from pipelines.text.chunking import Chunker, FirstChunkPolicy, TextChunk, read_chunks
from pipelines.text.lexicon import Lexicon, to_ipa
from pipelines.text.markup import Token, fault, tokens_of
from pipelines.text.read_text import ReadText
from pipelines.text.say_as import say_as
from pipelines.tts.cues import has_cues, plain_tokens
from pipelines.tts.dictionaries import DictionaryRef
from pipelines.tts.voices import NOT_READY, AvailableVoice

SENTENCE_END = re.compile(r"""[.!?…。！？।؟۔]["'”’»」)\]]*\s*$""")
LONGEST_BREAK_S = 10.0
SPEEDS = (0.25, 4.0)
PITCHES = (0.5, 2.0)
VOLUMES_DB = (-60.0, 12.0)
FASTEST = 2.0  # tempo up to which engines speak; beyond it, audio is stretched

# A document with a document type is refused as markup, and not read aloud.
_DOCUMENT = re.compile(
    r"(?>\s|<\?xml[^>]*\?>|<!--.*?-->)*+<(?:speak[\s/>]|!DOCTYPE\s+speak\b)", re.DOTALL
)
_VALUE = re.compile(r"([+-]?)(\d{1,5}(?:\.\d{1,4})?)(%|st|dB|ms|s|)")
_AROUND = string.whitespace + string.punctuation + "…。！？、，；：।॥؟،؛«»“”‘’„「」『』（）¿¡—–"
_LETTER = re.compile(r"\s+|&[^;]*;|.")
_MANNERS = {"p": PARAGRAPH_PAUSE_S, "s": SENTENCE_PAUSE_S, "prosody": 0.0, "emphasis": 0.0}
_MANNERS |= {"voice": 0.0, "lang": 0.0}


class SsmlTables(StrictModel):
    """The tables of `configs/ssml.yaml`."""

    names: dict[str, dict[str, float]]
    units: dict[str, list[str]]
    emphases: dict[str, dict[str, str]]
    say_as: list[str]
    needs: dict[str, str]


_TABLES = load_yaml(SsmlTables, "ssml")


class ScriptTurn(BaseModel):
    """A line of a script: one speaker's text or SSML."""

    model_config = ConfigDict(strict=True, frozen=True)

    text: str = Field(min_length=1)
    voice: str | None = Field(default=None, max_length=200, description="Voice id or name.")
    pause: float | None = Field(
        default=None, ge=0, le=10, description="Pause before the line, in seconds. Default: 0.45."
    )


@dataclass(frozen=True, slots=True)
class SpeechRequest:
    text: str
    voice_id: str | None = None  # wins over `voice`
    voice: str | None = None  # a display name
    language: str | None = None  # language of the default voice; detected if None
    expected: str | None = None  # language for the named voice, unless the text shows another
    is_makeshift: bool = False  # whether the named voice speaks only because others load
    speed: float = 1.0  # tempo ratio, 0.25 to 4.0
    pitch: float = 1.0  # frequency ratio, 0.5 to 2.0
    enhance: bool = True
    stability: float = 1.0
    timings: bool = False  # True where words and their times are wanted
    workspace_id: int | None = None  # custom voices of this workspace are available, too
    takes_ssml: bool = True  # False for text that no client wrote
    script: tuple[ScriptTurn, ...] = ()  # `text` has the texts of all turns, one a line
    pronunciations: tuple[DictionaryRef, ...] = ()
    free_cues: bool = False  # True where any words in brackets are a direction
    manner: Mapping[str, str] = field(default_factory=dict)  # set by cues before the text

    @property
    def owner(self) -> str:
        """Return the tenant; schedulers share their time between tenants."""
        return str(self.workspace_id or "")

    @property
    def is_plain(self) -> bool:
        """Whether the text is read as it is."""
        is_marked = has_cues(self.text, free=self.free_cues) or (
            self.takes_ssml and is_ssml(self.text)
        )
        return not (is_marked or self.script or self.pronunciations or self.manner)


@dataclass(frozen=True, slots=True)
class SpokenPassage:
    """A part of a text that is spoken in one manner."""

    voice: AvailableVoice
    text: str
    speed: float
    pitch: float
    volume_db: float = 0.0
    language: str | None = None
    gap_s: float = 0.0  # silence before the passage, at the usual speed
    pause_s: float | None = None  # a break that replaces the gap
    read: ReadText | None = None

    @property
    def engine_speed(self) -> float:
        """Return the part of the speed that the engine produces, better than stretching does."""
        model = self.voice.model
        return _within((model.slowest_speed, FASTEST), self.speed) if model.native_speed else 1.0

    @property
    def tempo(self) -> float:
        """Return the part of the speed that stretching produces."""
        return self.speed / self.engine_speed

    @property
    def languages(self) -> frozenset[str]:
        """Return the languages in which paragraphs may be spoken."""
        return frozenset({self.language}) if self.language else self.voice.languages

    @property
    def spoken_in(self) -> str:
        """Return the language of paragraphs that are not clearly in another."""
        return self.language or self.voice.language


Runs = Iterator[tuple[str, SpokenPassage | None]]
"""Parts of a text, each with its style; None for letters that no voice reads."""


def is_ssml(text: str) -> bool:
    return _DOCUMENT.match(text) is not None


def parse(request: SpeechRequest) -> tuple[list[Token], str]:
    """Parse a request; return its tags and text, and the language of a document. Cues of
    other texts become tags. Raises InvalidRequest, with line and column, for malformed markup."""
    free = request.free_cues
    if not request.script:
        if request.takes_ssml and is_ssml(request.text):
            return _document(request.text, "text")
        return list(plain_tokens(request.text, free=free, manner=dict(request.manner))), ""
    tokens = list[Token]()
    language = ""
    at = 0
    for number, turn in enumerate(request.script):
        if is_ssml(turn.text):
            inner, named = _document(turn.text, f"script.{number}.text")
        else:
            inner, named = list(plain_tokens(turn.text, free=free)), ""
        if turn.pause is not None:
            tokens.append(Token(at, "break", {"time": f"{turn.pause:.3f}s"}))
        tokens += [Token(at, "p"), Token(at, "voice", {"name": turn.voice or ""})]
        tokens += [token._replace(start=token.start + at) for token in inner]
        language = language or named
        at += len(turn.text) + 1
        tokens += [Token(at - 1, "voice", closes=True), Token(at - 1, "p", closes=True)]
    return tokens, language


def own_text(tokens: Sequence[Token]) -> str:
    """Return the text outside `lang`, `voice`, `say-as` and `phoneme`; if that is empty, all."""
    depth = 0
    own = list[str]()
    for token in tokens:
        if token.name in ("lang", "voice", "say-as", "phoneme"):
            depth += -1 if token.closes else 1
        elif not depth:
            own.append(token.text)
    text = "".join(own)
    return text if text.strip() else "".join(token.text for token in tokens)


def written_and_breaks(request: SpeechRequest) -> tuple[str, float]:
    """Return the text without markup, and the length of its breaks (s). Raises InvalidRequest."""
    written = list[str]()
    breaks_s = 0.0
    for token in parse(request)[0]:
        written.append(token.text)
        if token.name == "break" and not token.closes:
            try:
                breaks_s += _break_s(token.attributes)
            except ValueError as error:
                raise _fault_of(request, token.start, error) from None
    return "".join(written), breaks_s


def _fault_of(request: SpeechRequest, at: int, error: ValueError) -> InvalidRequest:
    """Return the error at a place of the text, in the turn of a script if there is one."""
    for number, turn in enumerate(request.script):
        if at <= len(turn.text):
            return fault(f"script.{number}.text", turn.text, at, error)
        at -= len(turn.text) + 1
    return fault("text", request.text, at, error)


def _document(text: str, name: str) -> tuple[list[Token], str]:
    """Parse a document of SSML, which the request has in the field `name`."""
    tokens = list(tokens_of(text, name))
    speak = [token for token in tokens if token.name == "speak"]
    if len(speak) > 2:
        raise fault(name, text, speak[1].start, "there is another <speak> around it")
    inner = [token for token in tokens if token not in speak]
    return inner, _language(speak[0].attributes) or ""


@dataclass(eq=False, repr=False)
class PassageReader:
    """Reads the tokens of a request, once."""

    _request: SpeechRequest
    _usual: AvailableVoice
    _voices: Mapping[str, AvailableVoice]  # the voices that tokens name
    _default: Callable[[str], AvailableVoice]  # the voice of a language
    _lexicon: Lexicon | None = None
    _scripts: Callable[[str, SpokenPassage], Runs] | None = None  # None: no check
    unread: list[str] = field(default_factory=list)  # parts that no voice reads
    _open: list[SpokenPassage] = field(default_factory=list)  # the styles around open elements
    _inside: Token | None = None  # the element that has only text
    _passages: list[SpokenPassage] = field(default_factory=list)
    _gap_s: float = 0.0
    _pause_s: float | None = None

    def __post_init__(self) -> None:
        request = self._request
        self._style = SpokenPassage(self._usual, "", request.speed, request.pitch)

    def read(self, tokens: Sequence[Token]) -> tuple[SpokenPassage, ...]:
        """Read the passages; one for a pause at the end has no text. Raises InvalidRequest, or
        EngineLost if the model that speaks a language of the text may still load."""
        self._is_markup = any(token.has_entities for token in tokens)
        self._words = ReadText(self._request.text, is_markup=self._is_markup)
        for token in tokens:
            try:
                self._take(token)
            except ValueError as error:
                at = (self._inside or token).start
                raise _fault_of(self._request, at, error) from None
        self._cut()
        if self._passages and (words := self._passages[-1].read):
            words.marks += [(len(words.text), *mark[1:]) for mark in self._words.marks]
        if self._pause_s is not None:
            self._passages.append(replace(self._style, pause_s=self._pause_s))
        return tuple(self._passages)

    def _take(self, token: Token) -> None:
        if not token.name:
            self._write(token)
        elif self._inside is not None:
            if not token.closes:
                raise ValueError("this element may contain only text")
            self._say(self._inside.name, self._inside.attributes)
            self._inside = None
        elif token.closes:
            if token.name in _MANNERS:
                self._cut(_MANNERS[token.name])
            self._style = self._open.pop()
        else:
            self._begin(token, token.name, token.attributes)

    def _begin(self, token: Token, name: str, given: Mapping[str, str]) -> None:
        if (needed := _TABLES.needs.get(name)) and not given.get(needed, "").strip():
            raise ValueError(f"<{name}> needs {needed}")
        if name in ("sub", "phoneme", "say-as"):
            self._inside = token
            self._content = ""
            self._place = (token.start, token.start)
            return
        self._open.append(self._style)
        if name in _MANNERS:
            self._cut(_MANNERS[name])
            self._style = self._manner(name, given)
        elif name == "break":
            self._cut(pause_s=_break_s(given))
        elif name == "mark":
            self._words.marks.append((len(self._words.text), given["name"], token.start))
        else:
            raise ValueError(f"<{name[:100]}> is not supported")

    def _manner(self, name: str, given: Mapping[str, str]) -> SpokenPassage:
        style = self._style
        if name == "emphasis":
            given = _TABLES.emphases[_choice("level", given, _TABLES.emphases, "moderate")]
        if name in ("prosody", "emphasis"):
            return replace(
                style,
                speed=_within(SPEEDS, style.speed * _quantity("rate", given)),
                pitch=_within(PITCHES, style.pitch * _quantity("pitch", given)),
                volume_db=_within(VOLUMES_DB, style.volume_db + _quantity("volume", given)),
            )
        named = name == "voice" and given.get("name")
        language = _language(given) or (None if named else style.language)
        voice = self._voices[named] if named else style.voice
        if language and not voice.speaks(language):
            voice = self._default(language)
            if voice.language != language:
                if voice.is_makeshift:
                    raise EngineLost(NOT_READY)
                raise ValueError(f"no voice speaks {language[:20]!r}")
        return replace(style, voice=voice, language=language)

    def _write(self, token: Token) -> None:
        """Add a text as it is written, with the pronunciations of dictionaries."""
        text = token.text
        at = token.start
        places = [(place, place + 1) for place in range(at, at + len(text))]
        if token.has_entities:  # in markup, line feeds are spaces
            letters = list(_LETTER.finditer(text))
            places = [(at + letter.start(), at + letter.end()) for letter in letters]
            text = "".join(unescape(letter[0]) if letter[0].strip() else " " for letter in letters)
        if self._inside is not None:
            self._place = (self._place[0] if self._content else at, at + len(token.text))
            self._content += text
            return
        lexicon = self._lexicon
        position = 0
        for start, end, entry in lexicon.find(text, self._style.spoken_in) if lexicon else ():
            self._add(text[position:start], places[position:start])
            self._place = places[start][0], places[end - 1][1]
            self._pronounce(text[start:end], entry.ipa, entry.alias)
            position = end
        self._add(text[position:], places[position:])

    def _say(self, name: str, given: Mapping[str, str]) -> None:
        written = self._content.strip()
        ipa = None
        alias = given.get("alias")
        if name == "phoneme":
            ipa = to_ipa(given["ph"], given.get("alphabet", "ipa"))
        elif name == "say-as":
            kind = _choice("interpret-as", given, _TABLES.say_as)
            alias = say_as(written, kind, given.get("format", ""), self._style.spoken_in)
        self._pronounce(written, ipa, alias)

    def _pronounce(self, written: str, ipa: str | None, alias: str | None) -> None:
        if ipa and self._style.voice.model.phonemes:
            self._words.add(written, [self._place], ipa)
        else:
            self._add(alias or written, [self._place])

    def _add(self, text: str, places: list[tuple[int, int]]) -> None:
        """Add a text, in passages of the voices that read its letters. `places` has one place for
        each character, or one for all."""
        style = self._style
        position = 0
        for part, reader in self._scripts(text, style) if self._scripts else [(text, style)]:
            of_part = places if len(places) == 1 else places[position : position + len(part)]
            position += len(part)
            if reader is None:
                self.unread.append(part.strip(_AROUND))
                if SENTENCE_END.search(part) and not SENTENCE_END.search(self._words.text[-20:]):
                    self._words.add(".", of_part[-1:])
            elif part:
                if reader != self._style:
                    self._cut(PARAGRAPH_PAUSE_S if self._words.text.endswith("\n") else 0.0)
                    self._style = reader
                self._words.add(part, of_part)
        if self._style != style:
            self._cut()
            self._style = style

    def _cut(self, gap_s: float = 0.0, pause_s: float | None = None) -> None:
        """End a passage; consecutive pauses add up."""
        words = self._words
        if written := words.text.rstrip():
            passage = replace(
                self._style, text=words.text, gap_s=self._gap_s, pause_s=self._pause_s, read=words
            )
            self._passages.append(passage)
            self._words = ReadText(self._request.text, is_markup=self._is_markup)
            self._gap_s = SENTENCE_PAUSE_S if SENTENCE_END.search(written[-20:]) else 0.0
            self._pause_s = None
        self._gap_s = max(self._gap_s, gap_s)
        if pause_s is not None:
            self._pause_s = (self._pause_s or 0.0) + pause_s


def chunks_of(
    passages: Sequence[SpokenPassage], *, words: bool, policy: FirstChunkPolicy | None
) -> Iterator[TextChunk]:
    """Yield the chunks of all passages, each computed when it is requested; blocking."""
    chunker = Chunker(policy)
    for number, passage in enumerate(passages):
        chunks = read_chunks(
            passage.text,
            languages=passage.languages,
            language=passage.spoken_in,
            words=words,
            chunker=chunker,
            read=passage.read,
        )
        for chunk in chunks:
            yield replace(chunk, passage=number) if number else chunk


def _language(attributes: Mapping[str, str]) -> str | None:
    return attributes.get("xml:lang", "").partition("-")[0].lower() or None


def _within(limits: tuple[float, float], value: float) -> float:
    return min(max(value, limits[0]), limits[1])


def _choice(name: str, given: Mapping[str, str], choices: Collection[str], usual: str = "") -> str:
    if (value := given.get(name, usual)) not in choices:
        raise ValueError(f"{name}: must be one of {', '.join(choices)}")
    return value


def _break_s(attributes: Mapping[str, str]) -> float:
    name = "time" if "time" in attributes else "strength"
    return _within((0.0, LONGEST_BREAK_S), _quantity(name, attributes))


def _quantity(name: str, attributes: Mapping[str, str]) -> float:
    """Return the value of an attribute, in the unit of its table."""
    given = attributes.get(name, "medium").strip()
    names = _TABLES.names[name]
    if given in names:
        return names[given]
    value = _VALUE.fullmatch(given)
    if value is None or value[3] not in _TABLES.units[name]:
        units = _TABLES.units[name]
        numbers = (f"a number with {unit!r}" if unit else "a number" for unit in units)
        raise ValueError(f"{name}: must be one of {', '.join((*names, *numbers))}")
    number = float(value[1] + value[2])
    if value[3] == "%":
        return number / 100 + bool(value[1])
    if value[3] == "st":
        return float(2 ** (_within((-12, 12), number) / 12))
    return number / 1000 if value[3] == "ms" else number

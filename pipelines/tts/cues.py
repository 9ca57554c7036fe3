"""Cues in a plain text: pauses, and the inline markup of other services' clients.

Cues that can be obeyed become tokens of SSML: pauses of every dialect, Cartesia's speed, volume and
spelling, and the pronunciations of ElevenLabs, Cartesia, Inworld, Deepgram, Rime and Kokoro.
Directions that no voice here follows, such as `[laughs]` and `<emotion value="sad"/>`, are dropped,
and so is the reasoning of language models."""

import re
from collections.abc import Iterator, Mapping
from math import log10

from configs.load import load_yaml
from configs.schema.base import StrictModel
from pipelines.text.lexicon import convert, to_ipa
from pipelines.text.markup import Token
from pipelines.tts import reasoning


class _Directions(StrictModel):
    """`configs/directions.yaml`: words in brackets that are dropped."""

    words: list[str]
    phrases: list[str]


_TABLE = load_yaml(_Directions, "directions")
_WORDS = [word for words in _TABLE.words for word in words.split(", ")]
_DIRECTION = "|".join([*_WORDS, *_TABLE.phrases])
_ELEMENTS = ("break", "speed", "volume", "emotion", "spell", "phoneme")
_NAMES = "|".join(_ELEMENTS)
_TIME = r"\d{1,5}(?:\.\d{1,3})?m?s"
_CUE = re.compile(
    rf"""(?i:<break\s+time\s*=\s*(?P<quote>["'])(?P<time>{_TIME})(?P=quote)\s*/?>)"""
    r"""|(?i:<(?P<manner>speed|volume)\s+ratio\s*=\s*["'](?P<ratio>\d{0,2}\.?\d{1,4})["']\s*/?>)"""
    r"""|(?i:<spell>(?P<spelled>[^<]{1,200})</spell>)|(?<!\w)spell\((?P<called>[^()\n]{1,200})\)"""
    r"""|(?i:<phoneme\b(?P<given>[^<>]{0,300})>(?P<sounded>[^<]{1,100})</phoneme>)"""
    rf"""|<(?P<rime>\d{{2,5}})>|\\?\{{pause:(?P<deepgram>{_TIME})\\?\}}"""
    r"""|\\?\{\s*"word":\s*"(?P<word>[^"]{1,100})",\s*"pronounce":\s*"(?P<ipa>[^"]{1,100})"\s*"""
    r"""\\?\}"""
    r"""|<<(?P<cartesia>[^<>\s]{1,100})>>|\{(?P<braced>(?=\D{0,9}[012])"""
    r"""(?:[012][@aAWxYEReIioOUuN]|[bCdDfghJklmnGprsStTvwyzZ]){2,40})\}"""
    rf"|{reasoning.BLOCK}"
    r"""|\[(?P<linked>[^\[\]\n]{1,100})\]\(/(?P<sounds>(?=[^/()\n]{0,100}"""
    r"""[\u0250-\u02ff\u1d00-\u1dbf])[^/()\n]{1,100})/\)"""  # else a link to a page
    # A pause in brackets, unless it is quoted, a link or part of a word.
    r"""|(?<![^\s.,;:!?…。，、；：！？—–-])\[(?:(?:(?P<kind>(?i:short|medium|long)) )?"""
    rf"""(?i:pause)|(?i:pause)[ :](?P<length>{_TIME}))\](?![(\[:\]"'`’”*_])"""
    rf"""|(?P<dropped>(?i:</?(?:{_NAMES.partition("|")[2]})\b[^<>]{{0,300}}>|<(?:{"|".join(_WORDS)})\s*/?>)"""
    r"""|\\?\{\s*"(?:word|pronounce)"[^{}]{0,250}\}"""
    rf"""|(?<![^\s.,;:!?…。，、；：！？\]—–-])\[(?:(?i:{_DIRECTION})\]"""
    # Other words in brackets, of a dialect that takes free directions.
    r"""|(?P<free>[a-z][^\[\]\n]{1,200}\]))(?![(:"'`’”*_]))"""
    # IPA in place of a word, and stress: also only of such dialects.
    r"""|(?<![\w/:.])/(?P<slashed>(?=[^/\s]{0,60}[^\x00-\x7f])[^/\s]{1,60})/(?![\w/])"""
    r"""|(?<![\w*])\*(?P<stressed>[^\W_](?:[^*\n\[\]<>{}]{0,60}[^*\s\[\]<>{}])?)\*(?![\w*])"""
)
# The end of a text that may become a cue with the text that follows.
_OPEN = re.compile(
    rf"""(?i:<(?:<[^<>\s]{{0,100}}>?|/?[a-z]{{0,12}}|(?:{_NAMES})\s[^<>]{{0,300}}|\d{{1,5}}"""
    r"""|spell>[^<]{0,200}(?:</?[a-z]{0,5})?|phoneme\b[^<>]{0,300}>[^<]{0,100}(?:</?[a-z]{0,7})?))\Z"""
    r"""|(?:\\?\{[^{}\n]{0,250}|\\|\[[^\[\]\n]{0,200}(?:\]\((?:/[^/()\n]{0,100}/?)?)?"""
    r"""|(?<!\w)spell\([^()\n]{0,200}"""
    r"""|(?<![\w/:.<])/[^/\s]{0,60})\Z"""
)
_PRONOUNCED = ("sounded", "word", "linked", "cartesia", "slashed", "braced")
_LONGEST = 450  # characters of a cue
_MARK = re.compile(r"[<\[{/*\\]|l\(")  # every cue has one; most texts have none
_ATTRIBUTE = re.compile(r"""(\w+)\s*=\s*(["'])(.*?)\2""")
_NOT_SAID = re.compile(r"[\s|.ˈˌː]+")
_STRENGTHS = {"short": "weak", "medium": "medium", "long": "x-strong"}  # pauses in brackets


def _cues(text: str, *, free: bool) -> Iterator[re.Match[str]]:
    """Yield the cues outside of code, in which only elements are cues."""
    in_code = 0  # backticks before the cue
    position = 0
    for cue in _CUE.finditer(text) if _MARK.search(text) else ():
        in_code += text.count("`", position, cue.start())
        position = cue.end() if cue["reasoning"] else cue.start()
        is_free = cue["free"] or cue["slashed"] or cue["stressed"]
        if (cue[0][0] == "<" or in_code % 2 == 0) and (free or not is_free):
            yield cue


def has_cues(text: str, *, free: bool) -> bool:
    """Whether a plain text has cues; `free` as for `plain_tokens`."""
    return any(_cues(text, free=free)) or bool(_half(text, free=free))


def dropped_cues(text: str, *, free: bool, manner: dict[str, str] | None = None) -> list[str]:
    """Return the cues that no voice follows, each once; `manner` as for `plain_tokens`."""
    dropped = dict[str, None]()
    for _ in plain_tokens(text, free=free, manner=manner, dropped=dropped):
        pass
    return list(dropped)


def uncut(text: str, position: int) -> int:
    """Return the last place up to `position` that is not inside a cue, or what may become one."""
    if half := _open_end(text):
        position = min(position, half.start())
    if not _MARK.search(text, max(0, position - _LONGEST), position + _LONGEST):
        return position
    for cue in _CUE.finditer(text, max(0, position - _LONGEST), position + _LONGEST):
        if cue.start() < position < cue.end():
            return cue.start()
    return position


def plain_tokens(
    text: str,
    *,
    free: bool,
    manner: dict[str, str] | None = None,
    dropped: dict[str, None] | None = None,
) -> Iterator[Token]:
    """Yield a plain text as tokens of SSML: its cues, and the text between them.

    `free` takes any words in brackets for a direction, as ElevenLabs and Inworld do. `manner` has
    the speed and volume before the text, then after it; `dropped` gets what no voice follows."""
    manner = {} if manner is None else manner
    dropped = {} if dropped is None else dropped
    position = 0
    if is_open := bool(manner):
        yield Token(0, "prosody", dict(manner))
    for cue in _cues(text, free=free):
        start = cue.start()
        yield Token(position, text=text[position:start])
        position = cue.end()
        if cue["manner"]:  # a manner lasts until the next cue for it
            if is_open:
                yield Token(start, "prosody", closes=True)
            _change(manner, cue["manner"].lower(), max(float(cue["ratio"]), 0.1))
            if is_open := bool(manner):
                yield Token(start, "prosody", dict(manner))
        elif spelled := cue["spelled"] or cue["called"]:
            yield from _inside("say-as", {"interpret-as": "characters"}, cue, spelled, spelled)
        elif any(map(cue.group, _PRONOUNCED)):
            yield from _pronounced(cue, dropped)
        elif cue["reasoning"]:
            dropped[f"<{cue['reasoning']}>"] = None
        elif cue["dropped"] or cue["stray"] or cue["stressed"]:
            dropped[cue[0]] = None
            if cue["stressed"]:
                yield Token(start + 1, text=cue["stressed"])
        else:
            time = cue["time"] or cue["length"] or cue["deepgram"]
            time = time or (cue["rime"] and f"{cue['rime']}ms")
            strength = _STRENGTHS[(cue["kind"] or "medium").lower()]
            yield Token(start, "break", {"time": time.lower()} if time else {"strength": strength})
    if half := _half(text, free=free):
        dropped[half] = None
    yield Token(position, text=text[position : len(text) - len(half)])


def _change(manner: dict[str, str], name: str, ratio: float) -> None:
    key = "volume" if name == "volume" else "rate"
    manner.pop(key, None)
    if ratio != 1:
        manner[key] = f"{20 * log10(ratio):+.1f}dB" if key == "volume" else f"{ratio:.0%}"


def _inside(
    name: str, attributes: Mapping[str, str], cue: re.Match[str], inside: str, word: str
) -> Iterator[Token]:
    """Yield an element around `word`, at the place of the text inside the cue."""
    yield Token(cue.start(), name, attributes)
    yield Token(cue.start() + cue[0].index(inside), text=word)
    yield Token(cue.end(), name, closes=True)


def _pronounced(cue: re.Match[str], dropped: dict[str, None]) -> Iterator[Token]:
    """Yield a word with its phonemes, or the word alone if `to_ipa` refuses them."""
    word = cue["word"] or cue["sounded"] or cue["linked"]
    phonemes = cue["ipa"] or cue["sounds"] or ""
    alphabet = "misaki" if cue["linked"] else "ipa"
    if cue["sounded"]:
        given = {name: value for name, _, value in _ATTRIBUTE.findall(cue["given"])}
        phonemes = given.get("ph", "")
        alphabet = given.get("alphabet", "ipa")
    elif not word:  # the letters of IPA, for voices that take no phonemes
        written = cue["cartesia"] or cue["slashed"] or cue["braced"]
        phonemes = convert(written, "rime") if cue["braced"] else written.replace("|", "")
        word = _NOT_SAID.sub("", phonemes)
    inside = next(filter(None, map(cue.group, _PRONOUNCED)))
    try:
        ipa = to_ipa(phonemes, alphabet)
    except ValueError:
        dropped[cue[0]] = None
        yield Token(cue.start() + cue[0].index(inside), text=word)
    else:
        yield from _inside("phoneme", {"ph": ipa}, cue, inside, word)


def _open_end(text: str) -> re.Match[str] | None:
    """Find the end of a text that may become a cue."""
    start = max(0, len(text) - _LONGEST)
    return _OPEN.search(text, start) if _MARK.search(text, start) else None


def _half(text: str, *, free: bool) -> str:
    """Return the end of a text that is certainly the beginning of a cue."""
    if not (half := _open_end(text)) or "]" in half[0]:
        return ""
    inside = half[0].lstrip("</\\{[").lower()
    if half[0][0] == "[":
        is_word = len(inside) > 1 and any(word.startswith(inside) for word in _WORDS)
        is_cue = is_word or (free and half[0][1:2].islower())
    elif half[0][0] == "<":
        begins = (name.startswith(inside) or inside.startswith(name) for name in _ELEMENTS[1:])
        is_cue = len(inside) > 2 and ("|" in inside or inside.startswith("break ") or any(begins))
    else:
        is_cue = len(inside) > 2 and '"word"'.startswith(inside[:6])
    return half[0] if is_cue else ""

"""Cues in a plain text: pauses, and the inline markup of other services' clients.

What can be obeyed becomes tokens of SSML: ElevenLabs' and Cartesia's breaks, Rime's `<750>`,
Deepgram's `\\{pause:1s\\}` and pronunciations, Cartesia's speed, volume and spelling. Directions
that no voice here follows, such as `[laughs]` and `<emotion value="sad"/>`, are dropped.
"""

import re
from collections.abc import Iterator
from math import log10

from configs.load import load_yaml
from configs.schema.base import StrictModel
from pipelines.text.markup import Token


class _Directions(StrictModel):
    """`configs/directions.yaml`: expressions of what is dropped in brackets."""

    words: list[str]
    phrases: list[str]


_TABLE = load_yaml(_Directions, "directions")
_DIRECTION = "|".join([*_TABLE.words, *_TABLE.phrases])
_TIME = r"\d{1,5}(?:\.\d{1,3})?m?s"
_CUE = re.compile(
    rf"""<break\s+time\s*=\s*(?P<quote>["'])(?P<time>{_TIME})(?P=quote)\s*/>"""
    r"""|<(?P<manner>speed|volume)\s+ratio\s*=\s*["'](?P<ratio>\d(?:\.\d{1,3})?)["']\s*/>"""
    r"""|<spell>(?P<spelled>[^<]{1,200})</spell>|<(?P<rime>\d{2,5})>"""
    rf"""|\\?\{{pause:(?P<deepgram>{_TIME})\\?\}}"""
    r"""|\\?\{\s*"word":\s*"(?P<word>[^"]{1,100})",\s*"pronounce":\s*"(?P<ipa>[^"]{1,100})"\s*"""
    r"""\\?\}"""
    # In brackets, unless it is quoted, a link or part of a word.
    r"""|(?<![^\s.,;:!?…。，、；：！？—–-])\[(?:(?:(?P<kind>(?i:short|medium|long)) )?"""
    rf"""(?i:pause)|(?i:pause)[ :](?P<length>{_TIME}))\](?![(\[:\]"'`’”*_])"""
    r"""|(?P<dropped></?(?:emotion|speed|volume)\b[^<>]{0,100}>"""
    rf"""|(?<![^\s.,;:!?…。，、；：！？\]—–-])\[(?:(?i:{_DIRECTION})\]"""
    # Any other of a dialect that takes a free description.
    r"""|(?P<free>[a-z][a-zA-Z _'’,-]{1,60}\]))(?![(:"'`’”*_]))"""
)
_STRENGTHS = {"short": "weak", "medium": "medium", "long": "x-strong"}  # of those in brackets


def _cues(text: str, *, free: bool) -> Iterator[re.Match[str]]:
    """The cues outside of code, where only elements are cues."""
    in_code, position = 0, 0
    for cue in _CUE.finditer(text):
        in_code += text.count("`", position, cue.start())
        position = cue.start()
        if (cue[0][0] == "<" or in_code % 2 == 0) and (free or not cue["free"]):
            yield cue


def has_cues(text: str, *, free: bool) -> bool:
    """Whether a plain text is not read as it is; `free` as for `plain_tokens`."""
    return any(_cues(text, free=free))


def dropped_cues(text: str, *, free: bool) -> list[str]:
    """The cues of a plain text that no voice follows, each once."""
    return list(dict.fromkeys(cue[0] for cue in _cues(text, free=free) if cue["dropped"]))


def plain_tokens(text: str, *, free: bool) -> Iterator[Token]:
    """A plain text as tokens of SSML: its cues, and what is spoken between them.

    `free` takes any words in brackets for a direction, as ElevenLabs and Inworld do.
    """
    position, manner = 0, dict[str, str]()
    for cue in _cues(text, free=free):
        start = cue.start()
        yield Token(position, text=text[position:start])
        position = cue.end()
        if cue["manner"]:  # it lasts until the next one
            if manner:
                yield Token(start, "prosody", closes=True)
            ratio = max(float(cue["ratio"]), 0.1)
            if cue["manner"] == "speed":
                manner["rate"] = f"{ratio:.0%}"
            else:
                manner["volume"] = f"{20 * log10(ratio):+.1f}dB"
            yield Token(start, "prosody", dict(manner))
        elif inside := cue["spelled"] or cue["word"]:
            name = "say-as" if cue["spelled"] else "phoneme"
            yield Token(start, name, {"interpret-as": "characters", "ph": cue["ipa"] or ""})
            yield Token(start + cue[0].index(inside), text=inside)
            yield Token(position, name, closes=True)
        elif not cue["dropped"]:
            time = cue["time"] or cue["length"] or cue["deepgram"]
            time = time or (cue["rime"] and f"{cue['rime']}ms")
            strength = _STRENGTHS[(cue["kind"] or "medium").lower()]
            yield Token(start, "break", {"time": time} if time else {"strength": strength})
    yield Token(position, text=text[position:])

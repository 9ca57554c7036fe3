"""SDP offers of clients, which are hostile input: only what a call needs reaches aiortc. aiortc's
parser takes attributes without bounds, and fails with any exception (RFC 8829, RFC 8866)."""

import re
from collections.abc import Iterator, Sequence
from ipaddress import ip_address

from pipelines.errors import InvalidRequest

MICROPHONE_RATE = 48_000  # Hz of decoded Opus
MICROPHONE_CHANNELS = 2
MAX_LINES = 500
MAX_CANDIDATES = 8
MAX_FINGERPRINTS = 4

_TRANSPORT = {
    "ice-ufrag": r"[A-Za-z0-9+/]{4,256}",
    "ice-pwd": r"[A-Za-z0-9+/]{22,256}",
    "setup": r"actpass|active|passive",
}
_FINGERPRINT = re.compile(r"fingerprint:sha-\d{1,3} [0-9A-Fa-f:]{40,200}", re.ASCII)
_OPUS = re.compile(r"rtpmap:(\d{1,3}) opus/48000/2", re.ASCII | re.IGNORECASE)
_CANDIDATE = re.compile(
    r"candidate:[\w+/]{1,32} 1 udp \d{1,10} ([0-9a-f.:]+) \d{1,5} typ (host|srflx|relay)\b",
    re.ASCII | re.IGNORECASE,
)


def rewritten(offer: str, *, keeps_candidates: bool) -> str:
    """Returns an offer of one audio section with Opus and one data channel, for aiortc. Candidates
    are left out, since the peer's own checks show its address. With `keeps_candidates`, up to
    MAX_CANDIDATES with public addresses stay, as a relay needs them. Raises InvalidRequest."""
    lines = [line.strip() for line in offer.splitlines()]
    if len(lines) > MAX_LINES or not offer.startswith("v=0"):
        raise _invalid(f"an offer begins with v=0, and has at most {MAX_LINES} lines")
    starts = [at for at, line in enumerate(lines) if line.startswith("m=")]
    kinds = [lines[at][2:].partition(" ")[0] for at in starts]
    if sorted(kinds) != ["application", "audio"]:
        raise _invalid("a call has one audio section and one data channel, and nothing else")
    ends = [*starts[1:], len(lines)]
    session = _attributes(lines[: starts[0]])
    sections = {
        kind: _attributes(lines[start:end])
        for kind, start, end in zip(kinds, starts, ends, strict=True)
    }
    mids = {kind: _value(section, "mid", r"[\w.-]{1,32}") for kind, section in sections.items()}
    bundle = next((line for line in session if line.startswith("group:BUNDLE ")), "")
    if not {*mids.values()} <= {*bundle.split()} or mids["audio"] == mids["application"]:
        raise _invalid("both sections must be in one BUNDLE group")
    written = ["v=0", "o=- 1 1 IN IP4 0.0.0.0", "s=-", "t=0 0"]
    # aiortc uses the transport of the group's first section, and stops those of the others.
    written.append(f"a=group:BUNDLE {mids['audio']} {mids['application']}")
    for kind in kinds:
        section = sections[kind]
        written += _audio(section) if kind == "audio" else _data_channel(section)
        written += [f"a=mid:{mids[kind]}", *_transport([*section, *session])]
        if keeps_candidates:  # in both: aiortc takes only those of a transport's last section
            public = [f"a={line}" for line in sections["audio"] if _is_public(line)]
            written += public[:MAX_CANDIDATES]
    return "\r\n".join(written) + "\r\n"


def _attributes(lines: Sequence[str]) -> list[str]:
    return [line[2:] for line in lines if line.startswith("a=")]


def _audio(section: Sequence[str]) -> Iterator[str]:
    opus = next(filter(None, map(_OPUS.fullmatch, section)), None)
    if opus is None or "rtcp-mux" not in section:
        raise _invalid("the audio section must have opus/48000/2 and rtcp-mux")
    if {"sendonly", "inactive"} & {*section}:
        raise _invalid("the audio section must receive: sendrecv or recvonly")
    yield f"m=audio 9 UDP/TLS/RTP/SAVPF {opus[1]}"
    yield "a=recvonly" if "recvonly" in section else "a=sendrecv"
    yield "a=rtcp-mux"
    yield f"a={opus[0]}"


def _data_channel(section: Sequence[str]) -> Iterator[str]:
    port = _value(section, "sctp-port", r"\d{1,5}")
    most = _value([*section, "max-message-size:65536"], "max-message-size", r"\d{1,9}")
    yield "m=application 9 UDP/DTLS/SCTP webrtc-datachannel"
    yield f"a=sctp-port:{port}"
    yield f"a=max-message-size:{most}"


def _transport(attributes: Sequence[str]) -> Iterator[str]:
    """Yields the transport of a section, from its own attributes or else those of the session."""
    for name, pattern in _TRANSPORT.items():
        yield f"a={name}:{_value(attributes, name, pattern)}"
    fingerprints = [line for line in attributes if _FINGERPRINT.fullmatch(line)]
    if not fingerprints:
        raise _invalid("a section has no fingerprint")
    yield from (f"a={line}" for line in fingerprints[:MAX_FINGERPRINTS])


def _value(attributes: Sequence[str], name: str, pattern: str) -> str:
    """Returns the value of the first attribute of that name. Raises InvalidRequest."""
    text = next((line for line in attributes if line.startswith(f"{name}:")), "")
    value = text.removeprefix(f"{name}:")
    if not re.fullmatch(pattern, value, re.ASCII):
        raise _invalid(f"a section has no valid {name}")
    return value


def _is_public(line: str) -> bool:
    match = _CANDIDATE.match(line)
    try:
        return match is not None and ip_address(match[1]).is_global
    except ValueError:
        return False


def _invalid(message: str) -> InvalidRequest:
    return InvalidRequest(f"sdp: {message}")

"""Deepgram's sockets `/v1/listen`, a stream of one or two channels and its results, and
`/v2/listen` (Flux), a stream as turns of a conversation."""

import hashlib
import math
from dataclasses import replace
from typing import Any, Literal

from pydantic import ValidationError
from starlette.routing import BaseRoute

from api.deepgram.options import (
    BEARER_OR_TOKEN,
    ENCODINGS,
    MULTI,
    PACKETS,
    FluxQuery,
    StreamQuery,
    check_recogniser,
    described,
    uuid_of,
)
from api.deepgram.recordings import SpeakerNumbers, metadata, shown_words
from api.dialects.requests import SocketMessage, dialect_socket, fault_text
from api.dialects.turns import TurnEvent, TurnListener
from api.http.errors import CODED, to_api_error
from api.services import Services
from api.sockets.kernel import close_codes
from api.sockets.kernel.conversation import ClientFault, json_text
from api.sockets.kernel.session import SocketSession
from api.sockets.stt.conversation import MIN_MS
from api.sockets.stt.listening import ListeningConversation, SocketListener, words_of
from models.stt.options import KeyTerms
from pipelines.audio.decode.stream import ChannelSplitter
from pipelines.stt.decoding import SessionOptions
from pipelines.stt.endpointing import SemanticTurns
from pipelines.stt.events import FailedUtterance, LiveEvent, LiveSpeechStarted, LiveTranscript

SILENCE = 10.0, "NET-0001: no audio and no message came for 10 seconds", close_codes.INTERNAL
USUAL_MS = 500  # of silence that end an utterance where endpointing is off
INTERIM_MS = 500


class StreamMessage(SocketMessage):
    """Of `/v1/listen`. `KeepAlive` only shows that the client is there."""

    type: Literal["KeepAlive", "Finalize", "CloseStream", "Configure"]
    channel: int | None = None  # that is to be finalized
    keyterms: KeyTerms | None = None
    features: dict[str, bool] = {}


class StreamConversation(ListeningConversation):
    """Results of utterances, as they grow and when they end."""

    silence = SILENCE
    listeners: "list[StreamChannel]"

    def __init__(self, socket: SocketSession, services: Services) -> None:
        super().__init__(socket, services)
        self.query = StreamQuery.of_socket(socket.query)
        self.listeners = [StreamChannel(self, at) for at in range(self.query.heard_channels)]
        self._digest = hashlib.sha256()
        encoding = ENCODINGS.get(self.query.encoding, "linear")
        self._splitter = ChannelSplitter(len(self.listeners), encoding)

    def error(self, message: str) -> str:
        code = "NET-0001" if message in SILENCE else "DATA-0000"
        fields = {"variant": "SchemaError", "description": message, "message": message}
        return json_text({"type": "Error", "code": code, **fields})

    async def begin(self) -> None:
        check_recogniser(self.query.model, self.model)
        if self.query.encoding not in ENCODINGS:
            await self.expect_encoded(packets=self.query.encoding == PACKETS)
        options = self.query.to_options(MIN_MS, USUAL_MS, INTERIM_MS)
        for one in self.listeners:
            await one.start(options)

    async def handle(self, text: str) -> bool:
        message = StreamMessage.parse(text)
        if message.type == "Finalize":
            for number, one in enumerate(self.listeners):
                if message.channel in (None, number):
                    one.commit()
        elif message.type == "Configure":
            await self._configure(message)
        return message.type == "CloseStream"

    async def accept(self, data: bytes) -> bool:
        self._digest.update(data)
        rate = self.query.sample_rate
        if (encoding := ENCODINGS.get(self.query.encoding)) is None or rate is None:
            await self.accept_encoded(data)
        else:
            for one, part in zip(self.listeners, self._splitter.split(data), strict=True):
                await one.input.accept(part, encoding, rate)
        return not data  # an older way to end the stream

    async def summarise(self) -> None:
        seconds = round(self.listeners[0].input.received_s, 3)
        about = {"duration": seconds, "channels": len(self.listeners)}
        digest = self._digest.hexdigest()
        shown = metadata(self.request_id, self.model, digest, **about)
        await self.socket.send(json_text({"type": "Metadata", **shown}))

    async def _configure(self, change: StreamMessage) -> None:
        answer: dict[str, Any] = {"type": "ConfigureSuccess", "request_id": self.request_id}
        names = {"numerals", "profanity_filter", "punctuate"} & change.features.keys()
        features = {name: change.features[name] for name in names}
        for one in self.listeners:
            wanted = one.options.recognition
            wanted = replace(wanted, form=replace(wanted.form, **features))
            if change.keyterms is not None:
                wanted = replace(wanted, keyterms=tuple(change.keyterms))
                answer["keyterms"] = change.keyterms
            await one.change(replace(one.options, recognition=wanted))
        await self.socket.send(json_text(answer))


class StreamChannel(SocketListener):
    def __init__(self, stream: StreamConversation, number: int) -> None:
        super().__init__(stream.socket, stream.speech, stream.listener_ended)
        self._stream, self._number = stream, number
        self._speakers = SpeakerNumbers()
        self._starts: list[float] = []  # of speech whose last result is to come
        self._last_end_s = math.inf  # of the last word, until UtteranceEnd was sent

    async def emit(self, event: LiveEvent) -> None:
        match event:
            case LiveSpeechStarted():
                self._starts.append(event.at_s)
                await self.progressed()
                if self._stream.query.vad_events:
                    await self._send("SpeechStarted", timestamp=round(event.at_s, 3))
            case LiveTranscript():
                await self._results(event)
                if event.final and not event.cut:
                    self._starts = [at_s for at_s in self._starts if at_s > event.start_s]
                    await self.progressed()
            case FailedUtterance():
                await self._socket.send(self._stream.error(to_api_error(event.error).message))

    async def progressed(self) -> None:
        """Tells that an utterance ended, if the silence after its words is long enough: up to the
        speech that follows, without the padding before it. When results come does not matter."""
        wait_ms = self._stream.query.utterance_end_ms
        if wait_ms is None or self.live is None:
            return
        silent_to_s = self._starts[0] if self._starts else self.live.silent_to_s
        if silent_to_s - self._last_end_s >= wait_ms / 1000:
            last_end_s, self._last_end_s = self._last_end_s, math.inf
            await self._send("UtteranceEnd", last_word_end=round(last_end_s, 3))

    async def _send(self, kind: str, **fields: Any) -> None:
        place = [self._number, len(self._stream.listeners)]
        await self._socket.send(json_text({"type": kind, "channel": place, **fields}))

    async def _results(self, heard: LiveTranscript) -> None:
        query, model = self._stream.query, self._stream.model
        words = words_of(heard)
        if heard.final and words:
            self._last_end_s = words[-1].end
        language = heard.language if query.language == MULTI else None
        best: dict[str, Any] = {
            "transcript": heard.text,
            "confidence": round(heard.confidence, 4),
            "words": shown_words(
                words,
                [self._speakers.of(one) for one in heard.speakers],
                punctuated=query.is_punctuated,
                language=language,
            ),
        }
        if language is not None:
            best["languages"] = [language]
        is_forced = heard.sentence_id in self.committed and not heard.cut and heard.final
        fields = {
            "type": "Results",
            "channel_index": [self._number, len(self._stream.listeners)],
            "duration": round(heard.duration_s, 3),
            "start": round(heard.start_s, 3),
            "is_final": heard.final,
            "speech_final": is_forced or (heard.final and not heard.cut and query.endpointing != 0),
            "channel": {"alternatives": [best]},
            "metadata": {
                "request_id": self._stream.request_id,
                "model_info": described(model),
                "model_uuid": uuid_of(model),
            },
            "from_finalize": is_forced,
        }
        await self._socket.send(json_text(fields))


UPDATE_MS = 300
# Of silence, after which a turn ends that sounds unfinished: Deepgram's confidence grows with the
# silence, so that its turns seldom last until the time-out.
LONGEST_WAIT_MS = 800


class TurnsMessage(SocketMessage):
    """`Configure` changes what is given, for what follows: parameters of the query."""

    type: Literal["CloseStream", "ForceEndTurn", "Configure", "KeepAlive"]
    thresholds: dict[Literal["eager_eot_threshold", "eot_threshold", "eot_timeout_ms"], Any] = {}
    keyterms: list[str] | None = None
    language_hints: list[str] | None = None
    numerals: bool | None = None
    profanity_filter: bool | None = None

    def applied_to(self, query: FluxQuery) -> FluxQuery:
        """Raises ValidationError."""
        given = {
            "keyterm": self.keyterms,
            "language_hint": self.language_hints,
            "numerals": self.numerals,
            "profanity_filter": self.profanity_filter,
        }
        known = {name: value for name, value in given.items() if value is not None}
        return FluxQuery.model_validate({**query.model_dump(), **known, **self.thresholds})


class FluxConversation(ListeningConversation):
    """One channel, whose listener tells the turns."""

    silence = SILENCE

    def __init__(self, socket: SocketSession, services: Services) -> None:
        super().__init__(socket, services)
        self.query = FluxQuery.of_socket(socket.query)
        self.turns = FluxListener(self)
        self.listeners = [self.turns]
        self._sequence = 0

    def event(self, kind: str, **fields: Any) -> str:
        """The next message."""
        number, self._sequence = self._sequence, self._sequence + 1
        about = {"request_id": self.request_id, "sequence_id": number}
        return json_text({"type": kind, **about, **fields})

    def error(self, message: str) -> str:
        code = "NET-0001" if message in SILENCE else "INTERNAL_SERVER_ERROR"
        return self.event("Error", code=code, description=message)

    async def begin(self) -> None:
        check_recogniser(self.query.model, self.model)
        if self.query.encoding not in ENCODINGS:
            await self.expect_encoded(packets=self.query.encoding == PACKETS)
        await self.turns.start(self._options())
        await self.socket.send(self.event("Connected"))

    async def handle(self, text: str) -> bool:
        try:
            message = TurnsMessage.parse(text)
        except ClientFault as fault:
            fields = {"code": "UNPARSABLE_CLIENT_MESSAGE", "description": fault.message}
            raise ClientFault(fault.message, self.event("Error", **fields)) from None
        if message.type == "ForceEndTurn":
            self.turns.commit()
        elif message.type == "Configure":
            await self.socket.send(await self._configured(message))
        return message.type == "CloseStream"

    async def accept(self, data: bytes) -> bool:
        if (encoding := ENCODINGS.get(self.query.encoding)) is None:
            await self.accept_encoded(data)
        else:
            await self.turns.input.accept(data, encoding, self.query.sample_rate)
        return False

    def _options(self) -> SessionOptions:
        query = self.query
        waits_ms = query.eot_timeout_ms
        if query.eot_threshold < 1:
            waits_ms = min(waits_ms, LONGEST_WAIT_MS)
        return SessionOptions(
            recognition=query.recognition(),
            interim_ms=UPDATE_MS,
            turns=SemanticTurns(waits_ms, query.eot_threshold),
        )

    async def _configured(self, change: TurnsMessage) -> str:
        before = self.query
        try:
            self.query = change.applied_to(before)
            changes_languages = change.language_hints is not None
            await self.turns.change(self._options(), changes_languages=changes_languages)
        except (ValidationError, *CODED) as error:
            self.query = before
            code = "INVALID_CONFIGURE"
            fields = {"code": code, "error_code": code, "description": fault_text(error)}
            return self.event("ConfigureFailure", **fields)
        query = self.query
        return self.event(
            "ConfigureSuccess",
            thresholds=query.model_dump(
                include={"eager_eot_threshold", "eot_threshold", "eot_timeout_ms"}
            ),
            keyterms=query.keyterm,
            language_hints=query.language_hint,
            numerals=query.numerals,
        )


class FluxListener(TurnListener):
    """Words have no times."""

    def __init__(self, flux: FluxConversation) -> None:
        super().__init__(flux)
        self._flux = flux

    @property
    def least_completeness(self) -> float | None:
        return self._flux.query.eager_eot_threshold

    async def warn(self, message: str) -> None:
        warning = self._flux.event("Warning", code="TRANSCRIPTION_FAILED", description=message)
        await self._socket.send(warning)

    async def tell(self, event: TurnEvent, text: str, **more: Any) -> None:
        if self._flux.query.is_multilingual:
            more |= {"languages": [self.language]}
            more |= {"languages_hinted": self._flux.query.language_hint}
        confidence, query = round(self.confidence, 4), self._flux.query
        completeness, trigger = self.completeness, more.get("trigger")
        if trigger in ("model", "timeout"):
            waits_whole = query.eot_timeout_ms <= LONGEST_WAIT_MS and trigger == "timeout"
            is_late = waits_whole or query.eot_threshold == 1
            more["trigger"] = "timeout" if is_late else "model"
            if not is_late:  # the silence made up for what the speech left in doubt
                completeness = max(completeness, query.eot_threshold)
        info = self._flux.event(
            "TurnInfo",
            event=event,
            turn_index=self.index,
            audio_window_start=round(self.begins_s or 0.0, 3),
            audio_window_end=round(self.heard_s, 3),
            transcript=text,
            words=[{"word": one, "confidence": confidence} for one in text.split()],
            end_of_turn_confidence=round(completeness, 4),
            **more,
        )
        await self._socket.send(info)


routes: list[BaseRoute] = [
    *dialect_socket(
        "/v1/listen",
        "stt",
        StreamConversation,
        lambda query: StreamQuery.of_socket(query).recognition(),
        BEARER_OR_TOKEN,
    ),
    *dialect_socket(
        "/v2/listen",
        "stt",
        FluxConversation,
        lambda query: FluxQuery.of_socket(query).recognition(),
        BEARER_OR_TOKEN,
    ),
]

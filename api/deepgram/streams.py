"""Deepgram's sockets of live speech: `/v1/listen`, and `/v2/listen` (Flux) with turns."""

import asyncio
import hashlib
import math
from dataclasses import replace
from typing import Any, Literal

from pydantic import Field
from starlette.routing import BaseRoute

from api.deepgram import options
from api.deepgram.findings import Replacements, entities_json, search_hits
from api.deepgram.recordings import SpeakerNumbers, metadata, words_json
from api.dialects.requests import SocketMessage, dialect_socket
from api.dialects.turns import TurnEvent, TurnListener
from api.http.errors import CODED, to_api_error
from api.services import Services
from api.sockets.kernel import close_codes
from api.sockets.kernel.conversation import ClientFault, json_text
from api.sockets.kernel.session import SocketSession
from api.sockets.stt.listening import ListeningConversation, SocketListener, words_of
from models.stt.options import KeyTerms
from pipelines.audio.decode.stream import ChannelSplitter
from pipelines.stt.decoding import SessionOptions
from pipelines.stt.endpointing import SemanticTurns
from pipelines.stt.events import FailedUtterance, LiveEvent, LiveSpeechStarted, LiveTranscript
from pipelines.stt.formatting import separator_of

SILENCE = 10.0, "NET-0001: no audio and no message came for 10 seconds", close_codes.INTERNAL


class StreamMessage(SocketMessage):
    """A message of the client to `/v1/listen`. `KeepAlive` only restarts the timeout."""

    type: Literal["KeepAlive", "Finalize", "CloseStream", "Configure"]
    channel: int | None = None  # the channel to finalize; None for all
    keyterms: KeyTerms | None = None
    features: dict[str, bool] = {}


class StreamConversation(ListeningConversation):
    """Sends results of each utterance while it grows and when it has ended."""

    silence = SILENCE
    listeners: "list[StreamChannel]"

    def __init__(self, socket: SocketSession, services: Services) -> None:
        super().__init__(socket, services)
        self.query = options.StreamQuery.of_socket(socket.query)
        self.listeners = [StreamChannel(self, at) for at in range(self.query.heard_channels)]
        self._digest = hashlib.sha256()
        encoding = options.ENCODINGS.get(self.query.encoding, "linear")
        self._splitter = ChannelSplitter(len(self.listeners), encoding)

    def error(self, message: str) -> str:
        code = "NET-0001" if message in SILENCE else "DATA-0000"
        fields = {"variant": "SchemaError", "description": message, "message": message}
        return json_text({"type": "Error", "code": code, **fields})

    async def begin(self) -> None:
        options.check_recogniser(self.query.model, self.model)
        if self.query.encoding not in options.ENCODINGS:
            await self.expect_encoded(packets=self.query.encoding == options.PACKETS)
        for channel in self.listeners:
            await channel.start(self.query.to_options())

    async def handle(self, text: str) -> bool:
        message = StreamMessage.parse(text)
        if message.type == "Finalize":
            for number, channel in enumerate(self.listeners):
                if message.channel in (None, number):
                    channel.commit()
        elif message.type == "Configure":
            await self._configure(message)
        return message.type == "CloseStream"

    async def accept(self, data: bytes) -> bool:
        self._digest.update(data)
        rate = self.query.sample_rate
        if (encoding := options.ENCODINGS.get(self.query.encoding)) is None or rate is None:
            await self.accept_encoded(data)
        else:
            for channel, part in zip(self.listeners, self._splitter.split(data), strict=True):
                await channel.input.accept(part, encoding, rate)
        return not data  # older clients end the stream with an empty message

    async def summarise(self) -> None:
        fields = metadata(
            self.request_id,
            options.model_info(self.model),
            self._digest.hexdigest(),
            duration=round(self.listeners[0].input.received_s, 3),
            channels=len(self.listeners),
        )
        await self.socket.send(json_text({"type": "Metadata", **fields}))

    async def _configure(self, change: StreamMessage) -> None:
        answer: dict[str, Any] = {"type": "ConfigureSuccess", "request_id": self.request_id}
        names = {"numerals", "profanity_filter", "punctuate"} & change.features.keys()
        features = {name: change.features[name] for name in names}
        for channel in self.listeners:
            recognition = channel.options.recognition
            recognition = replace(recognition, form=replace(recognition.form, **features))
            if change.keyterms is not None:
                recognition = replace(recognition, keyterms=tuple(change.keyterms))
                answer["keyterms"] = change.keyterms
            await channel.change(replace(channel.options, recognition=recognition))
        await self.socket.send(json_text(answer))


class StreamChannel(SocketListener):
    """One channel of a stream, which sends its results."""

    def __init__(self, stream: StreamConversation, number: int) -> None:
        super().__init__(stream.socket, stream.speech, stream.listener_ended)
        self._stream = stream
        self._number = number
        self._speakers = SpeakerNumbers()
        self._replacements = Replacements(stream.query.replace)
        self._starts: list[float] = []  # starts of speech that has no final yet
        self._last_end_s = math.inf  # end of the last word; infinite after UtteranceEnd was sent

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
                if not event.cut:
                    del self._starts[:1]
                    await self.progressed()

    async def progressed(self) -> None:
        """Sends UtteranceEnd if the silence after the last word is long enough. The silence is
        measured in the audio, not by arrival times, up to the next speech (without its padding)."""
        wait_ms = self._stream.query.utterance_end_ms
        if wait_ms is None or self.live is None:
            return
        silent_to_s = self._starts[0] if self._starts else self.live.silent_to_s
        if silent_to_s - self._last_end_s >= wait_ms / 1000:
            last_end_s = self._last_end_s
            self._last_end_s = math.inf
            await self._send("UtteranceEnd", last_word_end=round(last_end_s, 3))

    async def _send(self, kind: str, **fields: Any) -> None:
        channel = [self._number, len(self._stream.listeners)]
        await self._socket.send(json_text({"type": kind, "channel": channel, **fields}))

    async def _results(self, transcript: LiveTranscript) -> None:
        query = self._stream.query
        model = self._stream.model
        separator = separator_of(transcript.language)
        kept = [*enumerate(words_of(transcript))]
        if self._replacements:
            kept = await asyncio.to_thread(self._replacements.of, words_of(transcript))
        words = [word for _, word in kept]
        speakers = transcript.speakers
        if transcript.final and words:
            self._last_end_s = words[-1].end
        language = transcript.language if query.language == options.MULTI else None
        alternative: dict[str, Any] = {
            "transcript": transcript.text,
            "confidence": round(transcript.confidence, 4),
            "words": words_json(
                words,
                [self._speakers.of(speakers[place]) for place, _ in kept] if speakers else (),
                punctuated=query.is_punctuated,
                language=language,
            ),
        }
        if self._replacements:
            alternative["transcript"] = separator.join(word.word for word in words)
        if language is not None:
            alternative["languages"] = [language]
        results: dict[str, Any] = {"alternatives": [alternative]}
        findings: dict[str, Any] = {}
        if transcript.final and query.search:
            results["search"] = await asyncio.to_thread(search_hits, words, query.search, separator)
        if transcript.final and query.detect_entities:
            findings["entities"] = entities_json(words, separator, transcript.language)
        ends = transcript.final and not transcript.cut
        is_forced = ends and transcript.sentence_id in self.committed
        fields = {
            "type": "Results",
            "channel_index": [self._number, len(self._stream.listeners)],
            "duration": round(transcript.duration_s, 3),
            "start": round(transcript.start_s, 3),
            "is_final": transcript.final,
            "speech_final": is_forced or (ends and query.endpointing != 0),
            "channel": results,
            "metadata": {
                "request_id": self._stream.request_id,
                "model_info": options.described(model),
                "model_uuid": options.uuid_of(model),
            },
            "from_finalize": is_forced,
            **findings,
        }
        await self._socket.send(json_text(fields))


UPDATE_MS = 300  # time between updates
# Silence that ends a turn which sounds unfinished. Deepgram's confidence grows with the silence, so
# its turns seldom last until the timeout.
LONGEST_WAIT_MS = 800


class TurnsMessage(SocketMessage):
    """A message of the client. `Configure` changes parameters for the audio that follows."""

    type: Literal["CloseStream", "ForceEndTurn", "Configure", "KeepAlive"]
    thresholds: dict[Literal["eager_eot_threshold", "eot_threshold", "eot_timeout_ms"], Any] = {}
    keyterm: list[str] | None = Field(default=None, alias="keyterms")
    language_hint: list[str] | None = Field(default=None, alias="language_hints")
    numerals: bool | None = None
    profanity_filter: bool | None = None

    @property
    def changes(self) -> dict[str, Any]:
        """Changed parameters, by their names in the query."""
        return self.model_dump(exclude={"type", "thresholds"}, exclude_none=True) | self.thresholds


class FluxConversation(ListeningConversation):
    """A stream of one channel, whose listener reports turns. Deepgram's clients keep a muted Flux
    stream open by pings, which the session does not see."""

    silence = 240.0, "NET-0001: no audio and no message came for 240 seconds", close_codes.INTERNAL

    def __init__(self, socket: SocketSession, services: Services) -> None:
        super().__init__(socket, services)
        self.query = options.FluxQuery.of_socket(socket.query)
        self.turns = FluxListener(self)
        self.listeners = [self.turns]
        self._sequence = 0

    def event(self, kind: str, **fields: Any) -> str:
        """Returns an event with the next sequence number."""
        ids = {"request_id": self.request_id, "sequence_id": self._sequence}
        self._sequence += 1
        return json_text({"type": kind, **ids, **fields})

    def error(self, message: str) -> str:
        code = "NET-0001" if message in self.silence else "INTERNAL_SERVER_ERROR"
        return self.event("Error", code=code, description=message)

    async def begin(self) -> None:
        options.check_recogniser(self.query.model, self.model)
        if self.query.encoding not in options.ENCODINGS:
            await self.expect_encoded(packets=self.query.encoding == options.PACKETS)
        await self.turns.start(_options_of(self.query))
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
        if (encoding := options.ENCODINGS.get(self.query.encoding)) is None:
            await self.accept_encoded(data)
        else:
            await self.turns.input.accept(data, encoding, self.query.sample_rate)
        return False

    async def _configured(self, change: TurnsMessage) -> str:
        try:
            query = self.query.changed(change.changes)
            changes_languages = change.language_hint is not None
            await self.turns.change(_options_of(query), changes_languages=changes_languages)
        except (ClientFault, *CODED) as error:
            text = str(error) if isinstance(error, ClientFault) else to_api_error(error).message
            code = "INVALID_CONFIGURE"
            fields = {"code": code, "error_code": code, "description": text}
            return self.event("ConfigureFailure", **fields)
        self.query = query
        return self.event(
            "ConfigureSuccess",
            thresholds=query.model_dump(
                include={"eager_eot_threshold", "eot_threshold", "eot_timeout_ms"}
            ),
            keyterms=query.keyterm,
            language_hints=query.language_hint,
            numerals=query.numerals,
        )


def _options_of(query: options.FluxQuery) -> SessionOptions:
    wait_ms = query.eot_timeout_ms
    if query.eot_threshold < 1:
        wait_ms = min(wait_ms, LONGEST_WAIT_MS)
    return SessionOptions(
        recognition=query.recognition(),
        interim_ms=UPDATE_MS,
        turns=SemanticTurns(wait_ms, query.eot_threshold),
    )


class FluxListener(TurnListener[FluxConversation]):
    """Sends the events of turns; their words have no times."""

    @property
    def least_completeness(self) -> float | None:
        return self._conversation.query.eager_eot_threshold

    async def warn(self, message: str) -> None:
        fields = {"code": "TRANSCRIPTION_FAILED", "description": message}
        await self._socket.send(self._conversation.event("Warning", **fields))

    async def send_event(self, event: TurnEvent, text: str, **fields: Any) -> None:
        query = self._conversation.query
        if query.is_multilingual:
            fields["languages"] = [self.language]
            fields["languages_hinted"] = query.language_hint
        confidence = round(self.confidence, 4)
        completeness = self.completeness
        trigger = fields.get("trigger")
        if trigger in ("model", "timeout"):
            waited_to_end = query.eot_timeout_ms <= LONGEST_WAIT_MS and trigger == "timeout"
            is_timeout = waited_to_end or query.eot_threshold == 1
            fields["trigger"] = "timeout" if is_timeout else "model"
            if not is_timeout:  # the silence has raised the confidence in the end of the turn
                completeness = max(completeness, query.eot_threshold)
        info = self._conversation.event(
            "TurnInfo",
            event=event,
            turn_index=self.index,
            audio_window_start=round(self.start_s or 0.0, 3),
            audio_window_end=round(self.processed_s, 3),
            transcript=text,
            words=[{"word": word, "confidence": confidence} for word in text.split()],
            end_of_turn_confidence=round(completeness, 4),
            **fields,
        )
        await self._socket.send(info)


routes: list[BaseRoute] = [
    *dialect_socket(
        "/v1/listen",
        "stt",
        StreamConversation,
        lambda query: options.StreamQuery.of_socket(query).recognition(),
        options.BEARER_OR_TOKEN,
    ),
    *dialect_socket(
        "/v2/listen",
        "stt",
        FluxConversation,
        lambda query: options.FluxQuery.of_socket(query).recognition(),
        options.BEARER_OR_TOKEN,
    ),
]

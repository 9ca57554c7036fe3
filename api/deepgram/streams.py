"""Deepgram's socket `/v1/listen`: a stream of one or two channels, and its results."""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

from api.deepgram.options import (
    BEARER_OR_TOKEN,
    ENCODINGS,
    MULTI,
    StreamQuery,
    check_recogniser,
    described,
    uuid_of,
)
from api.deepgram.recordings import SpeakerNumbers, metadata, shown_words
from api.dialects.requests import SocketMessage, dialect_socket
from api.http.bodies import KeyTerms
from api.http.errors import to_api_error
from api.services import Services
from api.sockets.kernel import close_codes
from api.sockets.kernel.conversation import json_text
from api.sockets.kernel.session import SocketSession
from api.sockets.stt.conversation import MIN_MS
from api.sockets.stt.listening import ListeningConversation, SocketListener, estimated_words
from pipelines.audio.decode.stream import ChannelSplitter
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
        channels = self.query.channels if self.query.multichannel else 1
        self.listeners = [StreamChannel(self, number) for number in range(channels)]
        self._digest = hashlib.sha256()
        self._splitter = ChannelSplitter(channels, ENCODINGS[self.query.encoding])

    def error(self, message: str) -> str:
        code = "NET-0001" if message in SILENCE else "DATA-0000"
        fields = {"variant": "SchemaError", "description": message, "message": message}
        return json_text({"type": "Error", "code": code, **fields})

    async def begin(self) -> None:
        check_recogniser(self.query.model, self.model)
        options = self.query.to_options(MIN_MS, USUAL_MS, INTERIM_MS)
        for one in self.listeners:
            await one.start(options, self.query.codes, labels=self.query.labels)

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
        encoding, rate = ENCODINGS[self.query.encoding], self.query.sample_rate
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
        known = {"numerals", "profanity_filter", "punctuate"} & change.features.keys()
        for one in self.listeners:
            options = one.options
            features = {name: change.features[name] for name in known}
            options = replace(options, form=replace(options.form, **features))
            if change.keyterms is not None:
                options = replace(options, keyterms=tuple(change.keyterms))
                answer["keyterms"] = change.keyterms
            await one.change(options)
        await self.socket.send(json_text(answer))


class StreamChannel(SocketListener):
    def __init__(self, stream: StreamConversation, number: int) -> None:
        super().__init__(stream.socket, stream.speech, stream.listener_ended)
        self._stream, self._number = stream, number
        self._speakers = SpeakerNumbers()
        self._last_end_s = math.inf  # of the last word, until UtteranceEnd was sent

    async def emit(self, event: LiveEvent) -> None:
        match event:
            case LiveSpeechStarted():
                self._last_end_s = math.inf
                if self._stream.query.vad_events:
                    await self._send("SpeechStarted", timestamp=round(event.at_s, 3))
            case LiveTranscript():
                await self._results(event)
            case FailedUtterance():
                await self._socket.send(self._stream.error(to_api_error(event.error).message))

    async def progressed(self) -> None:
        wait_ms = self._stream.query.utterance_end_ms
        if wait_ms is not None and self.heard_s - self._last_end_s >= wait_ms / 1000:
            last_end_s, self._last_end_s = self._last_end_s, math.inf
            await self._send("UtteranceEnd", last_word_end=round(last_end_s, 3))

    async def _send(self, kind: str, **fields: Any) -> None:
        place = [self._number, len(self._stream.listeners)]
        await self._socket.send(json_text({"type": kind, "channel": place, **fields}))

    async def _results(self, heard: LiveTranscript) -> None:
        query, model = self._stream.query, self._stream.model
        words: Sequence[Any] = heard.words
        if heard.text and not words:
            about = heard.start_s, heard.duration_s, heard.confidence
            words = estimated_words(heard.text, *about)
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


routes = dialect_socket(
    "/v1/listen",
    "stt",
    StreamConversation,
    lambda query: StreamQuery.of_socket(query).redaction(),
    BEARER_OR_TOKEN,
)

"""Cartesia's dialect, as a row of the contract suite."""

from tests.contract.dialect import Dialect, Opening, Recognition, Socket, Speech, frames, pieces
from tests.contract.fields import CARTESIA_LISTEN, CARTESIA_SPEECH, JSON_FAULTS, UNKNOWN
from tests.contract.messages import bearer, cartesia_body, cartesia_code, cartesia_fault, form

CARTESIA = Dialect(
    "Cartesia",
    lambda key: {"X-API-Key": key},
    code=cartesia_code,
    hint="x-api-key: <",
    other_keys=(bearer,),
    speech=tuple(
        Speech(
            path,
            lambda text, voice: {"json": cartesia_body(text, voice)},
            format=("json", "output_format", "encoding"),
            text="transcript",
            wrong=CARTESIA_SPEECH,
            usual={"language": None, "speed": "normal", "add_timestamps": False},
        )
        for path in ("/cartesia/tts/bytes", "/cartesia/tts/sse")
    ),
    recognition=(
        Recognition(
            "/cartesia/stt",
            lambda recording, options: form("file")(recording, {"model": "ink-2", **options}),
            usual={"timestamp_granularities[]": "word"},
            wrong=(
                ({"timestamp_granularities[]": "letter"}, "timestamp_granularities"),
                ({"model": "x" * 101}, "model"),
            ),
        ),
    ),
    sockets=(
        Socket(
            "/cartesia/stt/websocket",
            "stt",
            cartesia_fault,
            query=CARTESIA_LISTEN,
            key_queries=("apiKey", "api_key", "access_token"),
            hear=pieces,
            end=("close",),
            is_end=lambda event: event["type"] == "done",
            unknown=(
                Opening({"language": "tlh"}, fault="language", ends=True),
                Opening({"model": UNKNOWN}, fault="model: ", ends=True),
            ),
            wrong=({"encoding": "pcm_f16le"}, {"sample_rate": "5"}, {"keyterm": "x" * 101}),
            usual={"language": "en"},
            broken={
                "{not json": "finalize or close, as text or JSON",
                "sing": "finalize or close, as text or JSON",
            },
        ),
        Socket(
            "/cartesia/stt/turns/websocket",
            "stt",
            cartesia_fault,
            query=CARTESIA_LISTEN,
            key_queries=("apiKey", "api_key", "access_token"),
            hear=pieces,
            end=frames({"type": "close"}),
            unknown=(Opening({"model": UNKNOWN}, fault="model: ", ends=True),),
            wrong=({"turn_end_threshold": "0.9"}, {"turn_end_timeout_ms": "5"}),
            usual={
                "turn_start_threshold": "0.8",
                "turn_eager_end_threshold": "0.4",
                "turn_end_threshold": "0.2",
                "turn_end_timeout_ms": "5600",
            },
            broken={
                **JSON_FAULTS,
                '{"type": "sing"}': "type",
                '{"type": "config", "turn": {"end_threshold": 2}}': "turn_end_threshold: ",
            },
        ),
        Socket(
            "/cartesia/tts/websocket",
            "tts",
            key_queries=("apiKey", "api_key", "access_token"),
            fault=cartesia_fault,
            say=lambda text, voice: frames({**cartesia_body(text, voice), "context_id": "c"}),
            is_end=lambda event: event["type"] == "done",
            unknown=(Opening(frames=frames({**cartesia_body("A.", UNKNOWN), "context_id": "u"})),),
            broken={
                **JSON_FAULTS,
                '{"transcript": "a", "transcript": "b"}': "same key twice",
                b"\x00": "binary",
            },
        ),
    ),
)

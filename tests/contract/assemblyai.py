"""AssemblyAI's dialect, as the contract suite tests it."""

from tests.contract.dialect import Dialect, Opening, Socket, Work, frames, pieces
from tests.contract.fields import ASSEMBLYAI_LISTEN, JSON_FAULTS, UNKNOWN
from tests.contract.messages import assemblyai_fault, bearer

ASSEMBLYAI = Dialect(
    "AssemblyAI",
    lambda key: {"Authorization": key},
    code=lambda body: body["error_code"],
    hint="Authorization: <",
    other_keys=(bearer,),
    fault=lambda body: str(body["error"]),
    work=(
        Work("/v2/upload", lambda recording: {"content": recording, "params": {}}, entries=()),
        Work(
            "/v2/transcript",
            lambda _: {"json": {"audio_url": "https://example.com/a.mp3"}},
            entries=(),
        ),
    ),
    sockets=(
        Socket(
            "/v3/ws",
            "stt",
            assemblyai_fault,
            query={"sample_rate": "16000"},
            hear=pieces,
            end=frames({"type": "Terminate"}),
            is_end=lambda event: event["type"] == "Termination",
            unknown=(
                Opening({"speech_model": UNKNOWN}, fault="speech_model: ", ends=True),
                Opening({"language_code": "tlh"}, fault="language", ends=True),
            ),
            wrong=ASSEMBLYAI_LISTEN,
            usual={
                "encoding": "pcm_s16le",
                "filter_profanity": "false",
                "format_turns": "false",
                "language_detection": "false",
                "redact_pii": "false",
                "speaker_labels": "false",
            },
            broken={**JSON_FAULTS, "{}": "type", '{"type": "Sing"}': "type"},
        ),
    ),
)

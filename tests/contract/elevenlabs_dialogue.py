"""The row of ElevenLabs' socket for dialogues."""

from tests.contract.dialect import Frame, Opening, Socket, frames
from tests.contract.fields import JSON_FAULTS, UNKNOWN
from tests.contract.messages import elevenlabs_fault

DIALOGUE_BROKEN: dict[Frame, str] = {
    **JSON_FAULTS,
    '{"inputs": 5}': "inputs: ",
    '{"voices": 5}': "voices: ",
    '{"inputs": [{"text": "Hello."}], "voices": ["a"]}': "inputs",
    '{"inputs": [{"text": "Hello.", "voice_id": "a"}]}': "voices: ",
    b"audio": "binary",
}

DIALOGUE_SOCKET = Socket(
    "/v1/text-to-dialogue/multi-stream-input",
    "tts",
    elevenlabs_fault,
    query={"output_format": "pcm_16000"},
    say=lambda text, voice: frames(
        {"voices": [voice], "context_id": "a"},
        {
            "inputs": [{"text": text, "voice_id": voice}],
            "context_id": "a",
            "flush": True,
        },
        {"context_id": "a", "close_context": True},
    ),
    is_end=lambda event: bool(event.get("is_final")),
    flushes_sentences=True,
    unknown=(Opening(frames=frames({"voices": [UNKNOWN]}), fault="voice_not_found"),),
    wrong=({"sync_alignment": "maybe"},),
    broken=DIALOGUE_BROKEN,
    takes_first_key=True,
)

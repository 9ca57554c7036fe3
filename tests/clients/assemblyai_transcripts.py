"""AssemblyAI's own client for recordings. Arguments: URL, key, a recording, its address on the web.

Run by the interpreter of .venv-clients; prints what it read as one line of JSON.
"""

import asyncio
import json
import sys
from typing import Any

import assemblyai as aai
from assemblyai import types


def validate(kind: Any) -> None:
    """Validates the last answer against a type of the client, which has to convert no value."""
    answer = aai.Client.get_default().last_response
    assert answer is not None
    check_same(answer.json(), json.loads(kind.parse_raw(answer.text).json()))


def check_same(sent: Any, parsed: Any) -> None:
    if isinstance(parsed, dict):
        for name, value in parsed.items():
            check_same(sent.get(name), value)
    elif isinstance(parsed, list):
        for item, other in zip(sent, parsed, strict=True):
            check_same(item, other)
    else:
        assert sent == parsed, (sent, parsed)


def listed(transcriber: aai.Transcriber) -> list[str]:
    """All ids, page by page."""
    ids: list[str] = []
    parameters = types.ListTranscriptParameters(limit=2)
    while True:
        page = transcriber.list_transcripts(parameters)
        validate(types.ListTranscriptResponse)
        ids += [item.id for item in page.transcripts]
        parameters.before_id = page.page_details.before_id_of_prev_url
        if parameters.before_id is None:
            return ids


def refusal(transcriber: aai.Transcriber, url: str, **options: Any) -> str:
    try:
        transcriber.submit(url, config=aai.TranscriptionConfig(**options))
    except aai.TranscriptError as error:
        return str(error)
    return ""


def see(url: str, key: str, path: str, web_url: str) -> dict[str, Any]:
    aai.settings.base_url = url
    aai.settings.api_key = key
    aai.settings.polling_interval = 0.2
    transcriber = aai.Transcriber()
    config = aai.TranscriptionConfig(speaker_labels=True, keyterms_prompt=["Antiphon"])
    config.set_redact_pii(policies=[types.PIIRedactionPolicy.person_name])
    whole = transcriber.transcribe(path, config=config)
    validate(types.TranscriptResponse)
    results: dict[str, Any] = {
        "text": whole.text,
        "status": whole.status,
        "speakers": [utterance.speaker for utterance in whole.utterances or ()],
        "echoed": [whole.config.speaker_labels, whole.config.keyterms_prompt],
        "srt": whole.export_subtitles_srt(chars_per_caption=12),
        "vtt": whole.export_subtitles_vtt(),
        "sentences": [sentence.text for sentence in whole.get_sentences()],
    }
    validate(types.SentencesResponse)
    results["paragraphs"] = [paragraph.text for paragraph in whole.get_paragraphs()]
    validate(types.ParagraphsResponse)
    results["matches"] = [[match.text, match.count] for match in whole.word_search(["fox", "dog"])]
    validate(types.WordSearchMatchResponse)
    submitted = transcriber.submit(web_url, config=aai.TranscriptionConfig(language_detection=True))
    validate(types.TranscriptResponse)
    polled = submitted.wait_for_completion()
    validate(types.TranscriptResponse)
    results["of the web"] = [submitted.id == polled.id, polled.text, polled.language_code]
    results["not there"] = transcriber.transcribe(f"{web_url}/missing").error
    by_loop = asyncio.run(aai.AsyncTranscriber().transcribe(path))
    results["in a loop"] = by_loop.text
    ids = [by_loop.id, polled.id, whole.id]
    results["listed"] = [one for one in listed(transcriber) if one in ids] == ids
    deleted = aai.Transcript.delete_by_id(str(whole.id))
    validate(types.TranscriptResponse)
    results["deleted"] = [deleted.text, aai.Transcript.get_by_id(str(whole.id)).text]
    group, failures = transcriber.transcribe_group([path] * 3, return_failures=True)
    results["group"] = [[item.text for item in group], len(failures)]
    results["refused"] = refusal(transcriber, web_url, auto_chapters=True)
    results["http"] = refusal(transcriber, "http://example.com/a.mp3")
    return results


sys.stdout.write(json.dumps(see(*sys.argv[1:5])) + "\n")

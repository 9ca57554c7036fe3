"""Transcripts as Office Open XML documents (ECMA-376), written by `zipfile`."""

import io
from html import escape
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

from configs.load import load_yaml
from pipelines.stt.file import FileTranscript
from pipelines.stt.subtitles import clock_time
from pipelines.text.markup import NOT_XML

MEDIA_TYPE = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
_MEMBERS = load_yaml(dict[str, str], str(Path(__file__).with_name("docx.yaml")))


def to_docx(transcript: FileTranscript) -> bytes:
    """Writes a timed paragraph for each turn of a speaker, else for each segment; blocking."""
    if transcript.utterances is None:
        lines = [(part.start, part.text) for part in transcript.segments]
    else:
        lines = [(part.start, f"{part.speaker}: {part.text}") for part in transcript.utterances]
    paragraphs = "".join(
        f'<w:p><w:r><w:t xml:space="preserve">[{clock_time(int(start), ".")[:8]}] '
        f"{escape(NOT_XML.sub('', text))}</w:t></w:r></w:p>"
        for start, text in lines
    )
    target = io.BytesIO()
    with ZipFile(target, "w", ZIP_DEFLATED) as archive:
        for name, content in _MEMBERS.items():
            archive.writestr(name, content.replace("{paragraphs}", paragraphs))
    return target.getvalue()

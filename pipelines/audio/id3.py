"""Tags before MP3, ADTS and, by mistake, other formats (ID3v2.4.0, "Main Structure")."""

_HEAD = 10  # bytes


def id3_length(data: bytes) -> int:
    """Length in bytes of the tag that `data` begins with."""
    if not data.startswith(b"ID3"):
        return 0
    size = 0
    for byte in data[6:_HEAD]:
        size = size << 7 | byte & 0x7F
    return _HEAD + size

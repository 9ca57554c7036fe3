"""Voice packs that are sent with requests: their format, and an engine's cache of them."""

import hashlib
import io
import threading
import time
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from models.errors import PackMissing, WeightsCorrupt
from models.tts.base import PackRef

STYLE_SHAPE = (510, 256)  # a row for each number of symbols
MOST_TAPS = 8192
MOST_BYTES = 2**20
LARGEST = 10.0  # magnitude of a style value or a tap; stock voices stay below 3.2
KEPT_PACKS = 32  # each half a megabyte
KEPT_S = 600.0  # time after its last use, so that the pack of a deleted voice expires

Pack = TypeVar("Pack")  # a pack as an engine decodes it


@dataclass(frozen=True, slots=True)
class VoicePack:
    """The style and the filter of one voice."""

    style: NDArray[np.float32]  # [510, 256]
    filter: NDArray[np.float32] | None = None  # taps [n] at the engine's rate, centred; None: none
    british: bool = False  # whether English is spoken with British pronunciation


def write_pack(pack: VoicePack) -> bytes:
    """Serialises a pack deterministically."""
    taps = np.zeros(0, np.float32) if pack.filter is None else pack.filter
    target = io.BytesIO()
    np.savez(target, style=pack.style, filter=taps, british=np.array(pack.british))
    return target.getvalue()


@contextmanager
def open_pack(data: bytes, kind: str) -> Iterator[Any]:
    """Opens the arrays of a pack by name; `kind` is the array that identifies the kind of pack.
    Raises WeightsCorrupt, also for errors inside the `with` block."""
    try:
        size = len(data)
        if size <= MOST_BYTES:
            with zipfile.ZipFile(io.BytesIO(data)) as packed:  # imported packs are untrusted
                size = sum(entry.file_size for entry in packed.infolist())
        if size > MOST_BYTES:
            raise WeightsCorrupt("the voice pack is too large")
        with np.load(io.BytesIO(data), allow_pickle=False) as parts:
            if kind not in parts:
                raise WeightsCorrupt("the voice pack was made for another kind of engine")
            yield parts
    except WeightsCorrupt:
        raise
    except Exception as error:  # NumPy, zip, zlib or the tokenizer; MemoryError
        raise WeightsCorrupt("the voice pack cannot be read") from error


def read_pack(data: bytes) -> VoicePack:
    """Deserialises a pack. Raises WeightsCorrupt."""
    with open_pack(data, "style") as parts:
        style, taps, british = (parts[name] for name in ("style", "filter", "british"))
    for part in (style, taps):
        if part.dtype != np.float32 or not (np.abs(part) <= LARGEST).all():
            raise WeightsCorrupt("the voice pack does not hold numbers")
    if style.shape != STYLE_SHAPE or taps.ndim != 1 or len(taps) > MOST_TAPS:
        raise WeightsCorrupt(f"the voice pack is not float32 {STYLE_SHAPE} with a filter")
    return VoicePack(style, taps if len(taps) else None, bool(british))


def pack_digest(data: bytes) -> str:
    """Digest of a pack, as in PackRef and the table of voices."""
    return hashlib.sha256(data).hexdigest()


@dataclass(eq=False, repr=False)
class VoiceCache(Generic[Pack]):
    """A cache of the packs used last, by digest; thread-safe."""

    _read: Callable[[bytes], Pack]  # decodes the bytes of a pack; raises WeightsCorrupt
    _most: int = KEPT_PACKS
    _clock: Callable[[], float] = time.monotonic
    _packs: OrderedDict[str, tuple[Pack, float]] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, reference: PackRef) -> Pack:
        """Returns the referenced pack and caches it. Raises PackMissing or WeightsCorrupt."""
        now = self._clock()
        with self._lock:
            while self._packs and now - next(iter(self._packs.values()))[1] > KEPT_S:
                self._packs.popitem(last=False)
            cached = self._packs.get(reference.digest)
        if cached is not None:
            pack = cached[0]
        elif reference.data is None:
            raise PackMissing(f"the voice pack {reference.digest[:12]} is not stored")
        elif pack_digest(reference.data) != reference.digest:
            raise WeightsCorrupt("the voice pack is not the one that was named")
        else:
            pack = self._read(reference.data)
        with self._lock:
            self._packs[reference.digest] = (pack, now)
            self._packs.move_to_end(reference.digest)
            while len(self._packs) > self._most:
                self._packs.popitem(last=False)
        return pack

    def forget(self, digest: str) -> None:
        """Drops the pack of a deleted voice."""
        with self._lock:
            self._packs.pop(digest, None)

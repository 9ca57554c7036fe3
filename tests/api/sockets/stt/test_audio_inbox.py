"""The queue of audio and commands of a live session."""

import numpy as np

from api.sockets.kernel.audio_input import AudioInbox
from tests.pipelines.stt.listening_doubles import loud


def test_audio_inbox_keeps_only_the_last_of_consecutive_language_changes() -> None:
    inbox = AudioInbox(limit_s=1)
    inbox.put(loud(0.1))
    for language in ("de", "en", "fr"):
        inbox.put((language,))
    inbox.put(loud(0.1))
    inbox.put(())
    assert [type(one) for one in inbox._items] == [np.ndarray, tuple, np.ndarray, tuple]
    assert inbox._items[1] == ("fr",)


def test_audio_inbox_keeps_a_commit_before_the_audio_is_cleared() -> None:
    inbox = AudioInbox(limit_s=1)
    for command in ("commit", "clear", "clear", "commit"):
        inbox.put(command)
    assert list(inbox._items) == ["commit", "clear", "commit"]

"""Judges by marks and words whether the speaker of a text has finished."""

from configs.schema.languages import language_words

UNMARKED_WORDS = 4  # shorter answers often have no mark
CLAUSE_WORDS = 3


def is_unfinished(text: str, language: str) -> bool:
    """Whether a text of the recogniser looks unfinished.

    False in languages in which the recogniser does not mark the end of every sentence.
    """
    table = language_words(language)
    words = [word.strip(".,;:?!…-") for word in text.lower().replace("’", "'").split()]
    words = [word for word in words if word]
    if not table.unending or not words:
        return False
    if text.endswith(("...", "…", "-", ",")) or words[-1] in table.unending:
        return True
    if not text.endswith((".", "?", "!")) and len(words) >= UNMARKED_WORDS:
        return True
    is_clause = words[0] in table.subordinators and "," not in text and not text.endswith("?")
    return is_clause and len(words) >= CLAUSE_WORDS

"""Whether a text looks as if its speaker goes on, by its marks and words."""

from configs.schema.languages import language_words

UNMARKED_WORDS = 4  # shorter answers often have no mark
CLAUSE_WORDS = 3


def is_unfinished(text: str, language: str) -> bool:
    """Whether more is to come after a text of the recogniser. False in languages in which it does
    not write a mark at the end of every sentence."""
    known = language_words(language)
    words = [word.strip(".,;:?!…-") for word in text.lower().replace("’", "'").split()]
    words = [word for word in words if word]
    if not known.unending or not words:
        return False
    if text.endswith(("...", "…", "-", ",")) or words[-1] in known.unending:
        return True
    if not text.endswith((".", "?", "!")) and len(words) >= UNMARKED_WORDS:
        return True
    is_clause = words[0] in known.subordinators and "," not in text and not text.endswith("?")
    return is_clause and len(words) >= CLAUSE_WORDS

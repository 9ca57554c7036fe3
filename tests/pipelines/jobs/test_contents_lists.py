"""Tables of contents in plain text, and what only looks like one."""

from tests.pipelines.jobs.test_documents import read


def test_entries_with_pages_below_contents_begin_no_chapters() -> None:
    pages = "I. THE SEA     7\n\nII. THE SHIP,\n  AND ITS CREW    23\n\nIII. THE STORM ... 41"
    book = read(f"PREFACE\n\nA.\n\nCONTENTS\n\n{pages}\n\nCHAPTER  1\n\nB.\n\nCHAPTER  2\n\nC.")
    titles = [(chapter.title, chapter.is_extra) for chapter in book.chapters]
    expected = [
        ("PREFACE", False),
        ("CONTENTS", True),
        ("CHAPTER  1", False),
        ("CHAPTER  2", False),
    ]
    assert titles == expected


def test_a_chapter_below_footnotes_is_no_entry_of_a_list() -> None:
    sea = "The sea rose, and the ship sank. " * 100
    notes = f"I\n\nA word.[A]\n\nFOOTNOTES:\n\n[A] A note.\n\nII\n\n{sea}\n\nIII\n\nB.\n\n"
    book = read(f"{notes}PART ONE\n\n{sea}\n\nPART ONE\n\nC.")
    chapters = [chapter for chapter in book.chapters if not chapter.is_extra]
    assert [chapter.title for chapter in chapters] == ["I", "II", "III", "PART ONE", "PART ONE"]
    repeated = read(f"NOTES\n\nPART ONE\n\n{sea}\n\nPART ONE\n\nC.")
    assert [chapter.title for chapter in repeated.chapters[-2:]] == ["PART ONE", "PART ONE"]

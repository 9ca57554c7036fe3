"""Names that are pronounced and spelt correctly, with the Python client.

ANTIPHON_KEY=sk_… .venv/bin/python docs/examples/names.py names.mp3
"""

import os
import sys
from pathlib import Path

from antiphon import Antiphon
from antiphon.types import Pronunciation

TEXT = "Dr. Quixbury restarted Nginx at 2:30pm, and paid $12 for it."
ENTRIES: list[Pronunciation] = [
    {"grapheme": "Nginx", "alias": "engine X"},
    {"grapheme": "Quixbury", "phoneme": "ˈkwɪksbəri", "alias": "Quicksberry"},
]

if len(sys.argv) != 2:
    sys.exit("usage: ANTIPHON_KEY=sk_… python names.py FILE.mp3")
file = Path(sys.argv[1])
url = os.environ.get("ANTIPHON_URL", os.environ.get("SERVICE"))
with Antiphon(url, os.environ["ANTIPHON_KEY"]) as client:
    ids = {entry["name"]: entry["id"] for entry in client.dictionaries()["data"]}
    # A new version, if a dictionary has this name.
    names = client.save_dictionary("Names", ENTRIES, dictionary_id=ids.get("Names"))["id"]

    explained = client.explain(TEXT, pronunciations=[names])
    for sentence in explained["sentences"]:
        print("spoken:", sentence["text"])
    print(f"{explained['characters']} characters, {explained['price']:.6f} USD")

    file.write_bytes(client.speak(TEXT, pronunciations=[names]))
    print("without:", client.transcribe(file)["text"])
    terms = [entry["grapheme"] for entry in ENTRIES]
    print("heard:", client.transcribe(file, keyterms=terms, numerals=True)["text"])

"""Make the pictures and sounds of docs/media from a running service: `make pictures`.

ANTIPHON_KEY=sk_… make pictures [ANTIPHON_URL=http://…] [ARGS="sounds pictures"]

Pictures show the console in Chromium, in light mode, 1280 pixels wide. Sounds come from the public
API. docs/voices.md gets the list of voices, between its two marks.
"""

import os
import re
import shutil
import sys
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, TimeoutError, sync_playwright

from antiphon import Antiphon

MEDIA = Path(__file__).resolve().parents[1] / "docs/media"
VOICES = MEDIA.parent / "voices.md"
LIST = re.compile(r"(?<=<!-- list: begin -->\n).*(?=<!-- list: end -->)", re.DOTALL)
FLAGS = ["--no-sandbox", "--use-fake-ui-for-media-stream", "--use-fake-device-for-media-stream"]
SIZE: Any = {"width": 1280, "height": 800}
PATIENCE_MS = 180_000
MOST_BYTES = 2_000_000  # of all pictures and sounds

ENGLISH = "Good morning! It is 8:30, and 21 °C outside. Your train leaves at 8:45, from platform 4."
# File name: voice (None: the service chooses by the language), text.
SOUNDS: dict[str, tuple[str | None, str]] = {
    "english-fast": ("Heart Fast", ENGLISH),
    "english": ("Heart", ENGLISH),
    "arabic": (None, "صباح الخير! يغادر قطارك بعد عشر دقائق من الرصيف الرابع."),
    "chinese": (None, "早上好！现在是八点半，你的火车十分钟后从四号站台出发。"),
    "dutch": (None, "Goedemorgen! Het is half negen. Je trein vertrekt over tien minuten."),
    "french": (None, "Bonjour ! Il est 8 h 30. Votre train part dans dix minutes, quai numéro 4."),
    "german": (None, "Guten Morgen! Es ist 8:30 Uhr. Ihr Zug fährt in zehn Minuten, von Gleis 4."),
    "hindi": (None, "सुप्रभात! अभी साढ़े आठ बजे हैं। आपकी ट्रेन दस मिनट में चलेगी।"),
    "italian": (
        None,
        "Buongiorno! Sono le 8:30. Il suo treno parte fra dieci minuti, dal binario 4.",
    ),
    "japanese": (None, "おはようございます。八時半です。電車は十分後に四番線から出ます。"),
    "polish": (None, "Dzień dobry! Jest 8:30. Pociąg odjeżdża za dziesięć minut z peronu 4."),
    "portuguese": (None, "Bom dia! São 8h30. O seu trem sai em dez minutos, da plataforma 4."),
    "spanish": (None, "¡Buenos días! Son las 8:30. Su tren sale en diez minutos, del andén 4."),
    "tamil": (None, "காலை வணக்கம்! உங்கள் ரயில் பத்து நிமிடங்களில் 4-ஆம் நடைமேடையிலிருந்து புறப்படும்."),
}


def make_sounds(service: Antiphon) -> None:
    folder = MEDIA / "sounds"
    folder.mkdir(parents=True, exist_ok=True)
    for name, (voice, text) in SOUNDS.items():
        (folder / f"{name}.mp3").write_bytes(service.speak(text, voice=voice))
    VOICES.write_text(LIST.sub(lambda _: voice_list(service), VOICES.read_text("utf-8")), "utf-8")


def voice_list(service: Antiphon) -> str:
    """Return the rows of docs/voices.md: each language with its voices and its sound."""
    speakers: dict[tuple[str, str], list[str]] = defaultdict(list)
    borrowed: Counter[tuple[str, str]] = Counter()
    for voice in service.default_voices()["data"]:
        labels = voice["labels"]
        language = (labels["language_name"], labels["language"])
        if voice["name"].endswith("(espeak)"):
            continue  # synthesisers of last resort, which the page describes
        speakers[language].append(voice["name"])
        borrowed[language] += not voice["is_native"]
    rows = []
    for (name, code), names in sorted(speakers.items()):
        sounds = [one for one in SOUNDS if one.partition("-")[0] == name.lower()]
        links = " ".join(f"[{SOUNDS[s][0] or name}](media/sounds/{s}.mp3)" for s in sounds) or "–"
        note = f"; {borrowed[name, code]} of another language" if borrowed[name, code] else ""
        rows.append(f"| {name} (`{code}`) | {len(names)}{note} | {', '.join(names)} | {links} |\n")
    return "| language | voices | names | sound |\n|---|---|---|---|\n" + "".join(rows)


def enter(page: Page, service: Antiphon) -> None:
    """Sign in with the API key, unless the console needs no credential."""
    page.goto(f"{service.url}/console")
    page.wait_for_selector(".enter, .frame h1")
    if page.locator(".frame h1").count():
        return
    page.get_by_role("tab", name="Use an API key").click()
    page.get_by_label("API key", exact=True).fill(service.key)
    page.get_by_role("button", name="Enter").click()
    page.wait_for_selector(".frame h1")


def speak(page: Page, service: Antiphon) -> None:
    text = page.get_by_role("textbox", name="Text", exact=True)
    text.fill(ENGLISH)
    page.get_by_role("button", name="Create a file").click()
    page.wait_for_selector(".history-row")


def listen(page: Page, service: Antiphon) -> None:
    text = f"Thank you for calling. {ENGLISH}"
    recording = service.speak(text, voice="Heart", response_format="wav")
    file: Any = {"name": "call.wav", "mimeType": "audio/wav", "buffer": recording}
    page.locator("main input[type=file]").first.set_input_files(file)
    page.get_by_role("button", name="SRT").first.wait_for()


def chat(page: Page, service: Antiphon) -> None:
    page.get_by_role("textbox", name="Message").fill("Write a haiku about the sea.")
    page.get_by_role("button", name="Send").click()
    page.get_by_text(re.compile(r"\d tokens")).first.wait_for()


def show(_page: Page, _service: Antiphon) -> None:
    """The page as it opens."""


PICTURES: dict[str, Callable[[Page, Antiphon], None]] = {
    "speak": speak,
    "listen": listen,
    "talk": show,
    "chat": chat,
    "voices": show,
}


def make_pictures(service: Antiphon) -> None:
    program = shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=FLAGS)
        context = browser.new_context(viewport=SIZE, color_scheme="light", locale="en-US")
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        enter(page, service)
        for name, act in PICTURES.items():
            page.evaluate("(name) => { location.hash = `#/${name}`; }", name)
            page.get_by_role("heading", level=1, name=name.capitalize(), exact=True).wait_for()
            page.wait_for_load_state("networkidle")
            try:
                act(page, service)
            except TimeoutError:
                print(f"NOTE: console-{name}.png is the old one: {name} did not answer")
                continue
            page.evaluate("() => { document.activeElement?.blur(); scrollTo(0, 0); }")
            page.screenshot(path=MEDIA / f"console-{name}.png")
        browser.close()


def main(*arguments: str) -> None:
    url = next((one for one in arguments if "://" in one), "http://127.0.0.1:8000")
    service = Antiphon(url, os.environ["ANTIPHON_KEY"])
    kinds = [one for one in arguments if "://" not in one] or ["sounds", "pictures"]
    MEDIA.mkdir(exist_ok=True)
    if "sounds" in kinds:
        make_sounds(service)
    if "pictures" in kinds:
        make_pictures(service)
    files = [path for path in MEDIA.rglob("*") if path.is_file()]
    total = sum(path.stat().st_size for path in files)
    print(f"{len(files)} files, {total / 1000:.0f} kB")
    if total > MOST_BYTES:
        sys.exit(f"docs/media may have {MOST_BYTES / 1000:.0f} kB")


if __name__ == "__main__":
    main(*sys.argv[1:])

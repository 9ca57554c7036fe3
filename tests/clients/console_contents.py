"""Fills every page of the console with long content, in Chromium by Playwright: python … URL KEY
TOKEN.

Prints JSON: for each page, at two widths, what is wider than its window, what is covered although
it was scrolled into view, and boxes that do not show that they scroll. Answers that the service
would have to compute for minutes, such as a transcript of an hour, come from here.
"""

import json
import shutil
import sys
from collections.abc import Callable
from functools import partial
from typing import Any
from urllib.parse import urlparse

from playwright.sync_api import Page, Route, WebSocketRoute, sync_playwright

from tests.clients.console_appearance import DESK, FLAGS, PHONE, enter, enter_as_operator, show

GERMAN = "Donaudampfschifffahrtsgesellschaftskapitänsmützenaufbewahrungsordnung"
ARABIC = "تسجيل اجتماع مجلس الإدارة السنوي مع جميع الفروع في المنطقة"
ENGLISH = "The quick brown fox jumps over the lazy dog while nobody looks at the clock."
TEXTS = (ENGLISH, f"Die {GERMAN} liegt auf dem Tisch.", ARABIC)
LONG = " ".join(TEXTS * 8)
UNBROKEN = f"aufnahme_{GERMAN}_2026-11-30_" * 2 + ".wav"
NAMES = (UNBROKEN, f"{ARABIC}.mp3", f"Protokoll der {GERMAN} vom Montag.m4a", "short.ogg")
TIME = "2026-11-30T10:00:00Z"
LANGUAGES = (("de", "German"), ("ar", "Arabic"), ("en", "English"))


def words(count: int) -> list[dict[str, Any]]:
    texts = LONG.split()
    return [
        {
            "word": texts[at % len(texts)],
            "start": at * 0.4,
            "end": at * 0.4 + 0.3,
            "speaker": "ABCD"[at // 40 % 4],
        }
        for at in range(count)
    ]


def transcript(count: int) -> dict[str, Any]:
    spoken = words(count)
    turns = [{"speaker": "ABCD"[at % 4], "text": LONG} for at in range(count // 40)]
    return {
        "text": LONG,
        "language": "de",
        "confidence": 0.93,
        "duration": 0.4 * count,
        "words": spoken,
        "utterances": turns,
    }


def job(at: int) -> dict[str, Any]:
    status = ("processing", "completed", "failed", "uploading")[at % 4]
    is_over = status in ("completed", "failed")
    return {
        "id": f"00000000-0000-4000-8000-{at:012}",
        "type": "transcription",
        "name": NAMES[at % 4],
        "status": status,
        "progress": 1 if status == "completed" else 0.4,
        "duration": 36_000.5,
        "created_at": TIME,
        "estimated_completion": TIME,
        "finished_at": TIME if is_over else None,
        "error": "failed" if status == "failed" else None,
        "message": LONG if status == "failed" else None,
        "cost": 1.234567,
        "credit_held": 0 if is_over else 4.5,
        "received": [1],
        "chapters": [],
        "voices": [],
    }


def voice(at: int) -> dict[str, Any]:
    language, name = LANGUAGES[at % 3]
    return {
        "voice_id": f"voice-{at}",
        "name": (GERMAN, ARABIC, "Heart")[at % 3],
        "description": LONG,
        "model": "a-model-with-a-rather-long-name",
        "categories": ["professional"],
        "labels": {
            "language": language,
            "language_name": name,
            "gender": "female",
            "accent": "",
            "is_native": True,
        },
    }


def own_voice(at: int) -> dict[str, Any]:
    return {
        "id": f"own-{at}",
        "name": (GERMAN, ARABIC, "Ann")[at % 3],
        "description": LONG,
        "status": ("processing", "ready", "failed")[at % 3],
        "reason": LONG,
        "language": "de",
        "gender": "female",
        "owner": None,
        "similarity": 0.9,
        "progress": 0.5,
        "preview_at": TIME,
        "estimated_completion": TIME,
    }


def chat(at: int) -> dict[str, Any]:
    return {"chat_id": f"chat-{at}", "title": TEXTS[at % 3], "updated_at": TIME}


def key(at: int) -> dict[str, Any]:
    return {
        "id": at,
        "name": NAMES[at % 4],
        "prefix": "sk_12345678",
        "scopes": ["tts", "stt", "chat", "keys", "webhooks", "voices"],
        "created_at": TIME,
        "last_used_at": TIME,
        "expires_at": TIME,
    }


def hook(at: int) -> dict[str, Any]:
    url = f"https://{GERMAN.lower()}.example.com/{'hook/' * 12}{at}"
    events = ["tts.completed", "stt.completed", "job.completed", "voice.ready"]
    return {"id": f"hook-{at}", "url": url, "status": "active", "events": events}


def entry(at: int) -> dict[str, Any]:
    return {
        "action": "webhook.updated",
        "created_at": TIME,
        "actor": "key:00000000-0000-4000-8000-000000000000",
        "target": UNBROKEN,
        "details": {"name": LONG, "url": hook(at)["url"]},
        "digest": "0" * 64,
    }


ANSWER = f"# {GERMAN}\n\n{LONG}\n\n```\n{'a long line of code ' * 20}\n```\n\n- {ARABIC}\n" * 4
DELTA = {"choices": [{"delta": {"content": ANSWER}, "index": 0}], "model": "a-model"}
PAGED = {"pagination": {"pages": 1}}
ANSWERS: dict[str, Any] = {
    "/stt": transcript(700),
    "/jobs": {"data": [job(at) for at in range(20)]},
    f"/jobs/{job(1)['id']}": job(1),
    f"/jobs/{job(1)['id']}/transcript": transcript(700),
    "/default-voices": {"data": [voice(at) for at in range(90)]},
    "/voices": {"data": [own_voice(at) for at in range(12)], **PAGED},
    "/chats": {"data": [chat(at) for at in range(30)], **PAGED},
    "/developer/api": {"keys": [key(at) for at in range(20)]},
    "/webhooks": {"webhooks": [hook(at) for at in range(8)]},
    "/audit": {"data": [entry(at) for at in range(30)], **PAGED},
    "/v1/chat/completions": f"data: {json.dumps(DELTA)}\n\ndata: [DONE]\n\n",
}


def reply(route: Route) -> None:
    answer = ANSWERS.get(urlparse(route.request.url).path)
    if answer is None or route.request.resource_type not in ("fetch", "xhr"):
        route.fallback()
    elif isinstance(answer, str):
        route.fulfill(body=answer, content_type="text/event-stream")
    else:
        route.fulfill(json=answer)


def talk_long(socket: WebSocketRoute) -> None:
    """Thirty turns of a conversation, and a call of a tool."""

    def send(kind: str, **fields: Any) -> None:
        socket.send(json.dumps({"type": kind, **fields}))

    send("session.created")
    for at in range(15):
        said = TEXTS[at % 3]
        heard = "conversation.item.input_audio_transcription.completed"
        send(heard, item_id=f"user-{at}", transcript=said)
        done = "response.output_audio_transcript.done"
        send(done, item_id=f"agent-{at}", transcript=f"{said} {LONG}"[:400])
    call = "response.function_call_arguments.done"
    send(call, call_id="1", name=GERMAN, arguments=json.dumps({"city": ARABIC}))


def listen_long(socket: WebSocketRoute) -> None:
    def send(**message: Any) -> None:
        socket.send(json.dumps(message))

    send(connection_established={"credit_balance": 5})
    send(type="connected")
    for at in range(30):
        text = TEXTS[at % 3]
        fields = {"sentence_id": at, "timestamp": 3.0 * at, "duration": 3.0, "words": []}
        send(type="transcription", text=text, committed=text, tentative="", is_final=True, **fields)


def transcribe(page: Page) -> None:
    files = [{"name": name, "mimeType": "audio/wav", "buffer": b"none"} for name in NAMES]
    page.locator(".listen input[type=file]").first.set_input_files(files)
    page.locator(".queue-row.chosen").filter(has_text="short.ogg").wait_for()


def listen(page: Page) -> None:
    page.locator("#listen-live").click()
    page.locator(".live-text p").nth(29).wait_for()


def talk(page: Page) -> None:
    page.locator("#talk-start").click()
    page.locator(".turn.tool").wait_for()


def answer(page: Page) -> None:
    page.locator("[name=message]").fill(LONG)
    page.locator("#chat-send").click()
    page.locator(".turn.assistant pre").nth(3).wait_for()


def correct(page: Page) -> None:
    page.locator("main [name=text]:visible").fill(LONG)


def speak(page: Page) -> None:
    page.locator("main [name=text]:visible").fill(f"{ENGLISH} {GERMAN} " * 6)
    page.locator("#make-file").click()
    page.locator(".history-row").wait_for()
    page.locator(".word.now").wait_for()
    page.evaluate("for (const one of document.querySelectorAll('audio')) one.pause()")


def open_result(page: Page) -> None:
    page.get_by_role("button", name=f"Show the result of {NAMES[1]}").first.click()
    page.locator(".speech-turn").first.wait_for()


def wait_for(selector: str, count: int, page: Page) -> None:
    page.locator(f"main {selector}").nth(count - 1).wait_for()


FILLED: dict[str, Callable[[Page], None]] = {
    "speak": speak,
    "listen": transcribe,
    "listen/microphone": listen,
    "talk": talk,
    "chat": answer,
    "chat/correct": correct,
    "jobs": open_result,
    "voices": partial(wait_for, ".voice-own", 12),
    "account/overview": partial(wait_for, ".plan", 1),
    "account/keys": partial(wait_for, "tbody tr", 20),
    "account/webhooks": partial(wait_for, ".hook", 8),
    "account/audit": partial(wait_for, "tbody tr", 30),
}
PAGES = (
    *FILLED,
    *("speak/pronunciations", "account/settings", "operator/workspaces", "operator/models"),
)
REACH = """async (part) => {
    const root = document.querySelector(part);
    const isPhone = matchMedia('(max-width: 640px)').matches; // where rows are blocks
    const frame = () => new Promise((go) => requestAnimationFrame(() => setTimeout(go)));
    const name = (one) => {
        const text = (one.innerText || one.id || '').trim().slice(0, 40);
        return `${one.tagName} ${one.getAttribute('class') || ''} ${text}`;
    };
    const seen = (one) => one.checkVisibility({visibilityProperty: true, opacityProperty: true})
        && !one.closest(`.offscreen, option${isPhone ? ', thead' : ''}`);
    const lost = [];
    // Whether it is seen at its ends and in its middle, though the page was scrolled for it.
    const check = (one, {left, right, top, bottom}, what) => {
        const isLong = bottom - top > innerHeight / 2;
        const from = isLong ? Math.max(top, 0) : top;
        const to = isLong ? Math.min(bottom, innerHeight) : bottom;
        const middle = (from + to) / 2;
        for (const y of isLong ? [middle] : [from + 2, middle, to - 2]) {
            const over = document.elementFromPoint((left + right) / 2, y);
            if (over && (one.contains(over) || over.contains(one))) continue;
            return lost.push(`${what}: ${name(one)} / ${over ? name(over) : 'outside'}`);
        }
    };
    const all = [root, ...root.querySelectorAll('*')].filter(seen);
    if (document.documentElement.scrollWidth > innerWidth) lost.push('wider than the window');
    const sideways = `pre, .tabs, .markup, .track${isPhone ? '' : ', .table'}`;
    const shortened = 'textarea, input, select, .chat-open span, .history-text p, .cut-short';
    for (const one of all) {
        const {left, right, width} = one.getBoundingClientRect();
        const isOut = width && (right > innerWidth + 1 || left < -1);
        if (isOut && !one.parentElement.closest(sideways)) lost.push(`outside: ${name(one)}`);
        const isCut = getComputedStyle(one).overflowX !== 'visible'
            && one.clientWidth && one.scrollWidth > one.clientWidth + 1;
        if (isCut && !one.matches(`${sideways}, ${shortened}`)) lost.push(`cut: ${name(one)}`);
    }
    const boxes = all.filter((one) => one.scrollHeight > one.clientHeight + 1
        && /auto|scroll/.test(getComputedStyle(one).overflowY) && !one.matches('textarea'));
    const signs = (one) => getComputedStyle(one).backgroundAttachment.includes('local');
    for (const box of boxes) {
        if (box !== root && !signs(box)) lost.push(`does not show that it scrolls: ${name(box)}`);
    }
    // The lowest line of text that is neither in a box that scrolls by itself nor left out.
    const lastLine = (box) => {
        const walker = document.createTreeWalker(box, NodeFilter.SHOW_TEXT);
        const range = document.createRange();
        let last = {bottom: -Infinity};
        for (let text; (text = walker.nextNode()); ) {
            const parent = text.parentElement;
            const isOther = boxes.some((one) => one !== box && box.contains(one)
                && one.contains(parent)) || parent.matches('.voice-about');
            if (!text.data.trim() || !seen(parent) || isOther) continue;
            range.selectNodeContents(text);
            const line = [...range.getClientRects()].at(-1);
            if (line && line.bottom > last.bottom) last = {parent, line, bottom: line.bottom};
        }
        return last;
    };
    const whole = root.matches('dialog') ? [] : [document.scrollingElement];
    for (const box of new Set([...whole, ...boxes])) {
        box.scrollIntoView({block: 'end'});
        box.scrollTop = box.scrollHeight;
        await frame();
        const {parent, line} = lastLine(whole.includes(box) ? root : box);
        if (parent) check(parent, line, 'last line');
    }
    const controls = 'a[href], button, input, select, textarea, summary, [tabindex="0"]';
    const others = '[tabindex="-1"], .voice-card > input, [type=range]';
    for (const one of all.filter((one) => one.matches(controls) && !one.matches(others))) {
        one.focus();
        if (document.activeElement === one) check(one, one.getClientRects()[0], 'focused');
    }
    scrollTo(0, 0);
    return [...new Set(lost)].slice(0, 12);
}"""


def main(url: str, secret: str, token: str) -> None:
    lost: dict[str, list[str]] = {}
    program = shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=FLAGS)
        for width, height in (PHONE, DESK):
            page = browser.new_page(viewport={"width": width, "height": height})
            page.route("**/*", reply)
            page.route_web_socket("**/openai/v1/realtime*", talk_long)
            page.route_web_socket("**/ws/stt*", listen_long)
            enter_as_operator(page, url, token)
            page.get_by_role("button", name="Log in to a workspace").click()
            enter(page, secret)
            for path in PAGES:
                show(page, path)
                if path in FILLED:
                    FILLED[path](page)
                found = page.evaluate(REACH, "main")
                code = page.locator(".panel-head .button")
                if width == PHONE[0] and code.count():
                    code.click()
                    found += page.evaluate(REACH, "dialog")
                    page.keyboard.press("Escape")
                if found:
                    lost[f"{path} {width}"] = found
                if len(sys.argv) > 4:
                    page.screenshot(path=f"{sys.argv[4]}/{path.replace('/', '-')}-{width}.png")
            page.close()
        browser.close()
    sys.stdout.write(json.dumps(lost) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:4])

"""Speech, transcripts, chats and corrections on the console, in Chromium over engines without
weights."""

import re
from pathlib import Path

import httpx
import pytest

from tests.api.local_server import Server, patient_client
from tests.clients.browser import Page
from tests.clients.console_page import (
    enter,
    fill,
    go,
    hurry,
    press,
    record_requests,
    run,
    unfold,
    wait_until,
)
from tests.clients.test_console_browser import page
from tests.clients.test_console_voices import ADD

__all__ = ["page"]  # a fixture

KEEP_FRAMES = """(() => {
    const send = WebSocket.prototype.send;
    window.frames_sent = [];
    WebSocket.prototype.send = function (text) {
        window.frames_sent.push(JSON.parse(text));
        return send.call(this, text);
    };
})"""
KEEP_FILES = """(() => {
    const create = URL.createObjectURL;
    window.files = [];
    URL.createObjectURL = (blob) => {
        window.files.push(blob);
        return create.call(URL, blob);
    };
})"""
# Keeps the bodies of chats in `asked`. The answers of a server never end, until they are stopped.
ENDLESS_ANSWERS = """(() => {
    const fetched = window.fetch;
    window.asked = [];
    window.fetch = async (path, options) => {
        if (path !== '/v1/chat/completions') return fetched(path, options);
        window.asked.push(JSON.parse(options.body));
        const answer = await fetched(path, options);
        const isEnd = (event) => /\\[DONE\\]|"type": "done"/.test(event);
        const withoutEnd = new TransformStream({
            transform: (text, out) => out.enqueue(
                text.split('\\n\\n').filter((event) => !isEnd(event)).join('\\n\\n')),
            flush: () => new Promise((_, stop) => {
                options.signal.onabort = () => stop(options.signal.reason);
            }),
        });
        const body = answer.body.pipeThrough(new TextDecoderStream()).pipeThrough(withoutEnd);
        return new Response(body.pipeThrough(new TextEncoderStream()));
    };
})"""
# Enter that confirms a composition, such as of Japanese: in most browsers, and in Safari.
COMPOSITIONS = [{"isComposing": True, "keyCode": 229}, {"isComposing": False, "keyCode": 229}]
ENTER = """((box, event) => document.querySelector(box).dispatchEvent(
    new KeyboardEvent('keydown', {key: 'Enter', bubbles: true, cancelable: true, ...event})))"""
POSTED = "requests.filter((one) => one.startsWith('POST')).length"


@pytest.fixture
def signed_in(page: Page, tone_server: Server) -> Page:
    enter(page, tone_server.key)
    return page


def choose_voice(page: Page, name: str) -> None:
    starts = f"one.querySelector('strong').innerText.startsWith('{name}')"
    found = f"all('.voice-card').find((one) => {starts})"
    wait_until(page, found)
    run(page, f"({found}.querySelector('input').click(), true)")


@pytest.mark.slow
def test_the_first_sentence_is_spoken_by_one_click(signed_in: Page) -> None:
    press(signed_in, "Speak live")
    wait_until(signed_in, "at('.word.now')")  # marked while it sounds
    wait_until(signed_in, "said().includes('first sound after')")


def test_live_speech_takes_the_voice_the_speed_and_the_pitch(signed_in: Page) -> None:
    choose_voice(signed_in, "Ton")
    unfold(signed_in)
    fill(signed_in, Text="Guten Morgen!", Speed="1.25", Pitch="0.9")
    signed_in.call(KEEP_FRAMES)
    press(signed_in, "Speak live")
    wait_until(signed_in, "said().includes('of speech')")
    context = run(signed_in, "frames_sent[0].create_context")
    assert [context["speaking_rate"], context["pitch"]] == [1.25, -1.82]  # semitones
    wait_until(signed_in, "at('.history-row')?.innerText.includes('Ton')")


@pytest.mark.slow
def test_without_a_voice_the_service_chooses_one_for_live_speech(signed_in: Page) -> None:
    record_requests(signed_in)
    fill(signed_in, Text="Guten Morgen, wie geht es Ihnen heute?")
    press(signed_in, "Speak live")
    wait_until(signed_in, "said().includes('of speech')")
    assert "POST /tts-stream" in run(signed_in, "requests")


def test_a_long_text_is_neither_cut_nor_sent(signed_in: Page) -> None:
    record_requests(signed_in)
    text = "word " * 1300
    fill(signed_in, Text=text)
    assert run(signed_in, "labelled('Text').value.length") == len(text)
    assert "6,500 characters" in run(signed_in, "at('.over').textContent")
    assert run(signed_in, "at('.over a').hash") == "#/jobs/speech"
    press(signed_in, "Create a file")
    assert "a file can have at most 5,000" in wait_until(signed_in, "failed()")
    assert run(signed_in, POSTED) == 0
    run(signed_in, "(at('.failed a').click(), true)")
    press(signed_in, "Create the audio")
    wait_until(signed_in, "failed() === 'Choose a file first.'")


@pytest.mark.parametrize(
    ("status", "offered"),
    [
        *((0, True), (400, False)),
        *(
            pytest.param(*one, marks=pytest.mark.slow)
            for one in ((402, True), (403, False), (409, True), (429, True), (503, True))
        ),
    ],
)
def test_a_repetition_is_offered_only_where_it_may_help(
    signed_in: Page, status: int, offered: bool
) -> None:
    signed_in.call(
        """((status) => {
            const said = JSON.stringify({error: 'some_code', message: 'Not now.'});
            window.fetch = async () => new Response(said, {status}); // 0 is no status: it throws
        })""",
        status,
    )
    fill(signed_in, Text="Once.")
    press(signed_in, "Create a file")
    wait_until(signed_in, "failed()")
    assert run(signed_in, "Boolean(button('Try again'))") is offered


def test_languages_are_sorted_and_models_are_the_services(
    signed_in: Page,
) -> None:
    texts = "[...at('main select[name={}]').options].map((one) => one.text)"
    for path in ("listen", "voices"):
        go(signed_in, path)
        if path == "listen":
            unfold(signed_in)
        wait_until(signed_in, "at('main select[name=language]')?.options.length > 4")
        named = run(signed_in, texts.format("language"))[1:]
        assert named == sorted(named)
    go(signed_in, "talk")
    unfold(signed_in)
    wait_until(signed_in, "at('main select[name=model]')?.options.length > 1")
    default, *models = run(signed_in, texts.format("model"))
    assert default == f"Default: {models[0]}" and "gpt" not in "".join(models)
    go(signed_in, "chat")  # where there is no choice, the page says which model answers
    wait_until(signed_in, f"at('#chat-model-about').textContent.startsWith('{models[0]} answers')")
    assert run(signed_in, "all('select[name=model]').length") == 0


def test_lists_that_the_service_could_not_give_appear_later(
    page: Page, tone_server: Server
) -> None:
    hurry(page)
    page.call(
        """(() => {
            const fetched = window.fetch;
            const refused = new Set();
            const body = JSON.stringify({error: 'overloaded', message: 'Not now.'});
            window.fetch = async (path, options) => {
                const isList = /voices|languages|models|pronunciations/.test(path);
                if (!isList || refused.has(path)) return fetched(path, options);
                refused.add(path);
                return new Response(body, {status: 503});
            };
        })"""
    )
    enter(page, tone_server.key)
    wait_until(page, "all('.voice-card').length > 1 && !failed()")
    options = "[...at('main select[name={}]')?.options || []].length"
    go(page, "listen")
    unfold(page)
    wait_until(page, f"{options.format('language')} > 4")
    go(page, "talk")
    unfold(page)
    wait_until(page, f"{options.format('voice')} > 1 && {options.format('model')} > 1")
    go(page, "chat")
    wait_until(page, "at('#chat-model-about').textContent.includes('answers')")
    go(page, "voices")
    wait_until(page, f"{options.format('language')} > 4")


@pytest.mark.slow
def test_previews_and_the_history_are_played_again_without_a_request(signed_in: Page) -> None:
    record_requests(signed_in)
    press(signed_in, "Preview Bass")
    press(signed_in, "Stop the preview of Bass")
    press(signed_in, "Preview Bass")
    wait_until(signed_in, "button('Stop the preview of Bass')")
    fill(signed_in, Text="Once.")
    press(signed_in, "Create a file")
    press(signed_in, "Play “Once.”")
    wait_until(signed_in, "button('Pause')")
    assert run(signed_in, POSTED) == 2  # the preview, and the file


def test_voices_are_found_by_words_and_kept_as_favourites(signed_in: Page) -> None:
    wait_until(signed_in, "all('.voice-card').length === 5")
    fill(signed_in, Search_voices="german female")
    assert run(signed_in, "all('.voice-card strong').map((one) => one.innerText)") == ["Ton Fast"]
    press(signed_in, "Ton is a favourite")
    press(signed_in, "Clear filters")
    run(signed_in, "(labelled('Favourites').click(), true)")
    assert run(signed_in, "all('.voice-card').length") == 1


def test_a_file_is_transcribed_with_words_speakers_and_subtitles(signed_in: Page) -> None:
    go(signed_in, "listen")
    unfold(signed_in)
    signed_in.call(ADD.replace(".voices", ".listen"), 4)
    wait_until(signed_in, "all('.word').length > 1")
    assert not run(signed_in, "at('.speaker-name')")
    run(signed_in, "(labelled('Label speakers').click(), true)")
    press(signed_in, "Repeat the transcription of 0.wav with the options now chosen")
    wait_until(signed_in, "at('.speaker-name')")
    fill(signed_in, Speaker_A="Ann")
    assert run(signed_in, "at('.speaker-name').innerText").startswith("Ann")
    signed_in.call(KEEP_FILES)
    for name in ("SRT", "VTT", "JSON", "TXT"):
        press(signed_in, f"Export as {name}")
    texts = run(signed_in, "Promise.all(files.map((one) => one.text()))")
    assert texts[0].startswith("1\n00:00:00,") and "Ann: the quick" in texts[0]
    assert texts[1].startswith("WEBVTT\n\n00:00:00.") and "<v Ann>" in texts[1]
    assert '"speaker": "Ann"' in texts[2]
    assert texts[3].startswith("Ann: the quick brown fox")


@pytest.mark.slow
def test_an_upload_resumes_after_an_outage_and_is_charged_once(
    signed_in: Page, tone_server: Server
) -> None:
    headers = {"Authorization": f"Bearer {tone_server.key}"}

    def seconds() -> float:
        usage = httpx.get(f"{tone_server.url}/billing/usage", headers=headers).json()
        return sum(float(one["units"]) for one in usage["usage"] if one["kind"] == "stt")

    def network(**limits: float | bool) -> None:
        open_network = {"offline": False, "latency": 0, "downloadThroughput": -1}
        signed_in.command(
            "Network.emulateNetworkConditions",
            **{**open_network, "uploadThroughput": -1, **limits},
        )

    before = seconds()
    go(signed_in, "listen")
    signed_in.command("Network.enable")
    network(uploadThroughput=30_000)
    signed_in.call(ADD.replace(".voices", ".listen"), 6)
    wait_until(signed_in, "/[1-9] %/.test(at('.queue-row').innerText)")
    network(offline=True)
    wait_until(signed_in, "at('.queue-row').innerText.includes('resumes when the network is back')")
    network()
    wait_until(signed_in, "button('Show the transcript of 0.wav')")
    assert seconds() - before == pytest.approx(6)


def test_a_wrong_file_fails_in_its_own_row_and_others_go_on(signed_in: Page) -> None:
    go(signed_in, "listen")
    signed_in.call(
        """(() => {
            const files = new DataTransfer();
            files.items.add(new File(['no audio'], 'notes.mp3', {type: 'audio/mpeg'}));
            const input = document.querySelector('.listen input[type=file]');
            input.files = files.files;
            input.dispatchEvent(new Event('change'));
        })"""
    )
    signed_in.call(ADD.replace(".voices", ".listen"), 3)
    wait_until(signed_in, "at('.queue-row .failed')")
    assert run(signed_in, "Boolean(button('Try again'))") is False  # it stays unreadable
    wait_until(signed_in, "button('Show the transcript of 0.wav')")


def test_a_file_cancelled_before_its_length_is_known_is_not_sent(signed_in: Page) -> None:
    go(signed_in, "listen")
    signed_in.call(
        """(() => {
            window.sent = 0;
            XMLHttpRequest.prototype.send = () => { window.sent += 1; };
            window.Audio = function () {
                window.tell_length = () => this.onerror();
            };
        })"""
    )
    signed_in.call(ADD.replace(".voices", ".listen"), 1)
    press(signed_in, "Cancel 0.wav")
    run(signed_in, "(tell_length(), new Promise((end) => setTimeout(end, 200)))")
    assert run(signed_in, "at('.queue-row').innerText.includes('ancelled')")
    assert run(signed_in, "sent") == 0
    press(signed_in, "Remove 0.wav")


def test_what_a_model_writes_cannot_become_markup(signed_in: Page) -> None:
    go(signed_in, "chat")
    fill(signed_in, Message="<img src=x> **bold** [x](javascript:alert(1)) `code`")
    press(signed_in, "Send")
    wait_until(signed_in, "said().includes('tokens')")
    answer = "at('.turn.assistant')"
    assert run(signed_in, f"{answer}.querySelectorAll('img, a').length") == 0
    assert run(signed_in, f"{answer}.querySelector('.markdown strong').innerText") == "bold"
    assert "<img src=x>" in run(signed_in, f"{answer}.innerText")


def test_a_saved_chat_is_continued_after_a_reload_and_deleted(signed_in: Page) -> None:
    go(signed_in, "chat")
    fill(signed_in, Message="Remember the heron")
    press(signed_in, "Send")
    wait_until(signed_in, "said().includes('tokens')")
    signed_in.command("Page.reload")
    wait_until(signed_in, "at('.frame')")
    heron = "all('.chat-open').find((one) => one.innerText.startsWith('Remember the heron'))"
    wait_until(signed_in, heron)
    run(signed_in, f"({heron}.click(), true)")
    wait_until(signed_in, "at('.turn.user')?.innerText.includes('heron')")
    press(signed_in, "New chat")
    assert run(signed_in, "all('.turn').length") == 0
    press(signed_in, "Delete “Remember the heron”")
    press(signed_in, "Delete")
    wait_until(signed_in, f"!{heron}")


def test_the_chat_that_was_chosen_last_is_shown_whatever_answers_first(signed_in: Page) -> None:
    signed_in.call(
        """(() => {
            const chats = ['slow', 'fast'].map((id) => (
                {chat_id: id, title: id, created_at: new Date(), updated_at: new Date()}
            ));
            const fetched = window.fetch;
            const waits = {};
            window.let_pass = (id) => waits[id]();
            window.fetch = async (path, options = {}) => {
                const id = /^\\/chats\\/(\\w+)/.exec(path)?.[1];
                if (path.startsWith('/chats?')) {
                    return Response.json({data: chats, pagination: {pages: 1}});
                }
                if (!id) return fetched(path, options);
                if (id === 'slow') await new Promise((resolve) => { waits.slow = resolve; });
                const messages = [{role: 'user', content: `${id} text`}];
                return Response.json({messages, pagination: {pages: 1}});
            };
        })"""
    )
    go(signed_in, "chat")
    wait_until(signed_in, "all('.chat-open').length === 2")
    slow, fast = ("all('.chat-open')[0].click()", "all('.chat-open')[1].click()")
    run(signed_in, f"({slow}, {fast}, true)")
    wait_until(signed_in, "at('.turn.user')?.innerText.includes('fast text')")
    run(signed_in, "(let_pass('slow'), new Promise((end) => setTimeout(end, 300)))")
    assert run(signed_in, "all('.turn').map((one) => one.innerText).join()").count("text") == 1
    assert run(signed_in, "at('.turn.user').innerText.includes('fast text')")
    assert run(signed_in, "at('.chat-open[aria-current]').dataset.id") == "fast"


@pytest.mark.parametrize("saves", [True, False])
def test_a_stopped_answer_belongs_to_its_chat(
    signed_in: Page, tone_server: Server, saves: bool
) -> None:
    go(signed_in, "chat")
    unfold(signed_in)
    if not saves:
        run(signed_in, "(labelled('Save the chat').click(), true)")
    signed_in.call(ENDLESS_ANSWERS)
    for message in ("Count to three", "Go on"):
        fill(signed_in, Message=message)
        press(signed_in, "Send")
        wait_until(signed_in, f"all('.turn.assistant').at(-1)?.innerText.includes('{message}')")
        press(signed_in, "Stop")
        wait_until(signed_in, "button('Send') && said().startsWith('Stopped')")
    said = [
        {"role": role, "content": text}
        for text in ("Count to three", "Go on")
        for role in ("user", "assistant")
    ]
    chat_id = run(signed_in, "asked[1].chat_id")
    assert (chat_id is not None) == saves
    assert run(signed_in, "asked[1].messages") == (said[2:3] if saves else said[:3])
    if saves:
        headers = {"Authorization": f"Bearer {tone_server.key}"}
        with patient_client(tone_server.url, headers) as client:
            stored = client.get(f"/chats/{chat_id}").json()["messages"]
        assert [{name: one[name] for name in ("role", "content")} for one in stored[:3]] == said[:3]
    fill(signed_in, Message="Forget this")
    press(signed_in, "Send")
    wait_until(signed_in, "button('Stop')")
    press(signed_in, "New chat")
    wait_until(signed_in, "button('Send')")
    fill(signed_in, Message="Begin")
    press(signed_in, "Send")
    wait_until(signed_in, "asked.length === 4")
    assert run(signed_in, "asked[3].messages") == [{"role": "user", "content": "Begin"}]


@pytest.mark.parametrize("composition", COMPOSITIONS)
def test_enter_that_confirms_a_composition_commands_nothing(
    signed_in: Page, composition: dict[str, bool | int]
) -> None:
    record_requests(signed_in)
    text = "textarea[name=text]"
    line = ".script-line input:last-child"
    press(signed_in, "Several speakers")
    lines = run(signed_in, "all('.script-line').length")
    signed_in.call(ENTER, line, composition)
    assert run(signed_in, "all('.script-line').length") == lines
    signed_in.call(ENTER, line, {})
    assert run(signed_in, "all('.script-line').length") == lines + 1
    press(signed_in, "Text")
    signed_in.call(ENTER, text, {"ctrlKey": True, **composition})
    assert run(signed_in, "said()") == ""
    go(signed_in, "chat")
    fill(signed_in, Message="日本")
    signed_in.call(ENTER, "textarea[name=message]", composition)
    assert run(signed_in, "all('.turn').length") == 0
    assert run(signed_in, POSTED) == 0
    signed_in.call(ENTER, "textarea[name=message]", {})
    wait_until(signed_in, "said().includes('tokens')")


def test_code_scrolls_in_its_bubble_and_a_deleted_chat_continues(
    signed_in: Page, tone_server: Server
) -> None:
    go(signed_in, "chat")
    fill(signed_in, Message="```\n" + "a long line of code " * 20 + "\n```")
    press(signed_in, "Send")
    wait_until(signed_in, "said().includes('tokens')")
    box = "at('{}').getBoundingClientRect()"
    bubble, code, copy = (box.format(f".turn.assistant {part}") for part in ("", "pre", ".button"))
    assert run(signed_in, "at('.turn.assistant pre').scrollWidth") > run(signed_in, f"{code}.width")
    assert run(signed_in, f"{code}.right < {bubble}.right && {copy}.right < {code}.right") is True

    headers = {"Authorization": f"Bearer {tone_server.key}"}
    chats = f"{tone_server.url}/chats"
    newest = httpx.get(chats, headers=headers).json()["data"][0]["chat_id"]
    httpx.delete(f"{chats}/{newest}", headers=headers).raise_for_status()
    fill(signed_in, Message="Still there?")
    press(signed_in, "Send")
    assert "deleted elsewhere" in wait_until(signed_in, "failed()")
    press(signed_in, "Send")
    wait_until(signed_in, "said().includes('tokens')")


def test_tools_that_are_not_json_are_refused_before_they_are_sent(signed_in: Page) -> None:
    go(signed_in, "chat")
    record_requests(signed_in)
    unfold(signed_in)
    fill(signed_in, **{"Tools (JSON)": "[{", "Message": "Hello"})
    press(signed_in, "Send")
    assert "this is not JSON" in wait_until(signed_in, "failed()")
    assert run(signed_in, POSTED) == 0
    assert run(signed_in, "labelled('Message').value") == "Hello"


def test_each_change_of_a_correction_is_taken_or_left(signed_in: Page) -> None:
    go(signed_in, "chat/correct")
    signed_in.call(
        """(() => {
            window.copied = '';
            navigator.clipboard.writeText = async (text) => { window.copied = text; };
        })"""
    )
    fill(signed_in, Text_to_correct="i cant beleive it")
    press(signed_in, "Correct")  # the tab has this name too
    run(signed_in, "(at('#correct-go').click(), true)")
    press(signed_in, "spelling: beleive becomes believe")
    press(signed_in, "Copy the result")
    assert wait_until(signed_in, "copied").startswith("I can't beleive it")
    fill(signed_in, Text_to_correct="Ich weiss nicht, wo der Bahnhof ist.")
    run(signed_in, "(at('#correct-go').click(), true)")
    wait_until(
        signed_in,
        "document.body.innerText.includes('parts that are not English were not corrected')",
    )


def test_the_dictionary_of_corrections_outlives_a_reload(signed_in: Page) -> None:
    go(signed_in, "chat/correct")
    run(signed_in, "all('details').map((one) => one.open = true)")
    press(signed_in, "Add a term")
    fill(signed_in, Term="acme", Becomes="ACME")
    signed_in.command("Page.reload")
    wait_until(signed_in, "labelled('Term')?.value === 'acme'")
    assert run(signed_in, "labelled('Becomes').value") == "ACME"
    run(signed_in, "(at('.pair button').click(), true)")
    assert run(signed_in, "localStorage.getItem('corrections')") == "[]"


def test_code_is_filled_with_the_request_and_never_with_the_key(
    signed_in: Page, tone_server: Server
) -> None:
    fill(signed_in, Text="It's here.")
    choose_voice(signed_in, "Ton")
    press(signed_in, "Code")
    code = wait_until(signed_in, "top().querySelectorAll('pre').length && top().textContent")
    assert "It'\\''s here." in code and "$ANTIPHON_KEY" in code and "create_context" in code
    assert tone_server.key not in run(signed_in, "document.documentElement.innerHTML")


def test_every_text_of_the_page_is_in_the_catalogue() -> None:
    folder = Path(__file__).parents[2] / "api" / "console" / "static" / "js"
    catalogue = "".join(path.read_text() for path in (folder / "strings" / "en").glob("*.js"))
    known = set(re.findall(r'^ {2}"([^"]+)":', catalogue, re.MULTILINE))
    used = {
        key
        for path in folder.rglob("*.js")
        if "strings" not in path.parts
        for key in re.findall(r'\bt\("([^"]+)"', path.read_text())
    }
    assert used - known == set()

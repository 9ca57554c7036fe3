// The result of a job: a transcript, or a file with chapters.
import { ask, call } from "../../api.js";
import { player } from "../../audio/player.js";
import { clock, t } from "../../i18n.js";
import { on } from "../../session.js";
import { act, button, card, download, fileName, filePicker, h, status } from "../../ui.js";
import { RECORDINGS } from "../listen/queue.js";
import { transcriptCard } from "../listen/transcript.js";

const baseOf = (name) => name.replace(/\.\w+$/, "");

export function jobResult() {
  const transcript = transcriptCard();
  const playing = player();
  const chapters = h("ol.chapters");
  const save = h("a.button.small", { download: "" }, t("action.download"));
  const title = h("h3");
  const speech = card(t("jobs.speech_result"), title, playing, h("div.actions", save), chapters);
  const attach = filePicker(t("jobs.play_with"), RECORDINGS, ([file]) => draw(file), { icon: "play", kind: "small" });
  const place = status();
  const docx = button("DOCX", act(place, async () => {
    const answer = await call(`/jobs/${made.id}/transcript?format=docx`);
    download(await answer.blob(), fileName(baseOf(shown.name), "docx"));
  }), { icon: "download", kind: "small", label: t("listen.export", { format: "DOCX" }) });
  let shown = null;
  const made = h("div.column", { hidden: true, tabIndex: -1 }, transcript, speech);
  transcript.actions.append(docx, ...attach);
  transcript.actions.after(place);

  const draw = (blob) => {
    transcript.show({ ...shown, blob });
    attach[0].hidden = Boolean(blob);
  };

  // `blob` is the recording, if this page has it.
  made.show = async (id, blob) => {
    made.clear();
    const job = await ask(`/jobs/${id}`);
    const isSpeech = job.type === "speech";
    if (isSpeech) {
      const { pathname, search } = new URL(job.audio_url);
      title.textContent = job.name;
      playing.open(pathname + search);
      save.href = pathname + search;
      save.download = fileName(baseOf(job.name), job.output_format);
      chapters.replaceChildren(...job.chapters.map((chapter) => h("li", button(`${chapter.title} · ${clock(chapter.start)}`, () => {
        playing.seek(chapter.start);
        playing.play();
      }, { icon: "play", kind: "small quiet" }))));
    } else {
      shown = { name: job.name, result: await ask(`/jobs/${id}/transcript?format=json`) };
      draw(blob);
    }
    made.id = id;
    transcript.hidden = isSpeech;
    speech.hidden = !isSpeech;
    made.hidden = false;
    made.focus();
  };
  made.clear = () => {
    made.id = null;
    playing.clear();
    transcript.clear();
    place.clear();
    made.hidden = true;
  };
  on("leave", made.clear);
  return made;
}

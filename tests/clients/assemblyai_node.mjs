// AssemblyAI's own client for Node. Arguments: URL, key, a recording, its address on the web.
import { AssemblyAI } from "assemblyai";

const [baseUrl, apiKey, path, webUrl] = process.argv.slice(2);
const client = new AssemblyAI({ apiKey, baseUrl });
const polling = { pollingInterval: 200 };

const whole = await client.transcripts.transcribe({ audio: path, speaker_labels: true }, polling);
const ofTheWeb = await client.transcripts.transcribe({ audio: webUrl }, polling);
const page = await client.transcripts.list({ limit: 1 });
const older = await client.transcripts.list(new URL(page.page_details.prev_url).search.replace("?", "/v2/transcript?"));
const paragraphs = await client.transcripts.paragraphs(whole.id);
const sentences = await client.transcripts.sentences(whole.id);
const search = await client.transcripts.wordSearch(whole.id, ["fox", "dog"]);
const vtt = await client.transcripts.subtitles(whole.id, "vtt", 12);
// Fields that the client's types require, which are null without a value.
const required =
  "id audio_url status acoustic_model language_model auto_highlights redact_pii summarization webhook_auth language_confidence language_codes language_confidence_threshold speech_model";
const refused = await client.transcripts
  .submit({ audio: webUrl, sentiment_analysis: true })
  .catch((error) => error.message);
const deleted = await client.transcripts.delete(whole.id);

console.log(
  JSON.stringify({
    text: whole.text,
    speakers: whole.utterances.map((utterance) => utterance.speaker),
    missing: required.split(" ").filter((name) => whole[name] === undefined),
    ofTheWeb: ofTheWeb.text,
    listed: [page.transcripts[0].id === ofTheWeb.id, older.transcripts[0].id === whole.id],
    created: page.transcripts[0].created instanceof Date && !isNaN(page.transcripts[0].created),
    parts: [paragraphs.paragraphs[0].text, sentences.sentences[0].text],
    matches: search.matches.map((match) => [match.text, match.count]),
    vtt,
    refused,
    deleted: deleted.text,
  }),
);

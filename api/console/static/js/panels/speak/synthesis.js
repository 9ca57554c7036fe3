// Speech as a file, and live over the socket or a streamed answer.
import { ask, call, lines, ApiError } from "../../api.js";
import { RATE, fromBase64, wav } from "../../audio/pcm.js";
import { converse, openSocket } from "../../audio/socket.js";
import { Stream } from "../../audio/stream.js";
import { limits, noteCredit } from "../../session.js";

const TYPES = { mp3: "audio/mpeg", wav: "audio/wav", ogg: "audio/ogg", flac: "audio/flac" };
export const FORMATS = Object.keys(TYPES);
const SOCKET_SPEED = 1.5; // the socket's maximum; files allow 2
const SOCKET_SEMITONES = 6;
const CONTEXT = "console";

const semitones = (ratio) => 12 * Math.log2(ratio);
const goesBySocket = ({ voice, speed, pitch, script }) => voice && !script && speed <= SOCKET_SPEED && Math.abs(semitones(pitch)) <= SOCKET_SEMITONES + 1e-9;

// How a request is spoken live: the socket requires a voice, and has narrower ranges.
export function way(wish) {
  if (goesBySocket(wish)) return "socket";
  return [...wish.text].length <= limits.file_characters ? "stream" : null;
}

export function body({ text, script, voice, speed, pitch, enhance, format, pronunciations }) {
  const json = { ...(script ? { script } : { text }), speed, pitch, enhance, output_format: format, timestamps: true };
  if (pronunciations?.length) json.pronunciations = pronunciations;
  if (voice) json.voice_id = voice.voice_id;
  return json;
}

export function toExplain(wish) {
  const { output_format: _, timestamps, enhance, ...json } = body(wish);
  return json;
}

export const priceOf = async (wish) => (await ask("/tts/explain", { method: "POST", json: toExplain(wish) })).price;

export function messages({ text, voice, speed, pitch, pronunciations }) {
  const audio_config = { audio_encoding: "LINEAR16", sample_rate_hertz: RATE };
  const context = {
    context_id: CONTEXT, voice_id: voice?.voice_id || "", audio_config, speaking_rate: speed,
    pitch: Number(semitones(pitch).toFixed(2)), timestamps: true,
  };
  if (pronunciations?.length) context.pronunciations = pronunciations;
  return [{ create_context: context }, { send_text: { context_id: CONTEXT, text } }, { close_context: { context_id: CONTEXT } }];
}

export async function makeFile(wish, signal) {
  const spoken = await ask("/tts-synthesize", { method: "POST", json: body(wish), signal });
  const blob = new Blob([fromBase64(spoken.audio_base64)], { type: TYPES[wish.format] });
  return { blob, words: spoken.words || [], seconds: spoken.duration_seconds, format: wish.format, unread: spoken.unread, warnings: spoken.warnings };
}

// Plays speech while it is made. `onbegin` gets the stream, `onwords` its words, `onfirst` the
// milliseconds until the first sound. If aborted, returns what was heard until then.
export async function speakLive(wish, { signal, onbegin, onwords, onfirst }) {
  const isSocket = way(wish) === "socket";
  const words = [];
  const stream = new Stream(RATE); // begun by the click, without which iOS plays nothing; it resamples other rates
  let asked = performance.now();
  const hear = (bytes, more, rate) => {
    if (signal.aborted) return;
    if (stream.began === null) {
      stream.rate = rate;
      onbegin(stream);
      onfirst(performance.now() - asked);
    }
    stream.play(bytes);
    if (more?.length) {
      words.push(...more);
      onwords(words);
    }
  };
  let gaps = {};
  const leave = ({ unread, warnings }) => { gaps = { unread, warnings }; };
  signal.addEventListener("abort", () => stream.stop());
  try {
    if (isSocket) await bySocket(wish, signal, hear, leave, () => { asked = performance.now(); });
    else await byAnswer(wish, signal, hear, leave);
    if (!signal.aborted) await stream.finished();
  } catch (error) {
    if (!signal.aborted) throw error;
  } finally {
    await stream.context.close();
  }
  if (!stream.pieces.length) return null;
  const bytes = stream.pieces.reduce((sum, one) => sum + one.length, 0);
  return { blob: wav(stream.pieces, stream.rate), words, seconds: bytes / 2 / stream.rate, format: "wav", ...gaps };
}

function bySocket(wish, signal, hear, leave, onready) {
  const socket = openSocket("/ws/tts");
  const [create, ...rest] = messages(wish);
  const send = (message) => socket.send(JSON.stringify(message));
  signal.addEventListener("abort", () => socket.close());
  return converse(socket, (message) => {
    if (message.error) throw new ApiError(message.error.message);
    if (message.connection_established) {
      noteCredit(message.connection_established.credit_balance);
      send(create);
    } else if (message.context_created) {
      onready();
      rest.forEach(send);
    } else if (message.audio_chunk) {
      hear(fromBase64(message.audio_chunk.audioContent), message.audio_chunk.words, RATE);
    } else if (message.context_closed) {
      leave(message.context_closed);
    }
  }, () => ask("/tts/explain", { method: "POST", json: { text: wish.text } }));
}

// The service chooses the voice by the language of the text.
async function byAnswer(wish, signal, hear, leave) {
  const json = { ...body(wish), output_format: "pcm" };
  const answer = await call("/tts-stream", { method: "POST", json, signal });
  for await (const line of lines(answer)) {
    if (!line) continue;
    const { type, result, message, error, ...gaps } = JSON.parse(line);
    if (type === "error") throw new ApiError(message, { code: error });
    if (type === "complete") leave(gaps);
    if (type === "chunk") hear(fromBase64(result.audioContent), result.words, result.sample_rate);
  }
}

// A conversation by voice, over the Realtime dialect.
import { ApiError, ask } from "../../api.js";
import { openMicrophone } from "../../audio/microphone.js";
import { RATE, fromBase64, toBase64 } from "../../audio/pcm.js";
import { converse, openSocket } from "../../audio/socket.js";
import { Stream } from "../../audio/stream.js";
import { credential, isOwner } from "../../session.js";

export function sessionOf({ model, instructions, voice, turns, language, tools }) {
  const transcription = { model: "gpt-4o-transcribe" };
  if (language) transcription.language = language;
  const turn_detection = turns === "semantic" ? { type: "semantic_vad", eagerness: "medium" } : { type: "server_vad" };
  const session = { type: "realtime", model, instructions, audio: { input: { turn_detection, transcription }, output: { voice } } };
  if (tools.length) session.tools = tools;
  return session;
}

// The times of one turn, by the page's clock.
class Timing {
  constructor(waited) {
    this.waited = waited; // milliseconds of silence until the turn was known to be over
    this.stopped = performance.now();
  }

  // Milliseconds of the three stages, once the answer is heard: until the turn was over and transcribed,
  // then until the answer's first words, then until their sound.
  stages() {
    const { stopped, heard = stopped, sounded } = this;
    const transcribed = Math.min(Math.max(heard, stopped), sounded);
    const worded = Math.min(Math.max(this.worded ?? transcribed, transcribed), sounded);
    return [this.waited + transcribed - stopped, worded - transcribed, sounded - worded].map((one) => Math.max(0, Math.round(one)));
  }
}

// `view` has onready, write(item, who, text, isWhole), cut(item), call(name, arguments, answer),
// timed(item, stages), fail(error), meters(input, output). Returns {done, hangUp}.
export function talk(wish, device, view) {
  let socket = null;
  let isOver = false;
  const hangUp = () => {
    isOver = true;
    socket?.close();
  };
  return { hangUp, done: run() };

  async function run() {
    const microphone = await openMicrophone({ device });
    const player = new Stream(RATE);
    view.meters(microphone.meter, player.meter);
    const send = (message) => socket.readyState === WebSocket.OPEN && socket.send(JSON.stringify(message));
    let sent = 0; // bytes of the microphone
    let speaking = null; // the item whose audio is played
    let received = null; // the last item whose audio has come to its end
    let lost = null; // why the microphone failed
    let timing = null; // of the turn that is answered next
    const hear = (bytes) => {
      sent += bytes.length;
      send({ type: "input_audio_buffer.append", audio: toBase64(bytes) });
    };
    const answerCall = (call_id, output) => {
      send({ type: "conversation.item.create", item: { type: "function_call_output", call_id, output } });
      send({ type: "response.create" });
    };
    const failed = ({ error }) => view.fail(new ApiError(error.message, { code: error.code }));
    const session = sessionOf(wish);
    const handlers = {
      "session.created": () => {
        if (isOwner()) send({ type: "session.update", session });
        microphone.begin(hear).catch((error) => { lost = error; }).then(hangUp);
        view.onready();
      },
      "input_audio_buffer.speech_started": () => {
        const isHeard = received === speaking && !player.left;
        const heard = player.stop();
        if (!speaking || isHeard) return;
        const audio_end_ms = Math.floor(heard * 1000);
        send({ type: "conversation.item.truncate", item_id: speaking, content_index: 0, audio_end_ms });
        view.cut(speaking);
        speaking = null;
      },
      "input_audio_buffer.speech_stopped": ({ audio_end_ms }) => {
        timing = new Timing(sent / 2 / RATE * 1000 - audio_end_ms);
      },
      "conversation.item.input_audio_transcription.delta": ({ item_id, delta }) => view.write(item_id, "user", delta),
      "conversation.item.input_audio_transcription.completed": ({ item_id, transcript }) => {
        if (timing) timing.heard ??= performance.now();
        view.write(item_id, "user", transcript, true);
      },
      "conversation.item.input_audio_transcription.failed": failed,
      "response.output_audio_transcript.delta": ({ item_id, delta }) => {
        if (timing) timing.worded ??= performance.now();
        view.write(item_id, "assistant", delta);
      },
      "response.output_audio_transcript.done": ({ item_id, transcript }) => view.write(item_id, "assistant", transcript, true),
      "conversation.item.truncated": ({ item_id }) => send({ type: "conversation.item.retrieve", item_id }),
      "conversation.item.retrieved": ({ item }) => {
        const heard = item.content?.[0]?.transcript;
        if (item.role === "assistant" && heard !== undefined && heard !== null) view.write(item.id, "assistant", heard, true);
      },
      "response.output_audio.delta": ({ item_id, delta }) => {
        if (speaking !== item_id) player.total = 0;
        speaking = item_id;
        player.play(fromBase64(delta));
        if (!timing) return;
        timing.sounded = performance.now();
        view.timed(item_id, timing.stages());
        timing = null;
      },
      "response.output_audio.done": ({ item_id }) => { received = item_id; },
      "response.function_call_arguments.done": ({ call_id, name, arguments: given }) =>
        view.call(name, given, (output) => answerCall(call_id, output)),
      "response.done": ({ response }) => response.status_details?.error && failed(response.status_details),
      error: failed,
    };
    try {
      // A client secret keeps the credential out of the socket, and its request says why it is refused, which a
      // socket cannot. Owners use the credential nevertheless: sessions by client secrets always have prices.
      const json = { session, expires_after: { seconds: 60 } };
      const secret = await ask("/openai/v1/realtime/client_secrets", { method: "POST", json });
      if (isOver) return;
      const key = isOwner() ? credential() : secret.value;
      const path = `/openai/v1/realtime?model=${encodeURIComponent(wish.model)}`;
      socket = openSocket(path, ["realtime", `openai-insecure-api-key.${key}`]);
      await converse(socket, (message) => handlers[message.type]?.(message));
      if (lost) throw lost;
    } finally {
      await Promise.all([microphone.close(), player.context.close()]);
    }
  }
}

"use strict";

// A conversation by voice, over the Realtime dialect.
let hangUp = null;

async function talk(output, instructions, voice) {
  let socket = null;
  let isOver = false;
  hangUp = () => {
    isOver = true;
    socket?.close();
  };
  const microphone = await openMicrophone();
  const context = new AudioContext({ sampleRate: SPEECH_RATE });
  const player = new Player(context);
  const send = (message) => socket.readyState === WebSocket.OPEN && socket.send(JSON.stringify(message));
  const hear = (audio) => send({ type: "input_audio_buffer.append", audio });
  const lines = new Map(); // by item
  const show = (item, who, text, isWhole) => {
    if (!lines.has(item)) {
      lines.set(item, document.createElement("p"));
      lines.get(item).className = who;
      output.append(lines.get(item));
    }
    const line = lines.get(item);
    line.textContent = isWhole ? text : line.textContent + text;
    output.scrollTop = output.scrollHeight;
  };
  const fail = ({ error }) => showStatus(error.message, true);
  let speaking = null; // the item whose audio is played
  const handlers = {
    "session.created": () => {
      microphone.begin(hear).catch((error) => fail({ error }));
      showStatus("Speak …");
    },
    "input_audio_buffer.speech_started": () => {
      const heard = player.stop();
      if (speaking) {
        const audio_end_ms = Math.floor(heard * 1000);
        send({ type: "conversation.item.truncate", item_id: speaking, content_index: 0, audio_end_ms });
        speaking = null;
      }
    },
    "conversation.item.input_audio_transcription.delta": ({ item_id, delta }) => show(item_id, "user", delta),
    "conversation.item.input_audio_transcription.completed": ({ item_id, transcript }) =>
      show(item_id, "user", transcript, true),
    "conversation.item.input_audio_transcription.failed": fail,
    "response.output_audio_transcript.delta": ({ item_id, delta }) => show(item_id, "assistant", delta),
    "response.output_audio.delta": ({ item_id, delta }) => {
      if (speaking !== item_id) player.begin();
      speaking = item_id;
      player.play(delta);
    },
    "response.done": ({ response }) => response.status_details?.error && fail(response.status_details),
    error: fail,
  };
  output.replaceChildren();
  try {
    // A refused request says why, a refused socket does not; and the credential stays with HTTP.
    const input = {
      turn_detection: { type: "semantic_vad", eagerness: "medium" },
      transcription: { model: "gpt-4o-transcribe" },
    };
    const audio = { input, output: { voice } };
    const session = { type: "realtime", model: "gpt-realtime-mini", instructions, audio };
    const json = { session, expires_after: { seconds: 60 } };
    const secret = await (await call("/openai/v1/realtime/client_secrets", { method: "POST", json })).json();
    if (isOver) return;
    socket = openSocket("/openai/v1/realtime", ["realtime", `openai-insecure-api-key.${secret.value}`]);
    await converse(socket, (message) => handlers[message.type]?.(message));
  } finally {
    await Promise.all([microphone.close(), context.close()]);
  }
}

at("talk-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const button = event.target.querySelector("button");
  if (hangUp) {
    showStatus("");
    hangUp();
    return;
  }
  button.textContent = "Hang up";
  const form = new FormData(event.target);
  try {
    showStatus("Connecting …");
    await talk(at("talk"), form.get("instructions"), form.get("agent_voice") || undefined);
  } catch (error) {
    showStatus(error.message, true);
  } finally {
    hangUp = null;
    button.textContent = "Talk";
  }
});

"use strict";

// A conversation by voice, over the Realtime dialect.
const AGENT_RATE = 24000; // Hz, of both directions

let hangUp = null;

async function talk(output, instructions, voice) {
  const stream = await navigator.mediaDevices.getUserMedia({ audio: { echoCancellation: true } });
  const context = new AudioContext({ sampleRate: AGENT_RATE });
  await context.audioWorklet.addModule("/console/microphone.js");
  const microphone = new AudioWorkletNode(context, "microphone");
  const player = new Player(context);
  const credential = sessionStorage.getItem(CREDENTIAL);
  const socket = openSocket("/openai/v1/realtime?model=gpt-realtime-mini", [
    "realtime",
    `openai-insecure-api-key.${credential}`,
  ]);
  const send = (message) => socket.readyState === WebSocket.OPEN && socket.send(JSON.stringify(message));
  microphone.port.onmessage = ({ data }) => send({
    type: "input_audio_buffer.append",
    audio: toBase64(new Uint8Array(data.buffer)),
  });
  hangUp = () => socket.close();
  const lines = new Map(); // by item
  const line = (item, who) => {
    if (!lines.has(item)) {
      const paragraph = document.createElement("p");
      paragraph.className = who;
      lines.set(item, paragraph);
      output.append(paragraph);
    }
    return lines.get(item);
  };
  let speaking = null; // the item whose audio is played
  const handlers = {
    "session.created": () => {
      const audio = {
        input: {
          turn_detection: { type: "semantic_vad", eagerness: "medium" },
          transcription: { model: "gpt-4o-transcribe" },
        },
        output: { voice },
      };
      send({ type: "session.update", session: { type: "realtime", instructions, audio } });
    },
    "session.updated": () => {
      context.createMediaStreamSource(stream).connect(microphone);
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
    "conversation.item.input_audio_transcription.delta": ({ item_id, delta }) => {
      line(item_id, "user").textContent += delta;
    },
    "conversation.item.input_audio_transcription.completed": ({ item_id, transcript }) => {
      line(item_id, "user").textContent = transcript;
    },
    "response.output_audio_transcript.delta": ({ item_id, delta }) => {
      line(item_id, "assistant").textContent += delta;
    },
    "response.output_audio.delta": ({ item_id, delta }) => {
      if (speaking !== item_id) player.begin();
      speaking = item_id;
      player.play(delta);
    },
    "response.done": ({ response }) => {
      const error = response.status_details?.error;
      if (error) showStatus(error.message, true);
    },
    error: ({ error }) => showStatus(error.message, true),
  };
  output.replaceChildren();
  try {
    await converse(socket, (message) => handlers[message.type]?.(message));
  } finally {
    stream.getTracks().forEach((track) => track.stop());
    await context.close();
  }
}

at("talk-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const button = event.target.querySelector("button");
  if (hangUp) {
    hangUp();
    return;
  }
  hangUp = () => {}; // a click during the start does not start a second session
  button.textContent = "Hang up";
  const form = new FormData(event.target);
  try {
    showStatus("Connecting …");
    await talk(at("talk"), form.get("instructions"), form.get("agent_voice") || undefined);
    showStatus("");
  } catch (error) {
    showStatus(error.message, true);
  } finally {
    hangUp = null;
    button.textContent = "Talk";
  }
});

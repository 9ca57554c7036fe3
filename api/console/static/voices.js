"use strict";

// Custom voices of the workspace: creation from recordings, progress, deletion.
const LOOK_MS = 5000;
let nextLook = 0;

async function showVoices() {
  clearTimeout(nextLook);
  const voices = await fetchList("/voices?limit=100", "data").catch(() => []);
  if (at("work").hidden) return; // signed out meanwhile
  at("voices").replaceChildren(...voices.map(voiceRow));
  at("voices-table").hidden = !voices.length;
  if (voices.some((voice) => voice.status === "processing")) nextLook = setTimeout(showVoices, LOOK_MS);
}

function voiceRow(voice) {
  const row = document.createElement("tr");
  row.insertCell().textContent = voice.name;
  const state = row.insertCell();
  if (voice.status === "processing") {
    const bar = document.createElement("progress");
    bar.value = voice.progress;
    bar.setAttribute("aria-label", `Progress of ${voice.name}`);
    const ready = new Date(voice.estimated_completion).toLocaleTimeString([], { timeStyle: "short" });
    state.append(bar, ` ready about ${ready}`);
  } else {
    state.textContent = voice.status === "ready" ? "ready" : `failed: ${voice.reason}`;
  }
  row.insertCell().textContent = voice.similarity === null ? "" : voice.similarity.toFixed(2);
  const actions = row.insertCell();
  if (voice.status !== "processing") actions.append(voiceButton("Report", () => openReport(voice)), " ");
  actions.append(voiceButton("Delete", () => deleteVoice(voice)));
  return row;
}

function voiceButton(text, act) {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = text;
  button.addEventListener("click", () => act().catch((error) => showStatus(error.message, true)));
  return button;
}

// The page of a report has an address that needs no key, for an hour.
async function openReport(voice) {
  const report = await (await call(`/voices/${voice.id}/report?format=json`)).json();
  const address = new URL(report.page_url);
  open(address.pathname + address.search, "_blank", "noopener");
}

async function deleteVoice(voice) {
  if (!confirm(`Delete the voice ${voice.name} and its recordings?`)) return;
  await call(`/voices/${voice.id}`, { method: "DELETE" });
  await showVoices();
}

onSubmit("voice-form", async (form, event) => {
  const voice = await (await call("/voices", { method: "POST", body: form })).json();
  event.target.reset();
  await showVoices();
  return `${voice.name} is being made`;
});

new MutationObserver(() => {
  clearTimeout(nextLook);
  if (at("work").hidden) at("voices").replaceChildren(); // not shown to the next account
  else showVoices();
}).observe(at("work"), { attributeFilter: ["hidden"] });

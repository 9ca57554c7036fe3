// The request of a panel as curl, Python, JavaScript and socket messages.
//
// A request is {title, method, path, json | form, files, openai}, or {title, socket, messages}.
import { t } from "./i18n.js";
import { button, copyButton, dialog, h, tabs } from "./ui.js";

const quote = (text) => `'${text.replaceAll("'", "'\\''")}'`;
const indent = (text, by) => text.replaceAll("\n", `\n${" ".repeat(by)}`);
const base = () => location.origin;
const socketBase = () => base().replace(/^http/, "ws");

// The fields of a form; a list is a field that is repeated.
const pairs = (form) => Object.entries(form || {}).flatMap(([name, value]) => [value].flat().map((one) => [name, one]));

// JSON as Python writes it.
function python(value, depth = 0) {
  const pad = "    ".repeat(depth + 1);
  if (value === null) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (typeof value !== "object") return JSON.stringify(value);
  const isList = Array.isArray(value);
  const items = isList
    ? value.map((one) => `${pad}${python(one, depth + 1)},`)
    : Object.entries(value).map(([key, one]) => `${pad}${JSON.stringify(key)}: ${python(one, depth + 1)},`);
  const [open, close] = isList ? "[]" : "{}";
  return items.length ? `${open}\n${items.join("\n")}\n${"    ".repeat(depth)}${close}` : open + close;
}

function curl({ method = "POST", path, json, form, files }) {
  const address = base() + path;
  const parts = [`curl -sS ${/[^\w:/.-]/.test(address) ? quote(address) : address}`, `-H "Authorization: Bearer $ANTIPHON_KEY"`];
  if (method !== (json || form ? "POST" : "GET")) parts.splice(1, 0, `-X ${method}`);
  if (json) parts.push("-H 'Content-Type: application/json'", `-d ${quote(JSON.stringify(json, null, 2))}`);
  for (const [name, value] of pairs(form)) parts.push(`-F ${quote(`${name}=${value}`)}`);
  for (const [name, file] of files || []) parts.push(`-F ${quote(`${name}=@${file}`)}`);
  if (path === "/tts-synthesize") parts.push(`| jq -r .audio_base64 | base64 -d > speech.${json.output_format || "mp3"}`);
  return parts.join(" \\\n  ");
}

function requests({ method = "POST", path, json, form, files, streams }) {
  const lines = ["import base64", "import os", "", "import requests", ""];
  if (path !== "/tts-synthesize") lines.shift();
  const options = [`headers={"Authorization": f"Bearer {os.environ['ANTIPHON_KEY']}"}`];
  if (json) options.push(`json=${indent(python(json), 4)}`);
  if (form && Object.keys(form).length) options.push(`data=${indent(python(form), 4)}`);
  if (files?.length) {
    options.push(`files=[\n${files.map(([name, file]) => `        ("${name}", open(${JSON.stringify(file)}, "rb")),`).join("\n")}\n    ]`);
  }
  if (streams) options.push("stream=True");
  lines.push(`answer = requests.${method.toLowerCase()}(`, `    "${base()}${path}",`, ...options.map((one) => `    ${one},`), ")");
  lines.push("answer.raise_for_status()");
  if (path === "/tts-synthesize") {
    lines.push(`with open("speech.${json.output_format || "mp3"}", "wb") as file:`, `    file.write(base64.b64decode(answer.json()["audio_base64"]))`);
  } else if (streams) lines.push("for line in answer.iter_lines():", "    print(line.decode())");
  else lines.push("print(answer.json())");
  return lines.join("\n");
}

function fetched({ method = "POST", path, json, form, files, streams }) {
  const lines = ["const key = process.env.ANTIPHON_KEY; // keep it out of public pages"];
  const isForm = form || files;
  if (isForm) {
    lines.push("const form = new FormData();");
    for (const [name, value] of pairs(form)) lines.push(`form.append(${JSON.stringify(name)}, ${JSON.stringify(String(value))});`);
    for (const [name, file] of files || []) lines.push(`form.append(${JSON.stringify(name)}, await fs.openAsBlob(${JSON.stringify(file)}), ${JSON.stringify(file)});`);
    if (files?.length) lines.unshift(`import fs from "node:fs";`, "");
  }
  lines.push(`const answer = await fetch("${base()}${path}", {`);
  if (method !== "GET") lines.push(`  method: "${method}",`);
  lines.push(`  headers: { Authorization: \`Bearer \${key}\`${json ? `, "Content-Type": "application/json"` : ""} },`);
  if (json) lines.push(`  body: JSON.stringify(${indent(JSON.stringify(json, null, 2), 2)}),`);
  if (isForm) lines.push("  body: form,");
  lines.push("});", "if (!answer.ok) throw new Error((await answer.json()).message);");
  if (streams) lines.push("for await (const piece of answer.body) process.stdout.write(piece);");
  else lines.push("console.log(await answer.json());");
  return lines.join("\n");
}

function openai(openAi) {
  return ["import os", "", "from openai import OpenAI", "", `client = OpenAI(base_url="${base()}/openai/v1", api_key=os.environ["ANTIPHON_KEY"])`, openAi].join("\n");
}

const messagesOf = ({ socket, messages, note }) =>
  [`# ${t("code.socket_url")}`, `${socketBase()}${socket}?apiKey=$ANTIPHON_KEY`, "", ...messages.map((one) => JSON.stringify(one)), ...(note ? ["", `# ${note}`] : [])].join("\n");

function pythonSocket({ socket, messages }) {
  return [
    "import asyncio", "import json", "import os", "", "import websockets", "",
    `URL = "${socketBase()}${socket}"`,
    `MESSAGES = ${python(messages)}`, "", "",
    "async def main():",
    `    headers = {"Authorization": f"Bearer {os.environ['ANTIPHON_KEY']}"}`,
    "    async with websockets.connect(URL, additional_headers=headers) as socket:",
    "        for message in MESSAGES:", "            await socket.send(json.dumps(message))",
    "        async for text in socket:", "            print(text[:200])", "", "", "asyncio.run(main())",
  ].join("\n");
}

const snippet = (text) => h("div.snippet", copyButton(text), h("pre", { tabIndex: 0 }, h("code", text)));

function shown(request) {
  const entries = request.socket
    ? [["socket", t("code.messages"), snippet(messagesOf(request))], ["python", "Python", snippet(pythonSocket(request))]]
    : [
        ["curl", "curl", snippet(curl(request))],
        ["python", "Python", snippet(requests(request))],
        ...(request.openai ? [["openai", "Python, openai", snippet(openai(request.openai))]] : []),
        ["javascript", "JavaScript", snippet(fetched(request))],
      ];
  const made = tabs(request.title, entries);
  made.choose(entries[0][0]);
  return h("section.snippets", h("h3", request.title), made);
}

// A button that opens the drawer; `current()` gives the requests as the panel would send them now, or
// throws the problem, which `place` then shows.
export const codeButton = (current, place) =>
  button(t("code.open"), () => {
    let requests = [];
    try {
      requests = current();
    } catch (error) {
      if (!place || !error.isExplained) throw error;
      place.fail(error);
    }
    const about = h("p", t("code.about"));
    dialog(t("code.title"), [about, ...requests.map(shown), h("p", h("a", { href: "/docs" }, t("code.reference")))], { kind: "drawer" });
  }, { icon: "code" });

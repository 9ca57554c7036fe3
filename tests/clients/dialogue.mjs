// A spoken dialogue with a tool and an interruption, for any client, and what it saw.
import { readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";

const PIECE_MS = 100;
const PIECE = 4800; // bytes of 16-bit PCM at 24 kHz
const PAUSE_MS = 600; // after an answer, whose last sound is sent 0.4 s before it is heard
const PATIENCE_MS = 70_000;

// `said` has one text for each response that is done, empty for a call.
export const seen = { said: [], heard: [], calls: [], seconds: 0, interruptions: 0, errors: [] };

// Waits until `value()` is at least `least`.
async function reach(value, least) {
  while (value() < least) await sleep(20);
}

// Speaks the files of `folder` with `send`, which takes PCM, and prints what was seen as JSON.
// `greet` makes the agent begin.
export async function dialogue(folder, send, greet) {
  const expired = () => {
    console.error(JSON.stringify(seen));
    process.exit(1);
  };
  const patience = setTimeout(expired, PATIENCE_MS);
  const said = [];
  const begun = Date.now();
  let sent = 0;
  const microphone = setInterval(() => {
    for (; sent * PIECE_MS < Date.now() - begun; sent++) send(said.shift() ?? Buffer.alloc(PIECE));
  }, PIECE_MS / 2);
  const say = async (name) => {
    await sleep(PAUSE_MS);
    const data = readFileSync(`${folder}/${name}.wav`).subarray(44); // after the header
    for (let at = 0; at < data.length; at += PIECE) said.push(data.subarray(at, at + PIECE));
  };
  const answers = (count) => reach(() => seen.said.length, count);

  greet();
  await answers(1);
  await say("weather");
  await answers(3); // the call, and the answer with its result
  await say("story");
  await reach(() => seen.seconds, seen.seconds + 2);
  await say("stop");
  await answers(5); // the story, interrupted, and the answer to that
  await say("goodbye");
  await answers(6);
  clearInterval(microphone);
  clearTimeout(patience);
  console.log(JSON.stringify(seen));
}

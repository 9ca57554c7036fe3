// Talks by text with the agent of docs/examples/livekit_agent.mjs, in place of a room. ANTIPHON_URL
// and ANTIPHON_KEY are in its environment. Prints the texts, and the seconds of audio it was sent.
import { initializeLogger, voice } from "@livekit/agents";
import { concierge, ofOneSocket } from "./livekit_agent.mjs";

initializeLogger({ pretty: false, level: "silent" });

// Plays what it gets at once.
class Mouth extends voice.AudioOutput {
  constructor() {
    super(24000, undefined, { pause: false });
    this.seconds = this.pending = 0;
  }

  async captureFrame(frame) {
    await super.captureFrame(frame);
    this.pending += frame.samplesPerChannel / frame.sampleRate;
  }

  flush() {
    super.flush();
    this.end(false);
  }

  clearBuffer() {
    this.end(true);
  }

  end(interrupted) {
    if (!this.pending) return;
    this.seconds += this.pending;
    this.onPlaybackFinished({ playbackPosition: this.pending, interrupted });
    this.pending = 0;
  }
}

const session = ofOneSocket();
const mouth = new Mouth();
const texts = [];
const errors = [];
session.output.audio = mouth;
session.on("conversation_item_added", ({ item }) => item.role && texts.push([item.role, item.textContent]));
session.on("error", ({ error }) => errors.push(String(error)));
await session.start({ agent: concierge() });
await session.generateReply({ userInput: "The heron waits." }).waitForPlayout();
process.stdout.write(JSON.stringify({ texts, seconds: mouth.seconds, errors }));
process.exit(0);

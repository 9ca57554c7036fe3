// Records the microphone into a WAV file, which the service takes everywhere.
import { openMicrophone } from "./microphone.js";
import { RATE, wav } from "./pcm.js";

// Resolves when it records; `stop()` gives {blob, seconds}.
export async function record({ device, ontick = () => {} } = {}) {
  const microphone = await openMicrophone({ device, clean: false });
  const pieces = [];
  let bytes = 0;
  await microphone.begin((piece) => {
    pieces.push(piece);
    bytes += piece.length;
    ontick(bytes / 2 / RATE);
  });
  const stop = async () => {
    await microphone.close();
    return { blob: wav(pieces, RATE), seconds: bytes / 2 / RATE };
  };
  return { stop, meter: microphone.meter };
}

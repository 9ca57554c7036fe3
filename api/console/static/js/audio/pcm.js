// 16-bit samples, base64 and WAV files.
export const RATE = 24000; // Hz, of the sockets in both directions

export function toBase64(bytes) {
  let text = "";
  for (let at = 0; at < bytes.length; at += 8192) text += String.fromCharCode(...bytes.subarray(at, at + 8192));
  return btoa(text);
}

export const fromBase64 = (text) => Uint8Array.from(atob(text), (one) => one.charCodeAt(0));

// A WAV file of mono 16-bit samples, given in pieces.
export function wav(pieces, rate) {
  const bytes = pieces.reduce((sum, one) => sum + one.byteLength, 0);
  const head = new DataView(new ArrayBuffer(44));
  const text = (at, word) => [...word].forEach((one, i) => head.setUint8(at + i, one.charCodeAt(0)));
  text(0, "RIFF");
  head.setUint32(4, 36 + bytes, true);
  text(8, "WAVEfmt ");
  head.setUint32(16, 16, true);
  head.setUint16(20, 1, true);
  head.setUint16(22, 1, true);
  head.setUint32(24, rate, true);
  head.setUint32(28, rate * 2, true);
  head.setUint16(32, 2, true);
  head.setUint16(34, 16, true);
  text(36, "data");
  head.setUint32(40, bytes, true);
  return new Blob([head, ...pieces], { type: "audio/wav" });
}

// The loudest sample, 0 to 1, of each of `count` equal parts.
export function peaks(samples, count) {
  const step = Math.max(1, samples.length / count);
  return Array.from({ length: Math.min(count, samples.length) }, (_, at) => {
    let most = 0;
    const end = Math.min(samples.length, Math.ceil((at + 1) * step));
    for (let i = Math.floor(at * step); i < end; i += 4) most = Math.max(most, Math.abs(samples[i]));
    return most;
  });
}

const MOST_BYTES = 32 * 2 ** 20; // limit of a file; the samples of an hour would fill the memory

// The samples of a file, or null where the browser cannot decode it.
export async function decode(blob) {
  if (blob.size > MOST_BYTES) return null;
  try {
    const context = new OfflineAudioContext(1, 1, 16000);
    return await context.decodeAudioData(await blob.arrayBuffer());
  } catch {
    return null;
  }
}

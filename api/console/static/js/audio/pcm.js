// 16-bit samples, base64 and WAV files.
export const RATE = 24000; // Hz, of the sockets in both directions

export function toBase64(bytes) {
  let text = "";
  for (let at = 0; at < bytes.length; at += 8192) text += String.fromCharCode(...bytes.subarray(at, at + 8192));
  return btoa(text);
}

export const fromBase64 = (text) => Uint8Array.from(atob(text), (one) => one.charCodeAt(0));

// A WAV file of mono 16-bit samples, given in pieces. All browsers are little-endian, as the file is.
export function wav(pieces, rate) {
  const bytes = pieces.reduce((sum, one) => sum + one.byteLength, 0);
  const format = [new Uint32Array([16]), new Uint16Array([1, 1]), new Uint32Array([rate, rate * 2]), new Uint16Array([2, 16])];
  return new Blob(["RIFF", new Uint32Array([36 + bytes]), "WAVEfmt ", ...format, "data", new Uint32Array([bytes]), ...pieces], { type: "audio/wav" });
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

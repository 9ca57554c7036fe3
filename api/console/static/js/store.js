// Data in the browser: favourites, and in IndexedDB finished speech and previews of voices. All of
// it belongs to one workspace, and is deleted when this one signs out or another signs in.
import { isSession, session } from "./session.js";

const NAME = "console";
const STORES = ["speech", "previews"];
const OWNER = "owner";
const MOST = 100; // pieces of speech

let opened = null;

function open() {
  opened ||= new Promise((resolve, reject) => {
    const request = indexedDB.open(NAME, 1);
    request.onupgradeneeded = () => STORES.forEach((name) => request.result.createObjectStore(name, { keyPath: "id" }));
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
  return opened;
}

// Null if the browser stores nothing, as some do in private windows; the console works without it.
async function run(store, mode, work) {
  try {
    const database = await open();
    return await new Promise((resolve, reject) => {
      const transaction = database.transaction(store, mode);
      const request = work(transaction.objectStore(store));
      transaction.oncomplete = () => resolve(request.result);
      transaction.onabort = () => reject(transaction.error);
    });
  } catch {
    return null;
  }
}

export const put = (store, item) => run(store, "readwrite", (all) => all.put(item));
export const get = (store, id) => run(store, "readonly", (all) => all.get(id));
export const remove = (store, id) => run(store, "readwrite", (all) => all.delete(id));
export const clear = (store) => run(store, "readwrite", (all) => all.clear());

// Newest first; the oldest beyond MOST are deleted.
export async function history() {
  const all = (await run("speech", "readonly", (store) => store.getAll())) || [];
  all.sort((one, other) => other.at - one.at);
  for (const old of all.splice(MOST)) await remove("speech", old.id);
  return all;
}

// Deletes everything of a workspace other than the one that is signed in.
export async function own() {
  const owner = String(session.workspace.id);
  if (localStorage.getItem(OWNER) !== owner) await wipe();
  localStorage.setItem(OWNER, owner);
}

// Deletes everything except the session, which an owner shares with other tabs until a sign-out.
export async function wipe() {
  for (const name of Object.keys(localStorage)) if (!isSession(name)) localStorage.removeItem(name);
  for (const store of STORES) await clear(store);
}

export function setting(name, value) {
  if (value === undefined) return JSON.parse(localStorage.getItem(name) || "null");
  localStorage.setItem(name, JSON.stringify(value));
  return value;
}

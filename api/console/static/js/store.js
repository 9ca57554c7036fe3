// Data in the browser: favourites, and in IndexedDB finished speech and previews of voices. All of
// it belongs to one workspace, and is deleted when this one signs out or another signs in. A guest
// beside the owner of a machine has a place of its own.
import { isGuest, isSession, session } from "./session.js";

const STORES = ["speech", "previews"];
const OWNER = "owner";
const MOST = 100; // pieces of speech

let place = localStorage;
let owner = null; // the id of the workspace
let opened = null;

function open() {
  opened ||= new Promise((resolve, reject) => {
    const request = indexedDB.open(place === localStorage ? "console" : "guest", 1);
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
  const all = ((await run("speech", "readonly", (store) => store.getAll())) || []).sort((one, other) => other.at - one.at);
  for (const old of all.splice(MOST)) await remove("speech", old.id);
  return all;
}

// Deletes everything of a workspace other than the one that is signed in.
export async function own() {
  place = isGuest() ? sessionStorage : localStorage;
  opened = null;
  owner = place.getItem(OWNER);
  if (owner !== String(session.workspace.id)) await wipe();
  owner = String(session.workspace.id);
  place.setItem(OWNER, owner);
}

// Deletes everything except the session, which an owner shares with other tabs until a sign-out. Deletes
// nothing if another workspace has signed in in another tab.
export async function wipe() {
  if (place.getItem(OWNER) !== owner) return;
  for (const key of Object.keys(place)) if (!isSession(key)) place.removeItem(key);
  for (const store of STORES) await clear(store);
}

export function setting(name, value) {
  if (value === undefined) return JSON.parse(place.getItem(name) || "null");
  place.setItem(name, JSON.stringify(value));
  return value;
}

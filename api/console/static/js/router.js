// Chooses the panel by the hash of the address: `#/speak`, `#/account/keys`. Any text may follow:
// unlike decodeURIComponent, a query leaves a sign as it is that begins no code.
import { emit } from "./session.js";

export function route() {
  const [name = "", ...rest] = location.hash.replace(/^#\/?/, "").split("/");
  const decoded = (part) => new URLSearchParams(`_=${part.replace(/[+&]/g, encodeURIComponent)}`);
  return { name, rest: rest.map((part) => decoded(part).get("_")) };
}

export const go = (path) => {
  const hash = `#/${path}`;
  if (location.hash === hash) emit("route", route());
  else location.hash = hash;
};

export function listen() {
  addEventListener("hashchange", () => location.hash.startsWith("#/") && emit("route", route()));
  // A link to the current page does not change the hash, but shows the page again.
  addEventListener("click", ({ target }) => {
    if (target.closest?.("a[href]")?.getAttribute("href") === location.hash) emit("route", route());
  });
}

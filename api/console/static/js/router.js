// The panel by the hash of the address: `#/speak`, `#/account/keys`.
import { emit } from "./session.js";

export function route() {
  const [name = "", ...rest] = location.hash.replace(/^#\/?/, "").split("/");
  return { name, rest: rest.map(decodeURIComponent) };
}

export const go = (path) => {
  const hash = `#/${path}`;
  if (location.hash === hash) emit("route", route());
  else location.hash = hash;
};

export const listen = () =>
  addEventListener("hashchange", () => location.hash.startsWith("#/") && emit("route", route()));

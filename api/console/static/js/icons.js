// Icons as paths of a 24 by 24 grid, drawn with strokes.
const PATHS = {
  speak: "M5 10v4M9 7v10M13 4v16M17 8v8M21 11v2",
  listen: "M12 3a3 3 0 0 1 3 3v6a3 3 0 0 1-6 0V6a3 3 0 0 1 3-3zM5 11a7 7 0 0 0 14 0M12 18v3",
  talk: "M4 5h11a2 2 0 0 1 2 2v5a2 2 0 0 1-2 2H9l-4 3v-3H4a1 1 0 0 1-1-1V6a1 1 0 0 1 1-1zM20 10v7h-1v3l-4-3h-3",
  chat: "M5 4h14a2 2 0 0 1 2 2v9a2 2 0 0 1-2 2h-7l-5 4v-4H5a2 2 0 0 1-2-2V6a2 2 0 0 1 2-2zM8 9h8M8 12.500h5",
  jobs: "M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18zM12 7v5.500l3.500 2",
  voices: "M9 11a3.500 3.500 0 1 0 0-7 3.500 3.500 0 0 0 0 7zM3 20c0-3.500 2.500-6 6-6s6 2.500 6 6M17 7c1.200 1.200 1.200 3.800 0 5M19.500 5c2.300 2.500 2.300 6.500 0 9",
  account: "M4 7h16M4 12h16M4 17h16M8 5v4M15 10v4M10 15v4",
  operator: "M4 5h16v5H4zM4 14h16v5H4zM7.500 7.500h.010M7.500 16.500h.010M12 7.500h5M12 16.500h5",
  code: "M8 7l-5 5 5 5M16 7l5 5-5 5M14 4l-4 16",
  play: "M7 4.500v15l12-7.500z",
  pause: "M8 5v14M16 5v14",
  stop: "M6 6h12v12H6z",
  star: "M12 3.500l2.600 5.400 5.900.800-4.300 4.100 1 5.900-5.200-2.800-5.200 2.800 1-5.900L3.500 9.700l5.900-.800z",
  download: "M12 4v11M7 11l5 5 5-5M4 20h16",
  trash: "M4 7h16M9 7V4h6v3M6 7l1 13h10l1-13M10 11v5M14 11v5",
  copy: "M9 9h11v11H9zM5 15H4V4h11v1",
  check: "M4 12.500l5 5L20 6.500",
  close: "M5 5l14 14M19 5L5 19",
  plus: "M12 5v14M5 12h14",
  upload: "M12 16V5M7 9l5-5 5 5M4 20h16",
  record: "M12 12m-6 0a6 6 0 1 0 12 0a6 6 0 1 0-12 0",
  send: "M4 12l16-8-5 16-3-7z",
  leave: "M14 4h5v16h-5M4 12h11M11 8l4 4-4 4",
  search: "M10.500 17a6.500 6.500 0 1 0 0-13 6.500 6.500 0 0 0 0 13zM15.500 15.500L21 21",
  refresh: "M20 11a8 8 0 0 0-14.500-4L4 9M4 4v5h5M4 13a8 8 0 0 0 14.500 4l1.500-2M20 20v-5h-5",
  tool: "M14.500 6.500a4 4 0 0 0-5.200 5.200L4 17v3h3l5.300-5.300a4 4 0 0 0 5.200-5.200L15 12l-3-3z",
  hangup: "M3 15c0-5 18-5 18 0v2l-5-1v-3c-2-.700-6-.700-8 0v3l-5 1z",
  warn: "M12 4L2.500 20h19zM12 10v5M12 17.500v.500",
  book: "M4 5a2 2 0 0 1 2-2h14v16H6a2 2 0 0 0-2 2zM4 19V5M20 19v2H6",
  help: "M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18zM9.500 9.500a2.500 2.500 0 1 1 3.500 2.300c-.700.300-1 .800-1 1.700M12 16.500v.500",
};
const SOLID = new Set(["play", "stop", "record"]);
const SVG = "http://www.w3.org/2000/svg";

export function svg(name, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

export function icon(name) {
  const made = svg("svg", { viewBox: "0 0 24 24", class: "icon", "aria-hidden": "true", focusable: "false" });
  made.append(svg("path", { d: PATHS[name] }));
  if (SOLID.has(name)) made.classList.add("solid");
  return made;
}

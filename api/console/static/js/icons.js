// Icons by name, from `icons.svg`: paths of a 24 by 24 grid, drawn with strokes.
const SVG = "http://www.w3.org/2000/svg";

export function svg(name, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

export function icon(name) {
  return svg("svg", { class: "icon", "aria-hidden": "true", focusable: "false" }, svg("use", { href: `/console/icons.svg#${name}` }));
}

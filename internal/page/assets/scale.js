// A row of a chart: a track that is as wide as there is room, with places in percent of it.
import { h, svg } from "./dom.js";

export const at = (value, [low, high]) => ((value - low) / (high - low || 1) * 100).toFixed(2) + "%";

// ticks are few round numbers that span a domain, which they widen to themselves.
export function ticks(low, high, most = 5) {
  const rough = (high - low || 1) / most;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((f) => f * power).find((s) => s >= rough);
  const first = Math.floor(low / step), last = Math.ceil(high / step);
  const all = [];
  for (let i = first; i <= last; i++) all.push(Number((i * step).toPrecision(6)));
  return all;
}

// track is drawn by marks, above grid lines at the ticks.
export const track = (height, ticks, domain, ...marks) => svg("svg", { class: "wide", height, "aria-hidden": "true" },
  ticks.map((t) => svg("line", { x1: at(t, domain), x2: at(t, domain), y1: 0, y2: height, style: { stroke: t === 0 && domain[0] < 0 ? "var(--strong-line)" : "var(--grid)", "stroke-width": t === 0 && domain[0] < 0 ? "2" : "1" } })), marks);

// axis names the ticks below the rows.
export const axis = (label, ticks, domain, write) => h("div", { class: "row" }, h("span", { class: "label hint" }, label),
  svg("svg", { class: "wide", height: 18, "aria-hidden": "true" }, ticks.map((t, i) => svg("text", {
    class: "soft", x: at(t, domain), y: 13, "text-anchor": i === 0 ? "start" : i === ticks.length - 1 ? "end" : "middle",
  }, write(t)))));

export const mark = {
  dot: (x, y, name) => svg("circle", { cx: x, cy: y, r: 6, style: { fill: `var(--${name})` } }),
  ring: (x, y, name) => svg("circle", { cx: x, cy: y, r: 5.5, style: { fill: "var(--card)", stroke: `var(--${name})`, "stroke-width": "2.5" } }),
  bar: (x, y, name) => svg("line", { x1: x, x2: x, y1: y - 9, y2: y + 9, style: { stroke: `var(--${name})`, "stroke-width": "3" } }),
  span: (x1, x2, y, name, dash) => svg("line", { x1, x2, y1: y, y2: y, style: { stroke: `var(--${name})`, "stroke-width": "2.5", "stroke-dasharray": dash || "none" } }),
};

export const sample = (...marks) => svg("svg", { width: 26, height: 20, "aria-hidden": "true" }, marks);

// Draws power over time: measured, what it would be without the product, and modelled.
import { asTable, clockTime, h, interval, none, number, svg } from "./dom.js";

const quarter = 900; // seconds of a row of the table

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const add = (a, b) => a.map((v, i) => (v === null || b[i] === null ? null : v + b[i]));

// columns of the points, with nothing where points are missing, so that no line is drawn across.
function columns(t) {
  const out = { times: [], measured: [], modelled: [], saved: [], low: [], high: [] };
  const add = (time, point) => { for (const key of Object.keys(out)) out[key].push(key === "times" ? time : point[key] ?? null); };
  let last;
  for (const point of t.points) {
    if (last !== undefined && point.time - last > 2.5 * t.stepSeconds) add(last + t.stepSeconds, {});
    add(point.time, point);
    last = point.time;
  }
  return out;
}

const line = (name, dash) => svg("svg", { width: 30, height: 12, "aria-hidden": "true" },
  svg("line", { x1: 1, y1: 6, x2: 29, y2: 6, style: { stroke: `var(--${name})`, "stroke-width": "2.5", "stroke-dasharray": dash || "none" } }));
const area = () => svg("svg", { width: 30, height: 12, "aria-hidden": "true" }, svg("rect", { width: 30, height: 12, style: { fill: "var(--band)" } }));

function legend(has) {
  return h("ul", { class: "legend" },
    h("li", {}, line("measured"), "Measured, with Joulevirt"),
    has.saved && h("li", {}, line("without", "6 4"), "Without: measured plus proven saving"),
    has.saved && h("li", {}, area(), "Its interval"));
}

const legendOfModelled = () => h("ul", { class: "legend" }, h("li", {}, line("modelled", "2 3"), "Modelled, of nodes without a meter: beside, and no proof"));

function options(width, height, series, readout, describe) {
  const axis = { stroke: colour("--muted"), grid: { stroke: colour("--grid"), width: 1 }, ticks: { stroke: colour("--grid"), width: 1 }, font: "12px system-ui, sans-serif" };
  const two = (n) => String(n).padStart(2, "0");
  const hour = (s) => { const d = new Date(s * 1000); return two(d.getHours()) + ":" + two(d.getMinutes()); };
  return {
    width, height, legend: { show: false }, padding: [12, 8, 0, 0],
    cursor: { y: false, drag: { x: false, y: false }, points: { size: 6 } },
    scales: { x: { time: true, range: (u, min, max) => (max - min < 600 ? [max - 600, max] : [min, max]) },
      y: { range: (u, min, max) => { const room = Math.max((max - min) * 0.15, max * 0.02, 1); return [Math.max(0, min - room), max + room]; } } },
    axes: [{ ...axis, space: 60, size: 32, values: (u, splits) => splits.map(hour) },
      { ...axis, size: 68, space: 36, values: (u, splits) => splits.map((v) => number(v) + " W") }],
    series: [{}, ...series.map((of) => ({ stroke: of.name ? colour("--" + of.name) : "transparent", width: of.name ? 2 : 0, dash: of.dash, points: { show: false } }))],
    bands: series.length > 2 ? [{ series: [4, 3], fill: colour("--band") }] : [],
    hooks: { setCursor: [(u) => {
      const i = u.cursor.idx;
      readout.textContent = i === null || i === undefined ? "" : hour(u.data[0][i]) + " \u00b7 " + describe(i);
    }] },
  };
}

// rows are means of quarters of an hour.
function rows(t, without) {
  const mean = (values) => { const known = values.filter((v) => v !== null); return known.length ? known.reduce((a, b) => a + b, 0) / known.length : null; };
  const by = new Map();
  t.times.forEach((at, i) => { const key = Math.floor(at / quarter) * quarter; if (!by.has(key)) by.set(key, []); by.get(key).push(i); });
  return [...by].reverse().map(([at, of]) => ({
    at, measured: mean(of.map((i) => t.measured[i])), without: mean(of.map((i) => without.value[i])),
    low: mean(of.map((i) => without.low[i])), high: mean(of.map((i) => without.high[i])), modelled: mean(of.map((i) => t.modelled[i])),
  }));
}

export function trendChart(raw) {
  const t = columns(raw);
  const some = (values) => values.some((v) => v !== null);
  const has = { measured: some(t.measured), saved: t.saved.some((v) => v), modelled: some(t.modelled) };
  if (!has.measured && !has.modelled) {
    return h("div", { class: "empty" }, h("p", {}, h("strong", {}, "No power is known yet.")),
      h("p", {}, "The first point comes within a minute of a meter's figure. If none comes, see Energy sources and the condition MeterAvailable below: they say why and what to do."));
  }
  // Where nothing is proven at all, a second line would lie upon the first.
  const plus = (saved) => (has.saved ? add(t.measured, saved) : t.times.map(() => null));
  const without = { value: plus(t.saved), low: plus(t.low), high: plus(t.high) };
  const watts = (v) => (v === null || v === undefined ? none : number(v));
  return h("figure", { class: "chart" },
    has.measured && [legend(has), plot(270, words(t, without, has), [t.times, t.measured, without.value, without.low, without.high],
      [{ name: "measured" }, { name: "without", dash: [6, 4] }, {}, {}],
      (i) => `measured ${watts(t.measured[i])} W` + (without.value[i] === null ? "" : `, without ${watts(without.value[i])} W (${interval(without.low[i], without.high[i])})`))],
    has.modelled && [legendOfModelled(), plot(has.measured ? 130 : 270, words(t, without, has), [t.times, t.modelled], [{ name: "modelled", dash: [2, 3] }], (i) => `modelled ${watts(t.modelled[i])} W`)],
    asTable("trend", "Means of quarters of an hour, in watts", [
      { name: "From", cell: (r) => clockTime(new Date(r.at * 1000)) },
      { name: "Measured", number: true, cell: (r) => watts(r.measured) },
      { name: "Without", number: true, cell: (r) => watts(r.without) },
      { name: "Interval", number: true, cell: (r) => (r.low === null ? none : interval(r.low, r.high)) },
      { name: "Modelled", number: true, cell: (r) => watts(r.modelled) },
    ], rows(t, without)));
}

// plot has a readout of what the pointer is at. The table has the same figures for others.
function plot(height, label, data, series, describe) {
  const readout = h("p", { class: "readout", "aria-hidden": "true" });
  const place = h("div", { class: "plot", role: "img", "aria-label": label, style: { "min-height": height + "px" } });
  draw(place, height, (width) => new uPlot(options(width, height, series, readout, describe), data, place));
  return [place, readout];
}

// draw makes the plot once its place is known, and follows its width.
function draw(place, height, make) {
  let plot = null;
  const watch = new ResizeObserver(() => {
    const width = Math.floor(place.clientWidth);
    if (!place.isConnected) { watch.disconnect(); if (plot) plot.destroy(); return; }
    if (width < 50) return;
    if (!plot) { plot = make(width); return; }
    if (plot.width !== width) plot.setSize({ width, height });
  });
  watch.observe(place);
}

function words(t, without, has) {
  const last = (values) => { for (let i = values.length - 1; i >= 0; i--) if (values[i] !== null) return values[i]; return null; };
  const parts = [`Power from ${clockTime(new Date(t.times[0] * 1000))} to ${clockTime(new Date(t.times[t.times.length - 1] * 1000))}`];
  if (has.measured) parts.push(`last measured ${number(last(t.measured))} watts`);
  if (has.saved) parts.push(`without Joulevirt ${number(last(without.value))} watts, ${interval(last(without.low), last(without.high))}`);
  if (has.modelled) parts.push(`modelled ${number(last(t.modelled))} watts`);
  return parts.join(", ") + ". The table below has the figures.";
}

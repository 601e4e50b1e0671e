// Builds what is shown. Text is always set as text: names of objects are anybody's.

const svgNames = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "style") for (const [key, of] of Object.entries(value)) element.style.setProperty(key, of);
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat(Infinity)) {
    if (child !== undefined && child !== null && child !== false && child !== "") element.append(child);
  }
  return element;
}

export const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
export const svg = (tag, attributes, ...children) => fill(document.createElementNS(svgNames, tag), attributes, children);

// table has columns {name, number, words, extra, isName, cell(row)}. One with words stacks its cells
// where it is narrow, and is a table to screen readers still; others scroll by themselves.
export function table(caption, columns, rows, { hideCaption } = {}) {
  const kind = (c) => [c.number && "number", c.words && "words", c.extra && "extra", c.isName && "name"].filter(Boolean).join(" ") || undefined;
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h("table", { role: "table", class: columns.some((c) => c.words) ? "stacks" : undefined },
      h("caption", { class: hideCaption ? "hidden" : undefined }, caption),
      h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, columns.map((c) => h("th", { role: "columnheader", scope: "col", class: kind(c) }, c.name)))),
      h("tbody", { role: "rowgroup" }, rows.map((row) => h("tr", { role: "row" }, columns.map((c) => h("td", { role: "cell", class: kind(c), "data-label": c.name }, c.cell(row))))))));
}

// asTable is the alternative of a chart.
export const asTable = (key, caption, columns, rows) =>
  h("details", { "data-key": key }, h("summary", { "data-key": "summary " + key }, "Show as table"), table(caption, columns, rows));

export const badge = (text, kind) => h("span", { class: "badge " + (kind || "") }, text);

const badStates = { Failed: "bad", Blocked: "note", Pending: "note", Recommended: "note", InForce: "good", Adopted: "good", Rejected: "bad", OnTrial: "note" };
export const stateBadge = (state) => badge(state, badStates[state]);

// empty says that there is nothing to show, why, and what to do.
export const empty = (what, next, command) =>
  h("section", { class: "card empty" }, h("p", {}, h("strong", {}, what)), h("p", {}, next), command && h("pre", { tabindex: "0" }, h("code", {}, command)));

// why is a reason in sentences.
export const why = (w) => h("div", { class: "why" },
  h("span", {}, [w.means, w.message].filter(Boolean).join(" ")), w.next && h("span", { class: "next" }, w.next));

export const none = "not known";

// number has three significant digits, and all before the point, as kubectl joulevirt has.
export function number(value) {
  if (value === undefined || value === null || !isFinite(value)) return none;
  const digits = value === 0 ? 0 : Math.max(2 - Math.floor(Math.log10(Math.abs(value))), 0);
  let text = value.toFixed(Math.min(digits, 9));
  if (text.includes(".")) text = text.replace(/0+$/, "").replace(/\.$/, "");
  const [whole, part] = text.split(".");
  return whole.replace(/\B(?=(\d{3})+(?!\d))/g, "\u202f").replace("-", "\u2212") + (part ? "." + part : "");
}

export const decimal = (text) => (text === undefined ? none : number(Number(text)));
export const interval = (low, high) => `${number(Number(low))} to ${number(Number(high))}`;
export const count = (n, thing) => `${number(n)} ${thing}${n === 1 ? "" : "s"}`;

export function bits(value) {
  if (value === undefined || value === null) return none;
  const units = ["bit/s", "kbit/s", "Mbit/s", "Gbit/s"];
  let i = 0;
  while (Math.abs(value) >= 1000 && i < units.length - 1) { value /= 1000; i++; }
  return number(value) + " " + units[i];
}

export function age(seconds) {
  if (seconds === undefined || seconds === null) return none;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} days`;
}

export const clockTime = (date) => date.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });

// pager steps through what is sent in parts. go is called with the index of the first item.
export function pager(part, thing, go) {
  if (part.total <= part.size) return h("p", { class: "hint" }, count(part.total, thing));
  const last = Math.min(part.from + part.items.length, part.total);
  return h("div", { class: "pager" },
    h("button", { class: "quiet", type: "button", "data-key": "previous", disabled: part.from === 0, onclick: () => go(Math.max(part.from - part.size, 0)) }, "Previous"),
    h("span", {}, `${number(part.from + 1)} to ${number(last)} of ${count(part.total, thing)}`),
    h("button", { class: "quiet", type: "button", "data-key": "next", disabled: last >= part.total, onclick: () => go(part.from + part.size) }, "Next"));
}

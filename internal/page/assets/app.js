// Chooses the view by the address, reads what it shows, and reads it again while the page is visible.
import { empty, h, count } from "./dom.js";
import { overview } from "./overview.js";
import { nodes } from "./nodes.js";
import { node } from "./node.js";
import { groups } from "./groups.js";
import { trials } from "./trials.js";
import { reach } from "./reach.js";

const every = 30000; // milliseconds between two reads
const views = { overview, nodes, node, groups, trials, reach };
const titles = { overview: "Overview", nodes: "Nodes", node: "Node", groups: "Groups", trials: "Trials", reach: "Reach" };
const main = document.getElementById("main");
const policies = document.getElementById("policy");
let shown = "";     // what is on the screen, to leave it where it is the same
let place = "";     // the address that is on the screen
let stale = false;  // what is on the screen has the colours of before
let latest = 0;     // counts reads: a late answer is dropped
let readAt = null;  // when the last answer came

class Problem extends Error {}

async function get(path, query) {
  let answer;
  try {
    answer = await fetch(path + "?" + new URLSearchParams(query || {}), { headers: { Accept: "application/json" } });
  } catch {
    throw new Problem("The manager does not answer. What is shown is of before; it is tried again each half minute. See that its pods run: kubectl -n joulevirt-system get pods.");
  }
  let body = {};
  try { body = await answer.json(); } catch { /* an answer of a proxy between */ }
  if (answer.ok) return body;
  if (answer.status === 401 || (answer.status === 500 && !body.message)) throw new Problem("The manager does not accept the token: open the page again by kubectl joulevirt page.");
  if (answer.status === 403) throw new Problem("You may not read this page: ask your admin for the right to get the non-resource URL /page/*, which ClusterRole joulevirt-page-reader has.");
  throw new Problem(body.message || `The manager's address answers ${answer.status}: try again in a moment.`);
}

// where reads the address: #/view/name?key=value
function where() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const [view, name] = path.split("/");
  const params = new URLSearchParams(query || "");
  let decoded = "";
  try { decoded = decodeURIComponent(name || ""); } catch { /* a link that was cut */ }
  return { view: views[view] ? view : "overview", name: decoded, params };
}

function go(changes) {
  const at = where();
  for (const [key, value] of Object.entries(changes)) {
    if (value === "" || value === 0 || value === undefined) at.params.delete(key); else at.params.set(key, value);
  }
  const query = at.params.toString();
  location.hash = "#/" + at.view + (at.name ? "/" + encodeURIComponent(at.name) : "") + (query ? "?" + query : "");
}

const link = (view, name) => {
  const policy = where().params.get("policy");
  return "#/" + view + (name ? "/" + encodeURIComponent(name) : "") + (policy ? "?policy=" + encodeURIComponent(policy) : "");
};

function choosePolicy(summary, at) {
  const names = summary.policies.map((p) => p.name);
  const wanted = at.params.get("policy");
  // Without a wish: the one that governs most nodes.
  const most = [...summary.policies].sort((x, y) => y.nodes - x.nodes)[0];
  const chosen = names.includes(wanted) ? wanted : most && most.name;
  if (policies.dataset.names !== JSON.stringify(names)) {
    policies.replaceChildren(...names.map((name) => h("option", { value: name }, name)));
    policies.dataset.names = JSON.stringify(names);
  }
  policies.disabled = names.length === 0;
  if (chosen) policies.value = chosen;
  return chosen;
}

function notice(kind, text) { return h("p", { class: "notice " + kind }, text); }

function notify(summary, problem) {
  const lines = [];
  if (problem) lines.push(notice("bad", problem));
  if (summary && !summary.led) lines.push(notice("bad", "No manager leads: figures are as the last one left them. See kubectl joulevirt doctor."));
  if (summary && summary.led && !summary.leads) lines.push(notice("note", "This manager stands by: load of cores and modelled power are known to the one that leads, which kubectl joulevirt page opens."));
  for (const gap of (summary && summary.gaps) || []) lines.push(notice("note", gap.of + ": " + gap.message));
  const box = document.getElementById("notices");
  const text = lines.map((l) => l.textContent).join("\n");
  if (box.dataset.text !== text) { box.replaceChildren(...lines); box.dataset.text = text; }
}

const nothing = (summary) => empty("There is no EnergyPolicy.",
  `Nothing is changed on any node; the agents of ${count(summary.reports, "node")} report. A policy in mode Observe changes nothing either, and shows what could be saved:`,
  "kubectl apply --filename=policies/observe.yaml");

// draw shows a view, and leaves open what was open, and the focus where it was: on the element
// with the same key, or where no such element is, on the one at the same place.
function draw(content, isNew) {
  const open = isNew ? [] : [...main.querySelectorAll("details[open]")].map((d) => d.dataset.key);
  const controls = () => [...main.querySelectorAll("a[href], button, select, input, summary, [tabindex]")];
  const focused = !isNew && main.contains(document.activeElement) && document.activeElement !== main ? document.activeElement : null;
  const at = focused && controls().indexOf(focused);
  const selection = focused && focused.tagName === "INPUT" ? [focused.selectionStart, focused.selectionEnd, focused.value] : null;
  main.replaceChildren(...content);
  for (const d of main.querySelectorAll("details")) if (open.includes(d.dataset.key)) d.open = true;
  if (!focused) return;
  const e = controls().find((c) => c.dataset.key && c.dataset.key === focused.dataset.key) || controls()[at];
  if (!e) return;
  e.focus({ preventScroll: true });
  if (selection && e.tagName === "INPUT") { e.value = selection[2]; e.setSelectionRange(selection[0], selection[1]); }
}

async function refresh() {
  const mine = ++latest;
  const at = where();
  let summary;
  try {
    summary = await get("data/summary");
    if (mine !== latest) return;
    const policy = choosePolicy(summary, at);
    const context = { get, go, link, summary, policy, name: at.name, params: at.params };
    const view = !policy && at.view !== "nodes" && at.view !== "node" ? null : views[at.view];
    const found = view ? await view.read(context) : {};
    if (mine !== latest) return;
    const address = location.hash + " " + policy;
    const text = address + JSON.stringify(found, (key, value) => (key === "now" ? undefined : value));
    readAt = new Date();
    notify(summary);
    if (text !== shown || stale) {
      const isNew = place.split("?")[0] !== address.split("?")[0];
      draw([view ? view.show(context, found) : [h("h1", {}, titles[at.view]), nothing(summary)]].flat(Infinity).filter(Boolean), isNew);
      if (isNew && place) main.focus({ preventScroll: true });
      if (isNew && place) window.scrollTo(0, 0);
      [shown, place, stale] = [text, address, false];
    }
    document.documentElement.dataset.drawn = at.view;
  } catch (error) {
    if (mine !== latest) return;
    if (!(error instanceof Problem)) console.error(error);
    notify(summary, error instanceof Problem ? error.message : "This view cannot be shown: " + error.message);
    if (!shown) main.replaceChildren(h("h1", {}, titles[at.view]));
  }
  foot(summary);
}

function foot(summary) {
  const parts = ["Read only"];
  if (summary) parts.push("manager " + summary.version);
  if (readAt) parts.push("read at " + readAt.toLocaleTimeString([], { hourCycle: "h23" }) + ", again each 30 s");
  document.getElementById("source").textContent = parts.join(" · ");
}

function mark() {
  const at = where();
  document.title = (at.name || titles[at.view]) + " · Joulevirt";
  for (const a of document.querySelectorAll("#views a")) {
    const view = a.getAttribute("href").replace(/^#\//, "").split("?")[0];
    a.setAttribute("href", link(view));
    if (view === (at.view === "node" ? "nodes" : at.view)) a.setAttribute("aria-current", "page"); else a.removeAttribute("aria-current");
  }
}

const theme = document.getElementById("theme");
theme.value = document.documentElement.dataset.theme || "auto";
theme.addEventListener("change", () => {
  if (theme.value === "auto") { delete document.documentElement.dataset.theme; localStorage.removeItem("joulevirt-theme"); }
  else { document.documentElement.dataset.theme = theme.value; localStorage.setItem("joulevirt-theme", theme.value); }
  stale = true;
  refresh();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { stale = true; refresh(); });
policies.addEventListener("change", () => go({ policy: policies.value, from: 0 }));
window.addEventListener("hashchange", () => { mark(); refresh(); });
document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); main.focus(); });
setInterval(() => { if (!document.hidden) refresh(); }, every);
document.addEventListener("visibilitychange", () => { if (!document.hidden && readAt && Date.now() - readAt > every) refresh(); });
mark();
refresh();

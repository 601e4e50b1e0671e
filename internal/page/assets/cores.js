// Draws the cores of a node by load, with pools and pins.
import { age, asTable, count, h, none, number } from "./dom.js";

const percent = (core) => (core.busyPercent === undefined ? none : Math.round(core.busyPercent) + " %");
const groupName = (g, all) => [
  all.some((x) => x.package !== g.package) && `package ${g.package}`, all.some((x) => x.numa !== g.numa) && `NUMA node ${g.numa}`,
  `cache ${g.llc}`, g.class && g.class.toLowerCase() + " cores"].filter(Boolean).join(", ");

function cell(core) {
  const kind = ["core", core.pool && core.pool.toLowerCase(), core.excluded && "kept"].filter(Boolean).join(" ");
  const known = core.busyPercent !== undefined;
  const busy = Math.min(Math.max(core.busyPercent || 0, 0), 100);
  return h("li", { class: kind, title: describe(core) },
    known && busy >= 1 && h("div", { class: "fill", style: { width: busy.toFixed(0) + "%" } }),
    h("b", {}, known ? Math.round(core.busyPercent) + " %" : "\u2013"), h("span", { class: "in" }, core.cpus),
    h("span", { class: "in" }, core.count ? count(core.count, "pin") : core.excluded ? "excluded" : ""));
}

function describe(core) {
  return [`CPUs ${core.cpus}`, `load ${percent(core)}`, core.pool && `pool ${core.pool}`, core.excluded, core.count && pins(core)].filter(Boolean).join(", ");
}

const pins = (core) => (core.pins || []).join(", ") + (core.count > (core.pins || []).length ? ` and ${core.count - core.pins.length} more` : "");

function legend(groups) {
  const cores = groups.flatMap((g) => g.cores);
  return h("ul", { class: "legend" },
    cores.some((c) => c.busyPercent !== undefined) && h("li", {}, h("span", { class: "swatch load" }), "Load: bar"),
    cores.some((c) => c.pool === "Network") && h("li", {}, h("span", { class: "swatch network" }), "Pool Network: solid frame"),
    cores.some((c) => c.pool === "Compute") && h("li", {}, h("span", { class: "swatch compute" }), "Pool Compute: dashed frame"),
    cores.some((c) => c.excluded) && h("li", {}, h("span", { class: "swatch kept" }), "Excluded from pins: dotted frame"));
}

export function coresChart(cores, now) {
  const rows = cores.groups.flatMap((g) => g.cores.map((core) => ({ group: groupName(g, cores.groups), core })));
  const load = cores.receivedAt ? `Load by the node's agent, ${age(Math.max((new Date(now) - new Date(cores.receivedAt)) / 1000, 0))} old`
    : "Load is unknown: the agent sent nothing in the last minute, or this manager stands by";
  return h("figure", { class: "chart" },
    h("p", { class: "hint" }, load + ". Each field is a physical core: its load, its CPUs, and the vCPUs that are bound to it."),
    legend(cores.groups),
    h("div", { class: "coregroups" }, cores.groups.map((g) => h("div", { class: "coregroup" },
      h("h3", {}, `${groupName(g, cores.groups)}: ${count(g.cores.length, "core")}`.replace(/^./, (c) => c.toUpperCase())), h("ul", { class: "cores" }, g.cores.map(cell))))),
    asTable("cores", "Cores of the node", [
      { name: "CPUs", cell: (r) => r.core.cpus }, { name: "Load", number: true, cell: (r) => percent(r.core) },
      { name: "Pool", cell: (r) => r.core.pool || "none" }, { name: "Excluded from pins", cell: (r) => r.core.excluded || "no" },
      { name: "Pins", words: true, cell: (r) => (r.core.count ? pins(r.core) : "none") }, { name: "Part", extra: true, cell: (r) => r.group },
    ], rows));
}

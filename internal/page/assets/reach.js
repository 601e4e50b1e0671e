// Shows which VMs each lever reaches, which not, and why.
import { asTable, count, empty, h, number, why } from "./dom.js";

const share = (n, of) => (of ? n / of * 100 : 0);

function bar(c) {
  const rest = c.vms - c.reachedVMs;
  return h("div", { class: "row" },
    h("span", { class: "label" }, h("strong", {}, c.lever), h("span", { class: "hint" }, `acts on ${number(c.reachedVMs)} of ${count(c.vms, "VM")}` +
      (c.reachedBytesPercent === undefined ? "" : `, ${number(c.reachedBytesPercent)} % of the traffic`))),
    h("div", { class: "stack" },
      c.reachedVMs > 0 && h("div", { class: "part reached", style: { width: share(c.reachedVMs, c.vms) + "%" } }),
      c.missed.map((m) => h("div", { class: "part missed", title: `${m.reason}: ${m.count}`, style: { width: share(Math.min(m.count, rest), c.vms) + "%" } }, share(m.count, c.vms) > 15 && `${m.reason} ${number(m.count)}`))));
}

function reasons(c) {
  if (!c.missed.length) return h("p", {}, c.vms ? "The lever acts on all VMs." : "No VM runs on the nodes of this policy.");
  return h("ul", { class: "reasons" }, c.missed.map((m) => h("li", {}, h("strong", {}, `${count(m.count, "VM")}: ${m.reason}`), why(m))));
}

export const reach = {
  read: ({ get, policy }) => get("data/policy", { name: policy }),
  show({ policy }, view) {
    if (!view.coverage.length) {
      return [h("h1", {}, "Reach"), empty("There is no coverage yet.", "The manager reports which VMs levers reach once a profile selects VMs on nodes of this policy.", "kubectl get vmnetworkprofile --all-namespaces")];
    }
    return [h("h1", {}, "Reach"), h("section", { class: "card" }, h("h2", {}, "VMs that levers act on"),
      h("p", { class: "hint" }, `Of the VMs on nodes of policy ${policy}. VMs without a profile, or that a lever would not help, are left alone: that is no fault.`),
      h("figure", { class: "chart" },
        h("ul", { class: "legend" }, h("li", {}, h("span", { class: "swatch", style: { background: "var(--accent)" } }), "Acts"), h("li", {}, h("span", { class: "stack swatch" }, h("span", { class: "missed part", style: { width: "100%" } })), "Does not, by reason")),
        h("div", { class: "rows", role: "img", "aria-label": "Parts of the VMs that each lever acts on: the table below has the figures." }, view.coverage.map(bar)),
        asTable("reach", "VMs by lever and reason", [
          { name: "Lever", cell: (r) => r.lever }, { name: "VMs", number: true, cell: (r) => number(r.count) }, { name: "Is", cell: (r) => r.is },
          { name: "Why, and what to do", words: true, cell: (r) => (r.missed ? why(r.missed) : "") },
        ], view.coverage.flatMap((c) => [{ lever: c.lever, count: c.reachedVMs, is: "acts" }, ...c.missed.map((m) => ({ lever: c.lever, count: m.count, is: m.reason, missed: m }))])))),
    h("div", { class: "columns" }, view.coverage.map((c) => h("section", { class: "card" }, h("h2", {}, c.lever), reasons(c))))];
  },
};

// Shows what is done on a node, and why.
import { age, badge, bits, count, h, number, pager, stateBadge, table, why } from "./dom.js";
import { coresChart } from "./cores.js";

const next = (d) => why({ means: d.means, message: d.message, next: d.next });

function decisions(e) {
  if (!e.decisions.length) return h("p", {}, "The plan of this node names no VM: no profile governs one here. kubectl get vmnp -A lists the profiles.");
  return table("What was decided for the VMs of the node, by lever", [
    { name: "Lever", cell: (d) => d.lever }, { name: "State", cell: (d) => stateBadge(d.state) },
    { name: "VMs", number: true, cell: (d) => (d.vms ? number(d.vms) : "all") }, { name: "Reason", extra: true, cell: (d) => d.reason },
    { name: "Why, and what to do", words: true, cell: next },
  ], e.decisions);
}

const facts = (vm) => [vm.profile && "profile " + vm.profile, vm.pool && "pool " + vm.pool,
  vm.busyCores !== undefined && number(vm.busyCores) + " cores busy", vm.bitsPerSecond !== undefined && bits(vm.bitsPerSecond)].filter(Boolean).join(", ");

const lever = (l) => h("li", {}, h("p", {}, h("strong", {}, l.lever), " ", stateBadge(l.state), " ",
  h("span", { class: "hint" }, [l.reason, l.planned && "planned " + l.planned, l.now && "in force " + l.now].filter(Boolean).join(" \u00b7 "))), next(l));

function vms(part, go) {
  if (!part.total) return null;
  return h("section", { class: "card" }, h("h2", {}, "VMs of the plan"),
    h("p", { class: "hint" }, "Each VM with the levers that act on it. Open one to see what each lever does for it, and why."),
    h("ul", { class: "vms" }, part.items.map((vm) => {
      const acting = (vm.levers || []).filter((l) => l.state === "InForce");
      return h("li", {}, h("details", { "data-key": "vm " + vm.namespace + "/" + vm.name }, h("summary", { "data-key": "summary vm " + vm.namespace + "/" + vm.name },
        h("span", { class: "vm" }, h("strong", {}, vm.namespace + "/" + vm.name), acting.length ? acting.map((l) => badge(l.lever, "good")) : badge("no lever acts")),
        h("span", { class: "hint" }, facts(vm))), h("ul", { class: "reasons" }, (vm.levers || []).map(lever))));
    })), pager(part, "VM", (from) => go({ from })));
}

const basis = (of) => badge(of, of === "Measured" ? "good" : "note");

// energy is what the node draws, and which levers are in force there.
function energy(e, power) {
  const rows = [];
  if (power.watts !== undefined) {
    rows.unshift({ what: "Draws now", lever: "", basis: power.basis, figure: number(power.watts) + " W", interval: "", note: `${power.source}${power.ageSeconds === undefined ? "" : ", " + age(power.ageSeconds) + " old"}` });
  }
  const acting = e.decisions.filter((d) => d.state === "InForce" && d.vms).map((d) => `${d.lever} on ${count(d.vms, "VM")}`).join(", ");
  return h("section", { class: "card" }, h("h2", {}, "Energy"),
    h("p", { class: "hint" }, acting ? `In force now: ${acting}.` : "No lever is in force on this node now."),
    rows.length ? table("What the node draws", [
      { name: "What", cell: (r) => r.what }, { name: "Lever", cell: (r) => r.lever || "\u2013" }, { name: "Basis", cell: (r) => basis(r.basis) },
      { name: "Figure", number: true, cell: (r) => r.figure }, { name: "Interval", number: true, cell: (r) => r.interval || "\u2013" },
      { name: "Means", words: true, cell: (r) => r.note },
    ], rows, { hideCaption: true }) : h("p", {}, "This node's power is unknown."));
}

function trials(e) {
  if (!e.switched || !e.switched.length) return null;
  return h("section", { class: "card" }, h("h2", {}, "Trials and hold-backs on this node"), table("Levers that are switched on and off", [
    { name: "Lever", cell: (t) => t.lever }, { name: "Now", cell: (t) => badge(t.on ? "On" : "Off", t.on ? "good" : "") },
    { name: "Off slots", number: true, cell: (t) => `1 of ${t.oneIn}` },
    { name: "Slot ends", cell: (t) => new Date(t.end).toLocaleString([], { dateStyle: "short", timeStyle: "short", hourCycle: "h23" }) },
  ], e.switched, { hideCaption: true }));
}

function withdrawn(e) {
  if (!e.withdrawn || !e.withdrawn.length) return null;
  return h("section", { class: "card" }, h("h2", {}, "Withdrawn, because they did harm"), table("Levers that were withdrawn", [
    { name: "Lever", cell: (w) => w.lever }, { name: "Sign", cell: (w) => w.sign },
    { name: "Until", cell: (w) => new Date(w.until).toLocaleString([], { dateStyle: "short", timeStyle: "short", hourCycle: "h23" }) },
    { name: "Evidence", words: true, cell: (w) => w.message || "" },
  ], e.withdrawn, { hideCaption: true }));
}

export const node = {
  read: ({ get, name, params }) => get("data/node", { name, from: params.get("from") || "0" }),
  show({ go, link, name, summary }, found) {
    const e = found.explanation;
    return [
      h("p", {}, h("a", { href: link("nodes"), "data-key": "back" }, "Nodes")), h("h1", {}, name),
      (e.gaps || []).map((gap) => h("p", { class: "notice note" }, gap.of + ": " + gap.message)),
      energy(e, found.power),
      h("section", { class: "card" }, h("h2", {}, "Cores"), found.cores ? coresChart(found.cores, summary.now)
        : h("p", {}, "The node's agent has not reported its cores. Check that its pod runs there: kubectl -n joulevirt-system get pods -o wide.")),
      h("section", { class: "card" }, h("h2", {}, "Decisions"), decisions(e)),
      trials(e), withdrawn(e), vms(found.vms, go),
      h("section", { class: "card" }, h("h2", {}, "Inputs of the decisions"),
        h("dl", { class: "facts" }, e.inputs.map((i) => [h("dt", {}, i.name), h("dd", {}, i.value)]))),
    ];
  },
};

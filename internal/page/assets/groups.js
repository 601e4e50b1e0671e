// Shows how the traffic of groups is shared, before and after.
import { asTable, badge, empty, h, none, number, pager, stateBadge, table, why } from "./dom.js";
import { at, axis, mark, sample, ticks, track } from "./scale.js";

const mostRows = 12; // of a group's chart: the table has all

const ready = (s) => s.reason !== "MemberNotReady";
const percent = (perMille) => (perMille === undefined || perMille === null ? none : number(perMille / 10) + " %");

function legend(measured) {
  return h("ul", { class: "legend" },
    h("li", {}, sample(mark.bar(13, 10, "strong-line")), "Equal shares, without Joulevirt"),
    measured && h("li", {}, sample(mark.ring(13, 10, "without")), "Carries now, measured"),
    h("li", {}, sample(mark.dot(13, 10, "measured")), "Planned"));
}

function shares(group) {
  const all = group.shares;
  if (!all.length) return null;
  const equal = group.ready ? 1000 / group.ready : 0;
  const most = Math.max(equal, ...all.map((s) => Math.max(s.perMille, s.measuredPerMille || 0)), 10) / 10;
  const steps = ticks(0, most, 4);
  const domain = [0, steps[steps.length - 1]];
  const x = (perMille) => at(perMille / 10, domain);
  const name = `${group.namespace}/${group.name}`;
  const rows = all.slice(0, mostRows).map((s) => h("div", { class: "row" },
    h("span", { class: "label" }, s.name, h("span", { class: "hint" }, ready(s) ? s.node || "" : "not ready")),
    track(26, steps, domain,
      s.measuredPerMille !== undefined && mark.span(x(s.measuredPerMille), x(s.perMille), 13, "strong-line", "2 3"),
      ready(s) && mark.bar(x(equal), 13, "strong-line"),
      mark.dot(x(s.perMille), 13, "measured"),
      s.measuredPerMille !== undefined && mark.ring(x(s.measuredPerMille), 13, "without"))));
  const rest = group.members - Math.min(all.length, mostRows);
  return h("figure", { class: "chart" }, legend(all.some((s) => s.measuredPerMille !== undefined)),
    h("div", { class: "rows", role: "img", "aria-label": `Shares of the members of ${name}: the table below has the figures.` }, rows, axis("Share of traffic", steps, domain, (t) => t + " %")),
    rest > 0 && h("p", { class: "hint" }, `and ${number(rest)} more VMs${all.length > mostRows ? ", of which the table has the largest" : ""}`),
    asTable("shares " + name, "Shares of traffic of " + name, [
      { name: "VM", isName: true, cell: (s) => s.name }, { name: "Node", extra: true, cell: (s) => s.node || "" }, { name: "Ready", cell: (s) => (ready(s) ? "yes" : "no") },
      { name: "Equal", number: true, cell: (s) => (ready(s) ? percent(equal) : "0 %") }, { name: "Carries now", number: true, cell: (s) => percent(s.measuredPerMille) },
      { name: "Planned", number: true, cell: (s) => percent(s.perMille) }, { name: "Reason", cell: (s) => s.reason },
    ], all));
}

function card(group) {
  return h("section", { class: "card" },
    h("div", { class: "headline" }, h("h2", {}, `${group.namespace}/${group.name}`), group.state && stateBadge(group.state), h("span", { class: "muted" }, group.target)),
    h("dl", { class: "facts" },
      h("dt", {}, "Members"), h("dd", {}, `${number(group.members)}, of which ${number(group.ready)} are ready and ${number(group.active)} get new traffic`),
      group.savedWatts !== undefined && [h("dt", {}, "Saves"), h("dd", {}, `${number(group.savedWatts)} W against equal shares `, badge("Modelled", "note"))],
      h("dt", {}, "Why"), h("dd", {}, why(group.why))),
    shares(group));
}

function withdrawn(gateways) {
  if (!gateways) return null;
  return h("section", { class: "card" }, h("h2", {}, "Gateways withdrawn, because they did harm"), table("VMs whose gateways were withdrawn", [
    { name: "VM", isName: true, cell: (g) => `${g.namespace}/${g.vm}` }, { name: "HybridWorkload", cell: (g) => g.hybridWorkload },
    { name: "Node", extra: true, cell: (g) => g.node }, { name: "Why, and what to do", words: true, cell: (g) => why(g.why) },
  ], gateways, { hideCaption: true }));
}

export const groups = {
  read: ({ get, params }) => get("data/groups", { find: params.get("find") || "", from: params.get("from") || "0" }),
  show({ go, params }, found) {
    const find = params.get("find") || "";
    if (!found.total && !find) {
      return [h("h1", {}, "Groups"), withdrawn(found.withdrawn), empty("No profile declares a group.", "VMs that are interchangeable behind a Service or a route say so in spec.group of their VMNetworkProfile; then traffic can be brought together where it costs less.", "kubectl explain vmnetworkprofile.spec.group")];
    }
    let waiting;
    const search = h("input", { id: "find", type: "search", "data-key": "find", value: find, oninput: (event) => {
      clearTimeout(waiting);
      const value = event.target.value;
      waiting = setTimeout(() => go({ find: value, from: 0 }), 300);
    } });
    return [h("h1", {}, "Groups"), h("p", { class: "hint" }, "Groups of all policies, by the statuses of their profiles."), withdrawn(found.withdrawn),
      (found.total > 1 || find) && h("div", { class: "tools" }, h("label", { class: "field", for: "find" }, h("span", {}, "Find by name"), search)),
      found.items.map(card), found.total ? pager(found, "group", (from) => go({ from })) : h("p", {}, `No group has a name with \u201c${find}\u201d.`)];
  },
};

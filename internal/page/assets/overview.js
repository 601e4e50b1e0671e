// What the nodes of a policy draw with and without the product, and what was booked.
import { badge, clockTime, count, decimal, h, interval, none, number, table, why } from "./dom.js";
import { at, axis, mark, sample, track } from "./scale.js";
import { trendChart } from "./trend.js";

const monthNow = () => new Date().toISOString().slice(0, 7);

function tile(name, value, unit, ...hints) {
  const known = value !== none;
  return h("section", { class: "card tile" }, h("h2", {}, name),
    h("p", { class: known ? "value" : "value none" }, value, known && unit && h("span", { class: "unit" }, " " + unit)),
    hints.filter(Boolean).map((hint) => h("p", { class: "hint" }, hint)));
}

function powerTile(view, summary) {
  const e = view.energy;
  const sources = view.sources.filter((s) => s.available && s.type !== "Model").map((s) => s.type).join(", ");
  if (e.watts === undefined) {
    const first = view.sources.find((s) => s.reason);
    return tile("Power now", none, "", e.nodes === 0 ? "The policy governs no node." : (first && first.means) || "No meter measures the nodes of this policy.", first && first.next);
  }
  const at = new Date(summary.now).toLocaleTimeString([], { hourCycle: "h23" });
  return tile("Power now", number(e.watts), "W", `Measured on ${number(e.metered)} of ${count(e.nodes, "node")}${sources ? " by " + sources : ""}, read at ${at}`);
}

function savedTile(view) {
  if (!view.proven) {
    const proven = view.conditions.find((c) => c.type === "SavingsProven");
    return tile("Saved now", "nothing proven", "", proven ? proven.means : "No lever was measured to save yet.", proven && proven.next);
  }
  return tile("Saved now", number(view.proven.watts), "W", `${interval(view.proven.low, view.proven.high)} W, measured by trials`,
    "Of what the metered nodes draw now");
}

function bookedTile(view) {
  const of = (basis) => (view.savings.booked || []).find((b) => b.basis === basis && b.period === monthNow());
  const measured = of("Measured"), modelled = of("Modelled");
  const beside = modelled && `Beside, modelled (proves nothing): ${decimal(modelled.kilowattHours.value)} kWh`;
  if (!measured) return tile("Booked this month", modelled ? "nothing measured" : "nothing yet", "", beside || "What levers save is booked while they act and are verified.");
  const e = measured.kilowattHours;
  return tile("Booked this month", decimal(e.value), "kWh", `${interval(e.low, e.high)} kWh, measured`, beside);
}

function gigabyteTile(view) {
  const total = (view.savings.booked || []).find((b) => b.basis === "Measured" && b.period === monthNow());
  const without = total && total.joulesPerGBWithout;
  return tile("Energy for a gigabyte", number(view.energy.joulesPerGB), "J/GB", view.energy.joulesPerGB === undefined
    ? "Needs metered nodes with traffic of VMs." : "All energy of metered nodes by their VMs' traffic, now",
    without && `This month ${decimal(total.joulesPerGB)} J/GB, without Joulevirt ${decimal(without.value)} (${interval(without.low, without.high)})`);
}


function bookedTable(savings) {
  const rows = [];
  const unit = savings.tariff && savings.tariff.currency ? " " + savings.tariff.currency : "";
  for (const b of savings.booked || []) {
    const estimate = (e, unit) => (e ? `${decimal(e.value)}${unit || ""}` : "");
    const of = { period: b.period, basis: b.basis };
    rows.push({ ...of, first: true, what: "All levers", e: b.kilowattHours, cost: estimate(b.cost, unit), co2: estimate(b.kilogramsCO2) });
    for (const l of b.levers || []) rows.push({ ...of, what: l.lever, e: l.kilowattHours });
  }
  if (!rows.length) return h("p", {}, "Nothing is booked yet. In mode Enforce levers are tried first; in Observe and Recommend nothing acts by itself.");
  const priced = rows.some((r) => r.cost), emits = rows.some((r) => r.co2);
  return table("Intervals of 95 % confidence", [
    { name: "Period", cell: (r) => h("span", { class: r.first ? "" : "hidden" }, r.period) },
    { name: "Basis", cell: (r) => h("span", { class: r.first ? "" : "hidden" }, badge(r.basis, r.basis === "Measured" ? "good" : "note")) },
    { name: "Of", cell: (r) => (r.first ? h("strong", {}, r.what) : r.what) },
    { name: "kWh", number: true, cell: (r) => decimal(r.e.value) },
    { name: "Interval", number: true, cell: (r) => interval(r.e.low, r.e.high) },
    priced && { name: "Cost", number: true, extra: true, cell: (r) => r.cost || "" },
    emits && { name: "kg CO\u2082e", number: true, extra: true, cell: (r) => r.co2 || "" },
  ].filter(Boolean), rows);
}

function rates(savings) {
  const rows = [...savings.proven.map((s) => ({ ...s, is: "saves", basis: "Measured" })), ...savings.potential.map((s) => ({ ...s, is: "could save", basis: "Modelled" }))];
  if (!rows.length) return null;
  const hoursPerMonth = 365.25 * 24 / 12;
  return h("section", { class: "card" }, h("h2", {}, "Levers"), table("What levers save of what the nodes draw now, and could save", [
    { name: "Lever", cell: (s) => s.lever },
    { name: "Is", cell: (s) => s.is },
    { name: "Basis", cell: (s) => badge(s.basis, s.basis === "Modelled" ? "note" : "good") },
    { name: "W", number: true, cell: (s) => number(Number(s.watts.value)) },
    { name: "Interval", number: true, cell: (s) => interval(s.watts.low, s.watts.high) },
    { name: "kWh a month", number: true, extra: true, cell: (s) => number(s.watts.value / 1e3 * hoursPerMonth) },
  ], rows));
}

// findings are what wastes energy before any lever acts.
function findings(view) {
  if (!view.findings.length) return null;
  const cost = (f) => (f.watts !== undefined ? `${number(f.watts)} W` : f.lostCores ? `${decimal(f.lostCores)} CPUs` : "not known");
  return h("section", { class: "card" }, h("h2", {}, "Findings"), table("What wastes energy before any lever acts, the costliest first", [
    { name: "Finding", cell: (f) => f.reason },
    { name: "On", words: true, cell: (f) => f.objects.slice(0, 3).join(", ") + (f.count > 3 ? ` and ${number(f.count - 3)} more` : "") },
    { name: "Costs", number: true, cell: cost },
    { name: "Basis", cell: (f) => (f.basis ? badge(f.basis, f.basis === "Measured" ? "good" : "note") : "") },
    { name: "Seen", extra: true, words: true, cell: (f) => f.message },
    { name: "What to change, and who can", words: true, cell: (f) => `${f.remedy} (${f.changedBy})` },
  ], view.findings));
}

const vmOf = (move) => `${move.namespace}/${move.name}`;
const clock = (time) => new Date(time).toLocaleTimeString([], { hourCycle: "h23" });

// Moves that were made are marks on the axis of the last day, in a row for each end that they came to.
const ends = [
  { name: "Succeeded", has: ["Succeeded"], point: (x, y) => mark.dot(x, y, "measured"), kind: "good" },
  { name: "Failed or withdrawn", has: ["Failed", "Withdrawn"], point: (x, y) => mark.ring(x, y, "without"), kind: "bad" },
  { name: "Under way", has: ["Pending", "Running"], point: (x, y) => mark.bar(x, y, "strong-line"), kind: "note" },
];

function madeChart(made, now) {
  const hour = 3600 * 1000, domain = [now - 24 * hour, now];
  const steps = [24, 18, 12, 6, 0].map((before) => now - before * hour);
  const x = (move) => at(Math.min(Math.max(new Date(move.createdAt), domain[0]), now), domain);
  const drawn = ends.map((end) => ({ ...end, moves: made.filter((m) => end.has.includes(m.phase)) })).filter((end) => end.moves.length);
  return h("figure", { class: "chart" }, h("ul", { class: "legend" }, drawn.map((end) => h("li", {}, sample(end.point(13, 10)), end.name))),
    h("div", { class: "rows", role: "img", "aria-label": "When the moves of the last day began: the table below has the figures." },
      drawn.map((end) => h("div", { class: "row" }, h("span", { class: "label" }, h("strong", {}, end.name), " ", number(end.moves.length)),
        track(34, steps, domain, end.moves.map((move) => end.point(x(move), 17))))),
      axis("Began at", steps, domain, (time) => clockTime(new Date(time)))),
    table("Moves of the last day", [
      { name: "VM", isName: true, cell: vmOf }, { name: "From", isName: true, cell: (r) => r.from }, { name: "To", isName: true, cell: (r) => r.to },
      { name: "At", cell: (r) => clock(r.createdAt) }, { name: "Phase", cell: (r) => badge(r.phase, (ends.find((end) => end.has.includes(r.phase)) || {}).kind) },
      { name: "Because", extra: true, cell: (r) => r.reason },
    ], made));
}

// hosts are those that are not on, or do not come back: the others are counted.
function hosts(m) {
  if (!m.hosts.length && !m.hostsManaged) return null;
  const not = m.hosts.filter((host) => host.state !== "On");
  return [h("h3", {}, "Power of hosts"), h("p", { class: "hint" }, `${number(m.hosts.length - not.length)} of ${count(m.hosts.length, "host")} are on. ${m.hostsManaged || ""}`),
    not.length > 0 && table("Hosts that are not on", [
      { name: "Node", isName: true, cell: (host) => host.node }, { name: "State", cell: (host) => badge(host.state, host.state === "Failed" ? "bad" : "note") },
      { name: "Since", cell: (host) => (host.since ? clock(host.since) : "") }, { name: "Because", cell: (host) => host.reason }, { name: "In words", words: true, cell: (host) => host.message || "" },
    ], not)];
}

// moves are those of VMs by lever Placement, if the policy allows it.
function moves(view, now) {
  const m = view.moves;
  if (!m) return null;
  const watts = m.wattsBefore === undefined ? "What the nodes draw is not known." :
    `The nodes draw ${number(m.wattsBefore)} W now, and ${number(m.wattsAfter)} W after these moves, modelled.`;
  const change = (name, of, extra) => ["before", "after"].map((when) => ({ name: `${name} ${when}`, number: true, extra, cell: (n) => of(n[when]) }));
  return h("section", { class: "card" }, h("h2", {}, "Moves of VMs"), why(m.why),
    m.moves.length > 0 && [h("p", { class: "hint" }, watts), table("Planned, in this order", [
      { name: "VM", isName: true, cell: vmOf }, { name: "From", isName: true, cell: (r) => r.from }, { name: "To", isName: true, cell: (r) => r.to },
      { name: "Saves W", number: true, cell: (r) => number(Number(r.watts)) }, { name: "Because", cell: (r) => r.reason },
      { name: "Takes at most", number: true, extra: true, cell: (r) => r.cost.seconds + " s" },
      { name: "TCP connections", extra: true, cell: (r) => (r.cost.breaksConnections ? "break" : "stay") },
    ], m.moves), table("Nodes before these moves, and after", [
      { name: "Node", isName: true, cell: (n) => n.name }, ...change("VMs", (load) => number(load.vms)), ...change("CPUs", (load) => number(load.cpuPercent) + " %"),
      ...change("W", (load) => decimal(load.watts)),
    ], m.nodes)],
    m.made.length > 0 && madeChart(m.made, now), hosts(m),
    m.stays.length > 0 && table("VMs that stay", [
      { name: "VMs", number: true, cell: (s) => number(s.count) }, { name: "Reason", extra: true, cell: (s) => s.reason }, { name: "Why, and what to do", words: true, cell: (s) => why(s) },
    ], m.stays));
}

// Conditions that are bad when they are true. The others are when they are false.
const badWhenTrue = ["Paused", "NodesContested"];
function attention(c) {
  if (c.type === "SavingsProven") return false;
  return badWhenTrue.includes(c.type) ? c.status === "True" : c.status !== "True";
}

function conditions(view) {
  if (!view.conditions.length) return h("p", {}, "The manager has not evaluated this policy yet: wait a moment.");
  const sorted = [...view.conditions].sort((x, y) => attention(y) - attention(x));
  return table("Conditions of the policy, those that want attention first", [
    { name: "Condition", cell: (c) => c.type },
    { name: "Status", cell: (c) => badge(attention(c) ? c.status + " \u2013 attention" : c.status, attention(c) ? "note" : "") },
    { name: "Reason", extra: true, cell: (c) => c.reason },
    { name: "Why, and what to do", words: true, cell: (c) => why(c) },
  ], sorted);
}

function sources(view) {
  if (!view.sources.length) return null;
  return h("section", { class: "card" }, h("h2", {}, "Energy sources"), table("In the order of the policy", [
    { name: "Source", cell: (s) => s.type },
    { name: "Gives power", cell: (s) => (s.available ? badge("Yes", "good") : s.reason ? badge("No", "note") : badge("Not needed")) },
    { name: "Nodes", number: true, cell: (s) => number(s.nodes) },
    { name: "Why, and what to do", words: true, cell: (s) => (s.reason ? why(s) : "") },
  ], view.sources));
}

export const overview = {
  async read({ get, policy }) {
    const [view, trend] = await Promise.all([get("data/policy", { name: policy }), get("data/trend", { policy })]);
    return { view, trend };
  },
  show({ summary, policy }, { view, trend }) {
    const e = view.energy;
    return [
      h("div", { class: "headline" }, h("h1", {}, policy), badge(e.mode), e.paused && badge("Paused", "note"),
        h("span", { class: "muted" }, `${count(e.nodes, "node")}, ${number(e.metered)} metered · ${view.levers.length ? "levers " + view.levers.join(", ") : "no levers allowed"}`)),
      h("div", { class: "tiles" }, powerTile(view, summary), savedTile(view), bookedTile(view), gigabyteTile(view)),
      h("section", { class: "card" }, h("h2", {}, "Power with and without Joulevirt"),
        h("p", { class: "hint" }, `The last hour, as this manager recorded it since ${new Date(trend.since).toLocaleString([], { dateStyle: "medium", timeStyle: "short", hourCycle: "h23" })}. The dashboards in config/grafana show longer times.`),
        trendChart(trend)),
      h("section", { class: "card" }, h("h2", {}, "Booked savings"), bookedTable(view.savings)),
      rates(view.savings), findings(view), moves(view, new Date(summary.now).getTime()), sources(view),
      h("section", { class: "card" }, h("h2", {}, "State of the policy"), conditions(view)),
    ];
  },
};

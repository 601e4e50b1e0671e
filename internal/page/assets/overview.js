// What the nodes of a policy draw with and without the product, and what was booked.
import { badge, count, decimal, h, interval, none, number, table, why } from "./dom.js";
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
        h("p", { class: "hint" }, trend.source === "Prometheus" ? "The last day, from the policy's Prometheus server."
          : `The last hour, as this manager recorded it since ${new Date(trend.since).toLocaleString([], { dateStyle: "medium", timeStyle: "short", hourCycle: "h23" })}. A day is shown if the policy names a Prometheus server that scrapes the manager. ${trend.problem || ""}`),
        trendChart(trend)),
      h("section", { class: "card" }, h("h2", {}, "Booked savings"), bookedTable(view.savings)),
      rates(view.savings), sources(view),
      h("section", { class: "card" }, h("h2", {}, "State of the policy"), conditions(view)),
    ];
  },
};

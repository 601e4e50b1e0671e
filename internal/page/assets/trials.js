// Shows what experiments found out about levers, as intervals.
import { asTable, decimal, empty, h, interval, number, stateBadge, none } from "./dom.js";
import { at, axis, mark, sample, ticks, track } from "./scale.js";

const meaning = {
  Adopted: "saves: it acts", Rejected: "does not save, or hurts: it does not act", OnTrial: "is being tried", AwaitingTrial: "waits for its trial",
  Undecided: "ended without a verdict: it is tried again", Unproven: "was not tried yet",
};
const colourOf = { Adopted: "measured", Rejected: "without" };
const values = (t) => [t.savedPercent.low, t.savedPercent.value, t.savedPercent.high].map(Number);
const percent = (v) => number(v) + " %";
const hasIntervalOf = (t) => t.savedPercent !== undefined && values(t).every(isFinite);

function chart(trials) {
  const drawn = trials.filter(hasIntervalOf);
  if (!drawn.length) return h("p", {}, "No trial has an interval yet: it takes some pairs of blocks, on and off. The table shows how far each is.");
  // One interval that is far wider than the others would make points of them: it is cut.
  const widths = drawn.map((t) => Math.max(...values(t).map(Math.abs))).sort((a, b) => a - b);
  const bound = Math.max(widths[Math.floor(widths.length / 2)] * 4, 1);
  const clip = (v) => Math.min(Math.max(v, -bound), bound);
  const steps = ticks(Math.min(0, ...drawn.map((t) => clip(values(t)[0]))), Math.max(0, ...drawn.map((t) => clip(values(t)[2]))));
  const domain = [steps[0], steps[steps.length - 1]];
  const x = (v) => at(Math.min(Math.max(v, domain[0]), domain[1]), domain);
  return [h("ul", { class: "legend" },
    h("li", {}, sample(mark.span(1, 25, 10, "measured"), mark.dot(13, 10, "measured")), "Adopted"),
    h("li", {}, sample(mark.span(1, 25, 10, "without"), mark.ring(13, 10, "without")), "Rejected"),
    h("li", {}, sample(mark.span(1, 25, 10, "strong-line", "3 3"), mark.bar(13, 10, "strong-line")), "Not decided")),
  h("div", { class: "rows", role: "img", "aria-label": "Energy that levers save, with intervals: the table below has the figures." },
    drawn.map((t) => {
      const [low, value, high] = values(t);
      const name = colourOf[t.stance] || "strong-line";
      const point = t.stance === "Adopted" ? mark.dot : t.stance === "Rejected" ? mark.ring : mark.bar;
      return h("div", { class: "row" }, h("span", { class: "label" }, h("strong", {}, t.lever), " ", percent(value), h("span", { class: "hint" }, t.class)),
        track(34, steps, domain, mark.span(x(low), x(high), 17, name, colourOf[t.stance] ? undefined : "3 3"), point(x(value), 17, name)));
    }), axis("Energy saved for the same work", steps, domain, (v) => number(v) + " %"))];
}

export const trials = {
  read: ({ get, policy }) => get("data/policy", { name: policy }),
  show({ policy }, view) {
    const heading = h("h1", {}, "Trials");
    if (!view.trials.length) {
      const proven = view.conditions.find((c) => c.type === "SavingsProven");
      return [heading, empty(`No lever of policy ${policy} was tried.`, proven ? `${proven.means} ${proven.next}` : "Levers are tried in mode Enforce, on nodes with a meter, when several nodes of the same kind are ready.",
        `kubectl get energypolicy ${policy} --output=yaml`)];
    }
    return [heading, h("section", { class: "card" },
      h("h2", {}, "What levers save, by class of nodes or groups"),
      h("p", { class: "hint" }, `Agents switch a lever on and off in blocks in random order; the energy for the same work is compared. Intervals of 95 % confidence, measured. Right of zero saves.`),
      h("figure", { class: "chart" }, chart(view.trials), asTable("trials", "Trials of policy " + policy, [
        { name: "Lever", cell: (t) => t.lever }, { name: "Stance", cell: (t) => h("div", { class: "why" }, h("span", {}, stateBadge(t.stance)), h("span", { class: "next" }, meaning[t.stance] || "")) },
        { name: "Saves", number: true, cell: (t) => (t.savedPercent ? decimal(t.savedPercent.value) + " %" : none) },
        { name: "Interval", number: true, cell: (t) => (t.savedPercent ? interval(t.savedPercent.low, t.savedPercent.high) + " %" : none) },
        { name: "Pairs", number: true, cell: (t) => `${number(t.pairs || 0)} of ${number(t.plannedPairs || 0)}` }, { name: "Units", number: true, extra: true, cell: (t) => number(t.units || 0) },
        { name: "Class", words: true, cell: (t) => t.class }, { name: "In words", words: true, cell: (t) => t.message || "" },
      ], view.trials)))];
  },
};

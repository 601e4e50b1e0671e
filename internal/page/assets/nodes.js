// Lists the nodes of the policy, a part at a time.
import { age, badge, empty, h, number, pager, table } from "./dom.js";

const inForce = (counts) => Object.entries(counts || {}).filter(([, n]) => n > 0).map(([lever, n]) => `${lever} ${number(n)}`).join(", ");

export const nodes = {
  read: ({ get, policy, params }) => get("data/nodes", {
    policy: policy || "", find: params.get("find") || "", sort: params.get("sort") || "name", from: params.get("from") || "0",
  }),
  show({ go, link, params, policy }, found) {
    const find = params.get("find") || "";
    let waiting;
    const search = h("input", { id: "find", type: "search", "data-key": "find", value: find, oninput: (event) => {
      clearTimeout(waiting);
      const value = event.target.value;
      waiting = setTimeout(() => go({ find: value, from: 0 }), 300);
    } });
    const sort = h("select", { id: "sort", "data-key": "sort", onchange: (event) => go({ sort: event.target.value === "name" ? "" : event.target.value, from: 0 }) },
      h("option", { value: "name" }, "Name"), h("option", { value: "watts" }, "Most watts"));
    sort.value = params.get("sort") || "name";
    const listed = found.items.length
      ? [table("Nodes, their power, and what acts on their VMs", [
        { name: "Node", isName: true, cell: (n) => h("a", { href: link("node", n.name), "data-key": "node " + n.name }, n.name) },
        { name: "W", number: true, cell: (n) => number(n.watts) },
        { name: "Basis", cell: (n) => (n.basis ? badge(n.basis, n.basis === "Measured" ? "good" : "note") : "") },
        { name: "Source", extra: true, cell: (n) => n.source || "" },
        { name: "Age", number: true, cell: (n) => (n.ageSeconds === undefined ? "" : age(n.ageSeconds)) },
        { name: "J/GB", number: true, extra: true, cell: (n) => (n.joulesPerGB === undefined ? "" : number(n.joulesPerGB)) },
        { name: "VMs", number: true, cell: (n) => number(n.vms) },
        { name: "VMs with levers in force", cell: (n) => inForce(n.inForce) || "none" },
        { name: "Mode", extra: true, cell: (n) => n.mode || "no policy" },
      ], found.items, { hideCaption: true }), pager(found, "node", (from) => go({ from }))]
      : [h("p", {}, find ? `No node has a name with \u201c${find}\u201d.` : "No node of this policy has reported. See that the agents' pods run: kubectl -n joulevirt-system get pods -o wide.")];
    if (!found.items.length && !find && !policy) return [h("h1", {}, "Nodes"), empty("No agent has reported.", "Each agent reports within a minute of its start. See that their pods run:", "kubectl -n joulevirt-system get pods -o wide")];
    return [h("h1", {}, "Nodes"), h("section", { class: "card" },
      h("div", { class: "tools" }, h("label", { class: "field", for: "find" }, h("span", {}, "Find by name"), search), h("label", { class: "field", for: "sort" }, h("span", {}, "Order"), sort)),
      listed)];
  },
};

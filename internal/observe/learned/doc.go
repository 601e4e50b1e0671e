// Package learned keeps what the manager learns of each node from its metered
// power: how much energy it drew, and what its power is made of. A node's load
// comes from its agent's totals, which are exact over any time between two
// pulls; its power may come from a meter that knows nothing of the agent, over
// intervals of its own.
package learned

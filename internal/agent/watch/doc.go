// Package watch is the agent's view of the cluster: the launcher pods and VMIs
// of its own node, its own NodePlan, and the manager's Lease. It watches
// nothing else, and keeps of each object only what the agent needs.
package watch

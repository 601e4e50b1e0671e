// Package publish shows what the agent knows: per-VM rates to the manager over
// mutual TLS, the same figures as metrics, and in the cluster the NodeReport
// and the status of the NodePlan.
package publish

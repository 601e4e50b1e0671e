// Package shape bounds what VMs send as the plan says, has their deferrable
// traffic take turns, and undoes both, in the way of package device. A clock of its
// own (turns.go) opens and holds the gates on time, between the agent's rounds.
package shape

// Package shape bounds what VMs send as the plan says, has their deferrable
// traffic take turns, and undoes both.
//
// Like every actuator it plans (decide.go, pure), writes the journal, changes
// the host and reads back. A clock of its own (turns.go) opens and holds the
// gates on time, between the agent's rounds.
package shape

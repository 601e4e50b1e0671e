// Package guard tells when a lever hurts a VM on the node, from what each round of
// samples showed, and for how long the lever stays undone then. It is pure: no clock, no
// I/O. Only symptoms count that the lever can cause: see docs/design/guard.md.
package guard

// Package power holds the statistics of energy: what a node's power depends on,
// what a VM costs, and how sure that is. It is pure: no clock, no I/O, no
// logging; equal inputs give equal outputs.
package power

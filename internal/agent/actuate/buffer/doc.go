// Package buffer has packets towards VMs held as the plan says, and undoes it, in the
// way of package device. The kernel holds packets only while it is told to go on
// (keeper.go): an agent that is gone, or hangs, holds none.
package buffer

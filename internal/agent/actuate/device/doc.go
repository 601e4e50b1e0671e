// Package device does something to network devices of VMs' pods, such as shaping them,
// and undoes it. What is to be done is decided by pure functions (decide.go); Actuator
// does it, in the order journal, change, read back, and remembers only what it read
// back.
//
// What a device had before needs no record: only the kernel's default is ever replaced.
// A device of somebody else's is left alone.
package device

// Package affinity binds threads of VMs to CPUs and lifts the bindings again.
// What is to be done is decided by pure functions (decide.go); Actuator does
// it, in the order journal, write, read back, and remembers only what it read
// back.
//
// Undoing leaves the state that the kernel would have without the agent. A
// thread that could run on its whole cpuset gets the mask of all CPUs: writing
// its old mask back would keep it there for ever, also when the cpuset grows.
package affinity

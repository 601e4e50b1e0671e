// Package affinity binds threads of VMs to CPUs and lifts the bindings again, in the
// way of package thread.
//
// A thread that could run on its whole cpuset gets the mask of all CPUs back: writing
// its old mask back would keep it there for ever, also when the cpuset grows.
package affinity

// Package slice gives threads of VMs scheduler slices and takes them back, in the way
// of package thread. All threads of a VM, and the kernel's workers for it, have the
// same slice: a packet waits for the slowest of those that handle it.
//
// A thread that nobody had given a slice gets the kernel's default back, which
// changes with the number of CPUs, and not the slice that it was seen with.
package slice

// Package thread changes an attribute of VMs' threads, such as their affinity, and
// puts it back. What is to be done is decided by pure functions (decide.go); Actuator
// does it, in the order journal, write, read back, and remembers only what it read
// back.
//
// Undoing leaves the state that the kernel would have without the agent. A thread that
// nobody had given a value gets the kernel's default, which may change later, and not
// the value that it was seen with.
package thread

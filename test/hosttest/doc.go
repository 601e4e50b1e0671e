// Package hosttest starts processes that look to the agent like a VM's QEMU,
// in a cgroup like a launcher pod's, for tests on real threads. The processes
// are the test binary itself: call Main from TestMain.
package hosttest

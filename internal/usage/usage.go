// Package usage reads what the program itself uses of its machine.
package usage

import (
	"time"

	"golang.org/x/sys/unix"
)

// CPUTime that the process has used since its start, in the kernel too, or 0 when the
// kernel does not say. What the kernel does for it elsewhere, such as a program that it
// loaded, is not part of it.
func CPUTime() time.Duration {
	var used unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &used) != nil {
		return 0
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

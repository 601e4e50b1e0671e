package proc

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/procfs"
)

// Use is what a process used.
type Use struct {
	// CPUPercent is its CPU time in percent of one core.
	CPUPercent float64
	// Resident memory at the end in bytes, and what of it is not backed by files.
	Resident, Anonymous uint64
}

// Measure returns what a process uses in a period from now on.
func Measure(ctx context.Context, pid int, period time.Duration) (Use, error) {
	process, err := procfs.NewProc(pid)
	if err != nil {
		return Use{}, err
	}
	before, err := process.Stat()
	if err != nil {
		return Use{}, err
	}
	start := time.Now()
	select {
	case <-ctx.Done():
		return Use{}, fmt.Errorf("measure process %d: %w", pid, ctx.Err())
	case <-time.After(period):
	}
	after, err := process.Stat()
	if err != nil {
		return Use{}, err
	}
	memory, err := process.NewStatus()
	if err != nil {
		return Use{}, err
	}
	return Use{
		CPUPercent: 100 * (after.CPUTime() - before.CPUTime()) / time.Since(start).Seconds(),
		Resident:   uint64(after.ResidentMemory()), Anonymous: memory.RssAnon,
	}, nil
}

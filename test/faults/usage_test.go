package faults

import (
	"context"
	"fmt"

	"github.com/prometheus/procfs"

	"github.com/joulevirt/joulevirt/test/cluster/stack"
)

// usage is what a program holds.
type usage struct{ bytes, files int }

// usage of agent and manager.
func (f *fault) usage() []usage {
	f.Helper()
	var all []usage
	for _, p := range []*stack.Program{world.Agent(), world.Manager()} {
		process, err := procfs.NewProc(p.PID)
		f.must(err)
		stat, err := process.Stat()
		f.must(err)
		files, err := process.FileDescriptorsLen()
		f.must(err)
		all = append(all, usage{stat.ResidentMemory(), files})
	}
	return all
}

// bounded waits until agent and manager hold about as much as before the fault, or those that came
// after them as much as their like.
func (f *fault) bounded(before []usage) {
	f.Helper()
	const moreBytes, moreFiles = 48 << 20, 100
	f.eventually("agent and manager are as large as before", func(context.Context) error {
		now := f.usage()
		for i := range now {
			if now[i].bytes > before[i].bytes+moreBytes || now[i].files > before[i].files+moreFiles {
				return fmt.Errorf("they hold %+v, before %+v", now, before)
			}
		}
		return nil
	})
	f.Logf("bytes and files of agent and manager: %v, before %v", f.usage(), before)
}

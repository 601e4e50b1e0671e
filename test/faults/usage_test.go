//go:build e2e

package faults

import (
	"context"
	"fmt"

	"github.com/prometheus/procfs"
)

// usage is what a program holds.
type usage struct{ bytes, files int }

// usage of agent and manager.
func (f *fault) usage() ([]usage, error) {
	f.Helper()
	var all []usage
	for _, p := range []process{f.agent(), f.leader()} {
		process, err := procfs.NewProc(p.pid)
		if err != nil {
			return nil, err
		}
		stat, err := process.Stat()
		if err != nil {
			return nil, err
		}
		files, err := process.FileDescriptorsLen()
		if err != nil {
			return nil, err
		}
		all = append(all, usage{stat.ResidentMemory(), files})
	}
	return all, nil
}

// bounded waits until agent and manager hold about as much as before the fault, or those that came
// after them as much as their like.
func (f *fault) bounded(before []usage) {
	f.Helper()
	const moreBytes, moreFiles = 48 << 20, 100
	var now []usage
	f.eventually("agent and manager are as large as before", func(context.Context) (err error) {
		if now, err = f.usage(); err != nil {
			return err
		}
		for i := range now {
			if now[i].bytes > before[i].bytes+moreBytes || now[i].files > before[i].files+moreFiles {
				return fmt.Errorf("they hold %+v, before %+v", now, before)
			}
		}
		return nil
	})
	f.Logf("bytes and files of agent and manager: %v, before %v", now, before)
}

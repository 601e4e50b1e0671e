package linux

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/internal/host"
)

// worker writes a process whose parent and start time are reported.
func (tr *tree) worker(pid, parent, start int, comm string) {
	rest := strings.Replace(stat22, " S 1 ", fmt.Sprintf(" S %d ", parent), 1)
	rest = strings.Replace(rest, " 4711 ", fmt.Sprintf(" %d ", start), 1)
	tr.write(fmt.Sprintf("proc/%d/stat", pid), fmt.Sprintf("%d (%s)%s", pid, comm, rest))
	tr.write(fmt.Sprintf("proc/%d/schedstat", pid), "100 200 300\n")
}

func (tr *tree) remove(pid int) {
	tr.t.Helper()
	if err := os.RemoveAll(filepath.Join(tr.dir, "proc", strconv.Itoa(pid))); err != nil {
		tr.t.Fatal(err)
	}
}

func TestWorkersOfATree(t *testing.T) {
	tr := newTree(t)
	one := tr.process(20, "qemu-kvm", "0::/x\n")
	other := tr.process(40, "qemu-kvm", "0::/y\n")
	tr.worker(10, 2, 4800, "vhost-20") // listed before its process
	tr.worker(50, 2, 4711, "vhost-20")
	tr.worker(51, 2, 4710, "vhost-20") // of an earlier process 20
	tr.worker(52, 1, 4800, "vhost-20") // no kernel thread
	tr.worker(53, 2, 4800, "vhost-99")
	tr.worker(54, 2, 4800, "vhost-x")
	tr.worker(55, 2, 4800, "vhost--3")
	tr.worker(56, 2, 4800, "vhost-40")
	h := tr.host()
	workers := func(id host.TaskID) []int {
		t.Helper()
		mustProcesses(t, h)
		sample, err := h.Sample(id)
		if err != nil {
			t.Fatal(err)
		}
		pids := []int{}
		for _, w := range sample.Workers {
			pids = append(pids, w.ID.PID)
			if w.ID.TID != w.ID.PID || w.Name != fmt.Sprintf("vhost-%d", id.PID) || w.Run != 100*time.Nanosecond || w.Switches != 300 {
				t.Errorf("worker %+v", w)
			}
		}
		return pids
	}
	want := func(id host.TaskID, pids ...int) {
		t.Helper()
		if diff := cmp.Diff(append([]int{}, pids...), workers(id)); diff != "" {
			t.Errorf("workers of %d (-want +got):\n%s", id.PID, diff)
		}
	}
	want(one, 10, 50)
	want(other, 56)
	tr.remove(50)
	want(one, 10)
	tr.worker(57, 2, 5000, "vhost-20")
	want(one, 10, 57)
	tr.worker(56, 1, 4900, "sleep") // its number went to another
	for range refreshRounds {
		mustProcesses(t, h)
	}
	want(other)
	want(one, 10, 57)
	if n := len(h.workers); n != 4 { // with those of processes that are not in view
		t.Errorf("%d workers kept", n)
	}
}

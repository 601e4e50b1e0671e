package linux

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/joulevirt/joulevirt/internal/model"
)

// Programs implements host.Host. Processes and threads that end meanwhile are left out.
func (h *Host) Programs() (model.Programs, error) {
	pids, err := h.listPIDs()
	if err != nil {
		return model.Programs{}, err
	}
	var out model.Programs
	for _, pid := range pids {
		process := filepath.Join(h.procRoot, strconv.Itoa(pid))
		if comm := readComm(process); isOtherWriter(comm) {
			out.OtherWriters = append(out.OtherWriters, comm)
		}
		threads, err := os.ReadDir(filepath.Join(process, "task"))
		if err != nil || len(threads) < 2 {
			continue // programs with DPDK have threads beside the polling ones
		}
		for _, thread := range threads {
			if isPolling(readComm(filepath.Join(process, "task", thread.Name()))) {
				out.PollingThreads++
			}
		}
	}
	slices.Sort(out.OtherWriters)
	out.OtherWriters = slices.Compact(out.OtherWriters)
	return out, nil
}

// readComm returns the name of a process or thread, of which the kernel keeps 15 bytes. Empty: it has
// ended.
func readComm(dir string) string {
	content, err := readFile(filepath.Join(dir, "comm"))
	if err != nil {
		return ""
	}
	return strings.ToValidUTF8(strings.TrimSpace(string(content)), "?")
}

func isOtherWriter(comm string) bool {
	switch comm {
	case "irqbalance", "numad", "tuned", "nri-resource-po":
		return true
	}
	return false
}

// isPolling returns true of the threads of Open vSwitch, DPDK (before and since 23.03) and VPP.
func isPolling(comm string) bool {
	return slices.ContainsFunc([]string{"pmd-c", "lcore-slave-", "lcore-worker-", "dpdk-worker", "vpp_wk_"}, func(prefix string) bool {
		return strings.HasPrefix(comm, prefix)
	})
}

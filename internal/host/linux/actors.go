package linux

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/joulevirt/joulevirt/internal/host"
)

const (
	// nriFolder is where container runtimes find the plug-ins that they start.
	nriFolder = "/opt/nri/plugins"
	// maxPlugins bounds how many of a folder's entries are looked at.
	maxPlugins = 64
	// commLength is the longest name of a process in bytes: the kernel cuts the rest.
	commLength = 15
)

// daemon is a program that is known by the names of its processes. Anybody may call a
// process so: it only makes for a line in a report.
type daemon struct {
	actor   host.ActorName
	comms   []string
	message string
}

func daemons() []daemon {
	return []daemon{{
		actor: host.ActorTuned,
		// In OpenShift, python runs tuned under this parent.
		comms:   []string{"tuned", "openshift-tuned"},
		message: "it may bind threads: pins that it changes back twice are left to it (Contested)",
	}, {
		actor:   host.ActorIRQBalance,
		comms:   []string{"irqbalance"},
		message: "it chooses the CPUs of interrupts: they are reported, and left where they are",
	}, {
		actor:   host.ActorNRI,
		comms:   []string{"nri-resource-policy-balloons", "nri-resource-policy-topology-aware", "nri-resource-policy-template"},
		message: "it may change cpusets of containers: pins stay within these, and those that it changes back twice are left to it",
	}}
}

// Actors implements host.Host. It looks at every process: callers ask once a minute.
func (h *Host) Actors() ([]host.Actor, error) {
	comms, err := h.comms()
	if err != nil {
		return nil, err
	}
	actors := append(h.settings(), h.running(comms)...)
	slices.SortFunc(actors, func(x, y host.Actor) int { return strings.Compare(string(x.Name), string(y.Name)) })
	return actors, nil
}

// settings of kernel and kubelet that keep CPUs for something.
func (h *Host) settings() []host.Actor {
	var actors []host.Actor
	k := h.kubelet()
	if k.static {
		actors = append(actors, host.Actor{Name: host.ActorCPUManager, CPUs: k.exclusive,
			Message: "cpuManagerPolicy static: containers' CPUs of their own take no pins, and a cpuset that changes is followed"})
	}
	if !k.reserved.IsEmpty() {
		actors = append(actors, host.Actor{Name: host.ActorReservedCPUs, CPUs: k.reserved,
			Message: "reservedSystemCPUs of the kubelet: they take no pins"})
	}
	// An empty list says that there are none. So does what some kernels write: "(null)".
	if isolated, err := h.cpuList("isolated"); err == nil && !isolated.IsEmpty() {
		actors = append(actors, host.Actor{Name: host.ActorIsolatedCPUs, CPUs: isolated,
			Message: "isolcpus of the kernel: they take no pins"})
	}
	if noHz, err := h.cpuList("nohz_full"); err == nil && !noHz.IsEmpty() {
		actors = append(actors, host.Actor{Name: host.ActorNoHzFull, CPUs: noHz,
			Message: "nohz_full of the kernel: these CPUs do without a tick while they run one thread; unless isolated, they take pins as others do"})
	}
	return actors
}

// running are the daemons of which a process is there, and the plug-ins.
func (h *Host) running(comms map[string]bool) []host.Actor {
	var actors []host.Actor
	plugins := h.nriPlugins()
	for _, d := range daemons() {
		seen := ""
		for _, comm := range d.comms {
			if comms[comm[:min(len(comm), commLength)]] {
				seen = "process " + comm[:min(len(comm), commLength)]
			}
		}
		if d.actor == host.ActorNRI && seen == "" && plugins {
			seen = "plug-ins in " + nriFolder
		}
		if seen != "" {
			actors = append(actors, host.Actor{Name: d.actor, Message: seen + ": " + d.message})
		}
	}
	return actors
}

// nriPlugins tells whether a container runtime finds plug-ins to start. Its socket alone
// is none: runtimes have it by default.
func (h *Host) nriPlugins() bool {
	root, err := h.openNodeRoot()
	if err != nil {
		return false
	}
	defer root.close()
	folder, err := root.open(nriFolder)
	if err != nil {
		return false
	}
	defer folder.Close()
	entries, err := folder.ReadDir(maxPlugins)
	if err != nil && !errors.Is(err, io.EOF) {
		return false
	}
	return slices.ContainsFunc(entries, func(entry os.DirEntry) bool {
		var stat unix.Stat_t // of the node's file: entry.Info would look for the agent's
		err := unix.Fstatat(int(folder.Fd()), entry.Name(), &stat, unix.AT_SYMLINK_NOFOLLOW)
		return err == nil && stat.Mode&unix.S_IFMT != unix.S_IFDIR && stat.Mode&0o111 != 0
	})
}

// comms are the names of all processes.
func (h *Host) comms() (map[string]bool, error) {
	pids, err := h.listPIDs()
	if err != nil {
		return nil, err
	}
	dir, err := unix.Open(h.procRoot, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("names of processes in %s: %w", h.procRoot, err)
	}
	defer unix.Close(dir)
	comms := map[string]bool{}
	var buf [commLength + 1]byte
	for _, pid := range pids {
		// One that cannot be read has ended.
		if comm, err := readLineAt(dir, strconv.Itoa(pid)+"/comm", buf[:]); err == nil {
			comms[strings.TrimSuffix(string(comm), "\n")] = true
		}
	}
	return comms, nil
}

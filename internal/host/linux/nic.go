package linux

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// nics lists the network cards of the node with the CPUs that handle their interrupts.
// A mount of /sys shows the network devices of the namespace that it was made in, so
// that these are the node's in whatever namespace the agent runs.
func (h *Host) nics() []model.NIC {
	links, err := filepath.Glob(filepath.Join(h.sysRoot, "class/net/*/device"))
	if err != nil {
		return nil
	}
	var nics []model.NIC
	for _, link := range links {
		device, err := filepath.EvalSymlinks(link)
		if err != nil {
			continue
		}
		// A virtual function that is here carries nothing: it waits for a pod.
		if _, err := os.Lstat(filepath.Join(device, "physfn")); err == nil {
			continue
		}
		nic := model.NIC{Name: filepath.Base(filepath.Dir(link))}
		function := interrupting(device)
		if node, ok := readInt(filepath.Join(function, "numa_node")); ok && node > 0 {
			nic.NUMANode = node
		}
		for _, irq := range interrupts(function) {
			nic.CPUs = nic.CPUs.Union(h.interruptCPUs(irq))
		}
		if !nic.CPUs.IsEmpty() {
			nics = append(nics, nic)
		}
	}
	return nics // Glob sorts
}

// interrupting returns the folder of the device that raises a card's interrupts: its
// own, or that of the PCI function which a virtio device is behind.
func interrupting(device string) string {
	if bus, err := os.Readlink(filepath.Join(device, "subsystem")); err == nil && filepath.Base(bus) == "virtio" {
		return filepath.Dir(device)
	}
	return device
}

// interrupts lists the interrupts of a device: its messages (MSI), or else its line.
func interrupts(device string) []int {
	entries, err := os.ReadDir(filepath.Join(device, "msi_irqs"))
	if err != nil {
		if irq, ok := readInt(filepath.Join(device, "irq")); ok && irq > 0 {
			return []int{irq}
		}
		return nil
	}
	var irqs []int
	for _, entry := range entries {
		if irq, err := strconv.Atoi(entry.Name()); err == nil && irq >= 0 {
			irqs = append(irqs, irq)
		}
	}
	return irqs
}

// interruptCPUs returns the CPUs that handle an interrupt: where the kernel has put it
// or, on machines that do not tell, where it may put it. None when nobody waits for it,
// or no packet raises it.
func (h *Host) interruptCPUs(irq int) units.CPUSet {
	number := strconv.Itoa(irq)
	actions, err := readFile(filepath.Join(h.sysRoot, "kernel/irq", number, "actions"))
	if err == nil && !movesPackets(string(actions)) {
		return units.CPUSet{}
	}
	for _, file := range []string{"effective_affinity_list", "smp_affinity_list"} {
		cpus, err := readCPUList(filepath.Join(h.procRoot, "irq", number, file))
		if err == nil && !cpus.IsEmpty() {
			return cpus
		}
	}
	return units.CPUSet{}
}

// movesPackets tells, by the names of who waits for an interrupt, whether packets raise
// it. Each virtio device has one for changes of its configuration.
func movesPackets(actions string) bool {
	names := strings.FieldsFunc(actions, func(r rune) bool { return r == ',' || r == '\n' || r == ' ' })
	return slices.ContainsFunc(names, func(name string) bool {
		return !strings.HasPrefix(name, "virtio") || !strings.HasSuffix(name, "-config")
	})
}

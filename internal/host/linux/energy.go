package linux

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/joulevirt/joulevirt/internal/host"
)

// EnergyZones implements host.Host. The files are read here and not by
// procfs/sysfs, which gives none of the zones when one of them lacks its range,
// and cuts the number off a package's name.
func (h *Host) EnergyZones() ([]host.EnergyZone, error) {
	dir := filepath.Join(h.sysRoot, "class/powercap")
	entries, err := os.ReadDir(dir) // in the order of their names
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("energy counters: %w", err)
	}
	var zones []host.EnergyZone
	for _, entry := range entries {
		// "intel-rapl" groups the zones "intel-rapl:0", "intel-rapl:0:0" and so on.
		if !strings.Contains(entry.Name(), ":") {
			continue
		}
		if zone, ok := readZone(filepath.Join(dir, entry.Name())); ok {
			zones = append(zones, zone)
		}
	}
	if len(zones) == 0 {
		return nil, fmt.Errorf("energy counters: %w: none in /sys/class/powercap: load the processor's module, such as intel_rapl_msr", host.ErrUnsupported)
	}
	return zones, nil
}

// readZone reads one zone. It returns false for zones without an energy
// counter, as other drivers than RAPL have, and for one that just went.
func readZone(path string) (host.EnergyZone, bool) {
	zone := host.EnergyZone{ID: filepath.Base(path)}
	name, nameErr := readFile(filepath.Join(path, "name"))
	zone.Name = string(bytes.TrimSpace(name))
	used, err := readNumber(filepath.Join(path, "energy_uj"))
	if errors.Is(err, fs.ErrNotExist) {
		// Container engines hide /sys/devices/virtual/powercap, where the links
		// of the class lead.
		zone.Err = fmt.Errorf("energy counter %s is hidden from the agent, which needs the node's /sys as --sys-root: %w", zone.ID, fs.ErrPermission)
		return zone, isDangling(path)
	}
	if err == nil {
		err = nameErr
	}
	if err != nil {
		zone.Err = fmt.Errorf("energy counter %s: %w", zone.ID, err)
		return zone, true
	}
	zone.Microjoules = used
	// Without a range the counter is good until it starts over.
	if zone.Range, err = readNumber(filepath.Join(path, "max_energy_range_uj")); err != nil {
		zone.Range = 0
	}
	return zone, true
}

func readNumber(path string) (uint64, error) {
	content, err := readFile(path)
	if err != nil {
		return 0, err
	}
	number, err := parseUint(bytes.TrimSpace(content))
	if err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	return number, nil
}

func isDangling(path string) bool {
	_, link := os.Lstat(path)
	_, target := os.Stat(path)
	return link == nil && errors.Is(target, fs.ErrNotExist)
}

// energyCounters returns what keeps the node's energy counters from being read.
func (h *Host) energyCounters() error {
	if _, nested := h.processor(); nested {
		return errors.New("the node is itself a VM: what it may have of energy counters is its hypervisor's estimate")
	}
	zones, err := h.EnergyZones()
	if err != nil {
		return err
	}
	return unreadable(zones)
}

// unreadable returns why the zone of a package or of the platform cannot be read;
// nil when all can. Parts of packages do not count: they are not needed.
func unreadable(zones []host.EnergyZone) error {
	var first error
	all, failed := 0, 0
	for _, zone := range zones {
		if strings.Count(zone.ID, ":") > 1 {
			continue
		}
		all++
		if zone.Err != nil {
			failed++
			first = cmp.Or(first, zone.Err)
		}
	}
	switch {
	case first == nil:
		return nil
	case errors.Is(first, fs.ErrPermission):
		return fmt.Errorf("%d of %d energy counters cannot be read: the agent must be root, outside of a user namespace: %w", failed, all, first)
	default:
		return fmt.Errorf("%d of %d energy counters cannot be read: %w", failed, all, first)
	}
}

package main

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
)

//go:embed data/*.csv
var embedded embed.FS

// The published tables.
const (
	tableSkew      = "xen_cpu_by_skew_5vms"
	tableXen       = "xen_cpu_by_active_vms"
	tableKVM       = "kvm_cycles_by_active_vms"
	tableKVMPower  = "kvm_power"
	tableOverhead  = "virtio_overhead_10mbps"
	tableAffinity  = "affinity_power"
	tableBuffering = "buffering_power_kvm"
	tableFlood     = "flood_counters_kvm"
	tableFloodCPU  = "flood_cpu_idle"
)

// tables holds them by name.
type tables struct {
	byName map[string]*table
	// digest of names and contents.
	digest string
}

// readTables reads the tables of a folder. All that are named above must be
// there, and no other, or the digest would not say what was used.
func readTables(folder fs.FS) (tables, error) {
	read := tables{byName: map[string]*table{}}
	files, err := fs.Glob(folder, "*.csv")
	if err != nil {
		return tables{}, fmt.Errorf("the tables: %w", err)
	}
	slices.Sort(files)
	wanted := []string{tableSkew, tableXen, tableKVM, tableKVMPower, tableOverhead, tableAffinity, tableBuffering, tableFlood, tableFloodCPU}
	sum := sha256.New()
	for _, file := range files {
		name := strings.TrimSuffix(path.Base(file), ".csv")
		if !slices.Contains(wanted, name) {
			return tables{}, fmt.Errorf("table %s: nothing uses it", name)
		}
		text, err := fs.ReadFile(folder, file)
		if err != nil {
			return tables{}, fmt.Errorf("table %s: %w", name, err)
		}
		if read.byName[name], err = parseTable(name, strings.NewReader(string(text))); err != nil {
			return tables{}, err
		}
		fmt.Fprintf(sum, "%s %d\n%s", file, len(text), text)
	}
	for _, name := range wanted {
		if read.byName[name] == nil {
			return tables{}, fmt.Errorf("table %s: there is no such file", name)
		}
	}
	read.digest = "sha256:" + hex.EncodeToString(sum.Sum(nil))
	return read, nil
}

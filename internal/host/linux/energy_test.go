package linux

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/internal/host"
)

// zone makes an energy counter as the kernel shows it: a folder below its
// parent's, with a link in the class.
func (tr *tree) zone(id string, files map[string]string) string {
	tr.t.Helper()
	driver, numbers, _ := strings.Cut(id, ":")
	folder := "devices/virtual/powercap/" + driver
	below := driver
	for number := range strings.SplitSeq(numbers, ":") {
		below += ":" + number
		folder += "/" + below
	}
	if _, err := os.Lstat(filepath.Join(tr.dir, "sys/class/powercap", driver)); errors.Is(err, fs.ErrNotExist) {
		tr.link("../../devices/virtual/powercap/"+driver, "sys/class/powercap/"+driver)
		tr.write("sys/devices/virtual/powercap/"+driver+"/enabled", "1\n")
	}
	tr.link("../../"+folder, "sys/class/powercap/"+id)
	for file, content := range files {
		tr.write("sys/"+folder+"/"+file, content)
	}
	return filepath.Join(tr.dir, "sys", folder)
}

func counter(name, energy, span string) map[string]string {
	return map[string]string{"name": name + "\n", "energy_uj": energy + "\n", "max_energy_range_uj": span + "\n"}
}

func TestEnergyZones(t *testing.T) {
	tr := newTree(t)
	// A processor of the client kind: the same package through two drivers.
	tr.zone("intel-rapl:0", counter("package-0", "1000", "262143328850"))
	tr.zone("intel-rapl:0:0", counter("core", "400", "262143328850"))
	tr.zone("intel-rapl:0:1", counter("uncore", "100", "262143328850"))
	tr.zone("intel-rapl:0:2", counter("dram", "50", "65712999613"))
	tr.zone("intel-rapl:1", counter("psys", "5000000", "262143328850"))
	tr.zone("intel-rapl-mmio:0", counter("package-0", "999", "262143328850"))
	// Other drivers have zones without a counter.
	tr.zone("dtpm:0", map[string]string{"name": "dtpm\n", "power_uw": "15000000\n"})
	// The largest number that a counter holds, and one without a range.
	tr.zone("intel-rapl:2", map[string]string{"name": "package-1\n", "energy_uj": "18446744073709551615\n"})
	tr.zone("intel-rapl:3", counter("package-2-die-1", "7", "garbage"))
	got, err := tr.host().EnergyZones()
	if err != nil {
		t.Fatal(err)
	}
	const span = 262143328850
	want := []host.EnergyZone{
		{ID: "intel-rapl-mmio:0", Name: "package-0", Microjoules: 999, Range: span},
		{ID: "intel-rapl:0", Name: "package-0", Microjoules: 1000, Range: span},
		{ID: "intel-rapl:0:0", Name: "core", Microjoules: 400, Range: span},
		{ID: "intel-rapl:0:1", Name: "uncore", Microjoules: 100, Range: span},
		{ID: "intel-rapl:0:2", Name: "dram", Microjoules: 50, Range: 65712999613},
		{ID: "intel-rapl:1", Name: "psys", Microjoules: 5000000, Range: span},
		{ID: "intel-rapl:2", Name: "package-1", Microjoules: 1<<64 - 1},
		{ID: "intel-rapl:3", Name: "package-2-die-1", Microjoules: 7},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if err := tr.host().energyCounters(); err != nil {
		t.Errorf("capability: %v", err)
	}
	tr.write("proc/cpuinfo", "processor\t: 0\nmodel name\t: Testor 3000\nflags\t\t: fpu hypervisor\n\n")
	if err := tr.host().energyCounters(); err == nil || !strings.Contains(err.Error(), "itself a VM") {
		t.Errorf("capability of a VM: %v", err)
	}
}

func TestNoEnergyZones(t *testing.T) {
	for name, prepare := range map[string]func(*tree){
		"no class":            func(*tree) {},
		"an empty class":      func(tr *tree) { tr.write("sys/class/powercap/uevent", "") },
		"a driver alone":      func(tr *tree) { tr.write("sys/class/powercap/intel-rapl/enabled", "1\n") },
		"zones of power only": func(tr *tree) { tr.zone("dtpm:0", map[string]string{"name": "dtpm\n", "power_uw": "1\n"}) },
	} {
		t.Run(name, func(t *testing.T) {
			tr := newTree(t)
			prepare(tr)
			zones, err := tr.host().EnergyZones()
			if !errors.Is(err, host.ErrUnsupported) || zones != nil {
				t.Errorf("%+v, %v; want ErrUnsupported", zones, err)
			}
			if err := tr.host().energyCounters(); err == nil || !strings.Contains(err.Error(), "load the processor's module") {
				t.Errorf("capability: %v; want it to say what to do", err)
			}
		})
	}
}

// A counter that cannot be read fails alone, and is not 0.
func TestUnreadableEnergyZones(t *testing.T) {
	for name, test := range map[string]struct {
		spoil func(folder string) error
		words string
	}{
		"a counter of garbage": {func(folder string) error {
			return os.WriteFile(filepath.Join(folder, "energy_uj"), []byte("lots\n"), 0o400)
		}, "not a 64-bit number"},
		"a negative counter": {func(folder string) error {
			return os.WriteFile(filepath.Join(folder, "energy_uj"), []byte("-5\n"), 0o400)
		}, "not a 64-bit number"},
		"a counter beyond 64 bits": {func(folder string) error {
			return os.WriteFile(filepath.Join(folder, "energy_uj"), []byte("18446744073709551616\n"), 0o400)
		}, "not a 64-bit number"},
		"an empty counter": {func(folder string) error {
			return os.WriteFile(filepath.Join(folder, "energy_uj"), nil, 0o400)
		}, "empty number"},
		// A test that runs as root is refused nothing: a folder cannot be read
		// either.
		"a counter that cannot be read": {func(folder string) error {
			file := filepath.Join(folder, "energy_uj")
			return errors.Join(os.Remove(file), os.Mkdir(file, 0o755))
		}, "is a directory"},
		"a zone without a name": {func(folder string) error {
			return os.Remove(filepath.Join(folder, "name"))
		}, "no such file"},
		"zones that the container engine hides": {func(folder string) error {
			return os.RemoveAll(folder)
		}, "--sys-root"},
	} {
		t.Run(name, func(t *testing.T) {
			tr := newTree(t)
			tr.zone("intel-rapl:0", counter("package-0", "1000", "9999"))
			folder := tr.zone("intel-rapl:1", counter("package-1", "1000", "9999"))
			if err := test.spoil(folder); err != nil {
				t.Fatal(err)
			}
			h := tr.host()
			zones, err := h.EnergyZones()
			if err != nil || len(zones) != 2 {
				t.Fatalf("zones %+v, %v", zones, err)
			}
			good := host.EnergyZone{ID: "intel-rapl:0", Name: "package-0", Microjoules: 1000, Range: 9999}
			if zones[0] != good || zones[1].Err == nil || !strings.Contains(zones[1].Err.Error(), test.words) ||
				!strings.Contains(zones[1].Err.Error(), "intel-rapl:1") {
				t.Errorf("zones %+v; want the second one's error to have %q", zones, test.words)
			}
			if err := h.energyCounters(); err == nil || !strings.Contains(err.Error(), "1 of 2") {
				t.Errorf("capability: %v", err)
			}
		})
	}
}

func TestUnreadableParts(t *testing.T) {
	zones := []host.EnergyZone{{ID: "intel-rapl:0", Name: "package-0"}, {ID: "intel-rapl:0:0", Name: "core", Err: fs.ErrPermission}}
	if err := unreadable(zones); err != nil {
		t.Errorf("%v; want nothing missing for a part that nobody needs", err)
	}
}

func TestCountersWithoutPermission(t *testing.T) {
	zones := []host.EnergyZone{{ID: "intel-rapl:0", Err: &fs.PathError{Op: "open", Path: "energy_uj", Err: fs.ErrPermission}}}
	if err := unreadable(zones); err == nil || !strings.Contains(err.Error(), "must be root") {
		t.Errorf("%v; want it to say what to do", err)
	}
}

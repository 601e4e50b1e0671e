package prometheus_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/joulevirt/joulevirt/internal/energy"
	source "github.com/joulevirt/joulevirt/internal/energy/prometheus"
	power "github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/test/prometheus"
)

// launcher is the pod of a VM in namespace shop.
func launcher(vm, suffix string) prometheus.Pod {
	return prometheus.Pod{UID: "uid-" + vm + "-" + suffix, Namespace: "shop", Name: "virt-launcher-" + vm + "-" + suffix}
}

// podMeters are what Kepler shows of a pod: zones overlap.
func podMeters(pod prometheus.Pod, watts float64) []prometheus.Meter {
	meter := func(zone string, watts float64) prometheus.Meter {
		return prometheus.Meter{Family: prometheus.Kepler, Zone: zone, Watts: watts, Joules: 500, Pod: pod}
	}
	return []prometheus.Meter{meter("package", watts), meter("core", watts*0.8), meter("dram", watts*0.1), meter("psys", watts*1.5)}
}

// containerMeters are what Kepler 0.9 shows of a container of a pod.
func containerMeters(pod prometheus.Pod, container string, watts float64) []prometheus.Meter {
	pod.Container = container
	meter := func(zone string, watts float64) prometheus.Meter {
		return prometheus.Meter{Family: prometheus.KeplerLegacy, Zone: zone, Watts: watts, Joules: 500, Pod: pod}
	}
	return []prometheus.Meter{meter("package", watts), meter("core", watts*0.8), meter("dram", watts*0.1), meter("", watts*1.1)}
}

// withVMs adds the meters of a node of 150 W, or what Kepler 0.9 has of it.
func withVMs(node []prometheus.Meter, pods ...[]prometheus.Meter) []prometheus.Meter {
	return append(node, slices.Concat(pods...)...)
}

func (s *story) vmSource(series string) *source.Source {
	s.Helper()
	return newSource(s.T, source.Config{URL: s.server.URL, Series: series, VMs: true})
}

// awaitVMs reads until exactly the VMs wanted are known, over a full interval. In
// every answer their watts are right; below that only in the last one, because
// meters begin to count within the interval, when rising is true.
func (s *story) awaitVMs(what string, from *source.Source, want map[energy.Launcher]float64, rising bool) {
	s.Helper()
	poll(s.T, what, func() (bool, string) {
		answer, err := from.Read(s.Context(), []energy.Node{s.node})
		if err != nil || answer.VMsErr != nil {
			s.Fatal(err, answer.VMsErr)
		}
		vms := answer.VMs[s.node.Name]
		full := len(vms) == len(want)
		for launcher, vm := range vms {
			watts, wanted := want[launcher]
			if !wanted {
				full = false
				continue
			}
			if rising && vm.Watts > 0 && float64(vm.Watts) < watts*(1-s.tolerance(vm.IntervalSeconds)) {
				full = false
				continue
			}
			s.within(fmt.Sprint(launcher), float64(vm.Watts), watts, vm.IntervalSeconds)
			full = full && vm.IntervalSeconds >= interval.Seconds()
			if vm.Source != power.SourcePrometheus || vm.Scope != power.ScopePackage {
				s.Errorf("%v: %+v, want the packages'", launcher, vm)
			}
		}
		return full, fmt.Sprintf("%v, %+v", vms, from.Last())
	})
}

func byUID(pod prometheus.Pod) energy.Launcher { return energy.Launcher{UID: pod.UID} }

func TestVMsByPod(t *testing.T) {
	t.Parallel()
	server := start(t, nil)
	web, db := launcher("web", "abcde"), launcher("db", "fghij")
	otherWeb := prometheus.Pod{UID: "uid-other", Namespace: "lab", Name: web.Name}
	service := prometheus.Pod{UID: "uid-service", Namespace: "shop", Name: "web-7d9f8b-xyz12"}
	modern := withVMs(twoSockets(), podMeters(web, 20), podMeters(db, 10), podMeters(otherWeb, 5), podMeters(service, 30))
	wantModern := map[energy.Launcher]float64{byUID(web): 20, byUID(db): 10, byUID(otherWeb): 5}
	old := withVMs([]prometheus.Meter{legacy("package", "0", 80)},
		containerMeters(web, "compute", 20), containerMeters(web, "guest-console-log", 0), containerMeters(db, "compute", 8),
		containerMeters(db, "virtiofs-data", 4), containerMeters(otherWeb, "compute", 5), containerMeters(service, "nginx", 30))
	// Kepler 0.9 counts the idle node's watts to pods as well: a quarter here.
	wantOld := map[energy.Launcher]float64{
		{Namespace: "shop", Base: "virt-launcher-web-"}: 15, {Namespace: "shop", Base: "virt-launcher-db-"}: 9,
		{Namespace: "lab", Base: "virt-launcher-web-"}: 3.75,
	}
	for name, test := range map[string]struct {
		series string
		meters []prometheus.Meter
		want   map[energy.Launcher]float64
	}{
		"vms-kepler":   {"Kepler", modern, wantModern},
		"vms-legacy":   {"KeplerLegacy", old, wantOld},
		"vms-auto":     {"Auto", slices.Concat(modern, old), wantModern},
		"vms-platform": {"Platform", slices.Concat(modern, []prometheus.Meter{outlet("PowerSupply", "1", 200)}), nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStory(t, server, name, test.meters...)
			// Kepler 0.9 names no node on containers' series: whoever scrapes it does.
			s.relabel(func(target *prometheus.Target) { target.Labels = map[string]string{"node": name} })
			from := s.vmSource(test.series)
			s.await("a reading of the node", from, anyReading, nil)
			s.awaitVMs("all VMs", from, test.want, false)
			if last := from.Last(); last.VMs != len(test.want) || len(last.VMsLeftOut) > 0 || len(last.Warnings) > 0 {
				t.Errorf("round %+v, want %d VMs and none left out", last, len(test.want))
			}
		})
	}
}

func TestVMsThatEnd(t *testing.T) {
	t.Parallel()
	server := start(t, nil)
	web, db := launcher("web", "abcde"), launcher("db", "fghij")
	s := newStory(t, server, "vms-end", withVMs(twoSockets(), podMeters(web, 20), podMeters(db, 10))...)
	from := s.vmSource("Kepler")
	s.awaitVMs("both", from, map[energy.Launcher]float64{byUID(web): 20, byUID(db): 10}, false)

	ended := web
	ended.Terminated = true
	s.exporter.Set("vms-end", withVMs(twoSockets(), podMeters(ended, 0), podMeters(db, 10))...)
	s.awaitVMs("web ended", from, map[energy.Launcher]float64{byUID(db): 10}, false)

	// The same VM again, in another pod.
	again := launcher("web", "zzzzz")
	s.exporter.Set("vms-end", withVMs(twoSockets(), podMeters(ended, 0), podMeters(again, 25), podMeters(db, 10))...)
	s.awaitVMs("web again", from, map[energy.Launcher]float64{byUID(again): 25, byUID(db): 10}, false)
}

func TestVMsThatCannotBeRead(t *testing.T) {
	t.Parallel()
	server := start(t, nil)
	web, db := launcher("web", "abcde"), launcher("db", "fghij")
	node := func(watts float64) []prometheus.Meter {
		return withVMs(twoSockets(), podMeters(web, 20), podMeters(db, watts))
	}
	s := newStory(t, server, "vms-faults", node(10)...)
	from := s.vmSource("Kepler")
	both := map[energy.Launcher]float64{byUID(web): 20, byUID(db): 10}
	s.awaitVMs("both", from, both, false)
	leftOut := func(what string, reason energy.Reason, count int) {
		t.Helper()
		poll(t, what, func() (bool, string) {
			if _, err := from.Read(t.Context(), []energy.Node{s.node}); err != nil {
				t.Fatal(err)
			}
			last := from.Last()
			return last.VMs == len(both)-count && last.VMsLeftOut[reason] == count, fmt.Sprintf("%+v", last)
		})
	}
	// An idle VM, while the other works.
	s.exporter.Set("vms-faults", node(0)...)
	leftOut("db stands still", energy.ReasonFrozen, 1)
	s.exporter.Set("vms-faults", node(10)...)
	s.awaitVMs("both again", from, both, true)
	s.exporter.Fail("vms-faults", prometheus.NotANumber)
	leftOut("not a number", energy.ReasonNotFinite, 2)
	s.exporter.Fail("vms-faults", prometheus.Working)
	s.awaitVMs("numbers again", from, both, false)
	again := s.exporter.Target("vms-faults-twice", "vms-faults")
	s.scrape(again)
	leftOut("scraped by two jobs", energy.ReasonManySeries, 2)
}

// TestVMMigrates has two pods of one VM on two nodes, as a live migration does.
func TestVMMigrates(t *testing.T) {
	t.Parallel()
	server := start(t, nil)
	old, other := launcher("web", "abcde"), launcher("web", "fghij")
	from := newStory(t, server, "migrates-from", withVMs(twoSockets(), podMeters(old, 20))...)
	to := newStory(t, server, "migrates-to", twoSockets()...)
	nodes := []energy.Node{from.node, to.node}
	reader := from.vmSource("Kepler")
	await := func(what string, want map[string][]energy.Launcher) {
		t.Helper()
		poll(t, what, func() (bool, string) {
			answer, err := reader.Read(t.Context(), nodes)
			if err != nil || answer.VMsErr != nil {
				t.Fatal(err, answer.VMsErr)
			}
			got := map[string][]energy.Launcher{}
			for node, vms := range answer.VMs {
				got[node] = slices.Collect(maps.Keys(vms))
			}
			return maps.EqualFunc(got, want, slices.Equal), fmt.Sprintf("%v", answer.VMs)
		})
	}
	await("before", map[string][]energy.Launcher{"migrates-from": {byUID(old)}})
	to.exporter.Set("migrates-to", withVMs(twoSockets(), podMeters(other, 15))...)
	await("while it migrates", map[string][]energy.Launcher{"migrates-from": {byUID(old)}, "migrates-to": {byUID(other)}})
	old.Terminated = true
	still := launcher("db", "fghij")
	from.exporter.Set("migrates-from", withVMs(twoSockets(), podMeters(old, 0), podMeters(still, 5))...)
	await("after", map[string][]energy.Launcher{"migrates-from": {byUID(still)}, "migrates-to": {byUID(other)}})
	to.awaitVMs("the target's watts", to.vmSource("Kepler"), map[energy.Launcher]float64{byUID(other): 15}, false)
}

package power

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

func noon() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }

// sixHosts of 10 CPUs and 100 bytes in one zone: the first two have VMs, which use 5 CPUs and 50 bytes, the
// others have been empty for an hour.
func sixHosts() Problem {
	p := Problem{
		Now: noon(), Zones: map[string]Zone{"": {Nodes: 6}}, Reserve: 1, MaxCPU: 0.65, MaxMemory: 0.9,
		Forecast: Demand{CPUs: 5, Memory: 50}, Known: true,
	}
	for i := range 6 {
		h := Host{Name: fmt.Sprint("n", i), State: v1alpha1.HostOn, Usable: true, CPUs: 10, Memory: 100, EmptySince: noon().Add(-time.Hour)}
		if i < 2 {
			h.EmptySince, h.Keeps, h.VMs = time.Time{}, model.Hold{Reason: ReasonVMs}, true
		}
		p.Hosts = append(p.Hosts, h)
	}
	return p
}

func TestPowerOff(t *testing.T) {
	off := func(p *Problem, hosts ...int) {
		for _, i := range hosts {
			p.Hosts[i].State = v1alpha1.HostOff
		}
		p.Zones[""] = Zone{Nodes: 6, Down: len(hosts)}
	}
	for name, test := range map[string]struct {
		change func(*Problem)
		reason string // of the third host, of all that are empty the first
		off    bool
	}{
		"empty":            {func(*Problem) {}, ReasonEmpty, true},
		"one off":          {func(p *Problem) { off(p, 5) }, ReasonEmpty, true},
		"two of six off":   {func(p *Problem) { off(p, 4, 5) }, ReasonZone, false},
		"another NotReady": {func(p *Problem) { p.Zones[""] = Zone{Nodes: 6, Down: 2} }, ReasonZone, false},
		"last of its zone": {func(p *Problem) {
			p.Hosts[2].Zone, p.Zones["z"] = "z", Zone{Nodes: 9}
		}, ReasonZone, false},
		"empty for 9 min": {func(p *Problem) {
			for i := range p.Hosts {
				p.Hosts[i].EmptySince = noon().Add(-9 * time.Minute)
			}
		}, ReasonEmptyLately, false},
		"booted lately":   {func(p *Problem) { p.Hosts[2].BootedAt = noon().Add(-30 * time.Minute) }, ReasonBootedLately, false},
		"reserve":         {func(p *Problem) { p.Reserve = 4 }, ReasonReserve, false},
		"CPUs":            {func(p *Problem) { p.Forecast.CPUs = 35 }, ReasonNeeded, false},
		"memory":          {func(p *Problem) { p.Forecast.Memory = 380 }, ReasonNeeded, false},
		"unknown":         {func(p *Problem) { p.Known = false }, ReasonForecastBuilds, false},
		"outside windows": {func(p *Problem) { p.Hold.Reason = v1alpha1.ReasonOutsideChangeWindow }, v1alpha1.ReasonOutsideChangeWindow, false},
		"rollout":         {func(p *Problem) { p.AllOn.Reason = v1alpha1.ReasonKubeVirtUpdating }, v1alpha1.ReasonKubeVirtUpdating, false},
		"rollout, and a pod": {func(p *Problem) {
			p.AllOn.Reason, p.Hosts[2].Keeps.Reason = v1alpha1.ReasonKubeVirtUpdating, ReasonPods
		}, ReasonPods, false},
		"closed":    {func(p *Problem) { p.Hosts[2].Closed.Reason = v1alpha1.ReasonOptedOut }, v1alpha1.ReasonOptedOut, false},
		"not ready": {func(p *Problem) { p.Hosts[2].Usable = false }, ReasonNodeNotReady, false},
		"another on its way": {func(p *Problem) {
			off(p, 5)
			p.Hosts[5].State = v1alpha1.HostShuttingDown
		}, ReasonOneAtATime, false},
	} {
		p := sixHosts()
		test.change(&p)
		decisions := Decide(p)
		got := decisions[2]
		if got.Off != test.off || got.Reason != test.reason {
			t.Errorf("%s: %+v, want %s", name, got, test.reason)
		}
		if test.off && (decisions[3].Off || decisions[3].Reason != ReasonOneAtATime) {
			t.Errorf("%s: a second host is powered off: %+v", name, decisions[3])
		}
	}
}

func TestPowerOn(t *testing.T) {
	type wanted map[int]string
	for name, test := range map[string]struct {
		change func(*Problem)
		on     wanted
	}{
		"nothing":              {func(*Problem) {}, wanted{}},
		"CPUs":                 {func(p *Problem) { p.Forecast.CPUs = 28 }, wanted{4: ReasonNeeded}},
		"more CPUs":            {func(p *Problem) { p.Forecast.CPUs = 33 }, wanted{4: ReasonNeeded, 5: ReasonNeeded}},
		"memory, if one fails": {func(p *Problem) { p.Forecast.Memory = 301 }, wanted{4: ReasonNeeded}},
		"the faster first": {func(p *Problem) {
			p.Forecast.CPUs, p.Hosts[4].Boot, p.Hosts[5].Boot = 28, 5*time.Minute, 3*time.Minute
		}, wanted{5: ReasonNeeded}},
		"cordoned before off": {func(p *Problem) {
			p.Forecast.CPUs, p.Hosts[5].State = 28, v1alpha1.HostCordoned
		}, wanted{5: ReasonNeeded}},
		"one comes already": {func(p *Problem) {
			p.Forecast.CPUs, p.Hosts[4].State = 28, v1alpha1.HostPoweringOn
		}, wanted{4: ReasonNeeded}},
		"one that failed does not count": {func(p *Problem) {
			p.Forecast.CPUs, p.Hosts[4].State = 28, v1alpha1.HostFailed
		}, wanted{5: ReasonNeeded}},
		"reserve":   {func(p *Problem) { p.Reserve = 3 }, wanted{4: ReasonReserve}},
		"rollout":   {func(p *Problem) { p.AllOn.Reason = v1alpha1.ReasonKubeVirtUpdating }, wanted{4: v1alpha1.ReasonKubeVirtUpdating, 5: v1alpha1.ReasonKubeVirtUpdating}},
		"opted out": {func(p *Problem) { p.Hosts[4].Closed.Reason = v1alpha1.ReasonOptedOut }, wanted{4: v1alpha1.ReasonOptedOut}},
		"pod came while cordoned": {func(p *Problem) {
			p.Hosts[5].State, p.Hosts[5].Keeps.Reason = v1alpha1.HostCordoned, ReasonPods
		}, wanted{5: ReasonPods}},
		"unknown, and needed": {func(p *Problem) { p.Known, p.Forecast.CPUs = false, 28 }, wanted{4: ReasonNeeded}},
	} {
		p := sixHosts()
		p.Hosts[4].State, p.Hosts[5].State = v1alpha1.HostOff, v1alpha1.HostOff
		p.Zones[""] = Zone{Nodes: 6, Down: 2}
		test.change(&p)
		for i, d := range Decide(p) {
			if reason, want := test.on[i]; d.On != want || want && d.Reason != reason {
				t.Errorf("%s: host %d: %+v, want on: %v %s", name, i, d, want, reason)
			}
		}
	}
}

// However hosts, zones and loads are, what is decided keeps every bound.
func TestBounds(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	offs := 0
	for round := range 5000 {
		p := randomProblem(random)
		down := map[string]int{}
		for zone, z := range p.Zones {
			down[zone] = z.Down
		}
		var cpus, most float64
		idle, started := 0, 0
		decisions := Decide(p)
		for i, d := range decisions {
			h := &p.Hosts[i]
			on := h.State == v1alpha1.HostOn
			switch {
			case d.On && d.Off || d.Reason == "":
				t.Fatalf("round %d: host %+v is decided %+v", round, h, d)
			case d.Off && on:
				started++
				down[h.Zone]++
				if h.Keeps.Reason != "" || h.Closed.Reason != "" || !h.Usable || p.AllOn.Reason != "" || p.Hold.Reason != "" || !p.Known {
					t.Fatalf("round %d: host %+v is powered off", round, h)
				}
			case on && h.Usable:
				cpus, most = cpus+float64(h.CPUs), max(most, float64(h.CPUs))
				if !h.VMs {
					idle++
				}
			case d.Off && p.AllOn.Reason != "":
				t.Fatalf("round %d: host %+v stays off though all must be on", round, h)
			}
		}
		if started == 0 {
			continue
		}
		offs++
		need := float64(p.Forecast.CPUs)
		for zone, count := range down {
			if count > p.Zones[zone].Down && 3*count > p.Zones[zone].Nodes {
				t.Fatalf("round %d: %d of %d nodes of a zone are down", round, count, p.Zones[zone].Nodes)
			}
		}
		if started > 1 || idle < p.Reserve || need > p.MaxCPU*cpus || need > cpus-most {
			t.Fatalf("round %d: %d are powered off, %d idle of %d stay on, with %v CPUs for %v", round, started, idle, p.Reserve, cpus, need)
		}
	}
	if offs < 100 {
		t.Errorf("only %d hosts were powered off: the test tests little", offs)
	}
}

func randomProblem(random *rand.Rand) Problem {
	p := Problem{
		Now: noon(), Zones: map[string]Zone{}, Reserve: random.IntN(3), MaxCPU: 0.65, MaxMemory: 0.9, Known: random.IntN(10) > 0,
		Forecast: Demand{CPUs: units.Cores(random.Float64() * 60), Memory: units.Bytes(random.Float64() * 300)},
	}
	if random.IntN(10) == 0 {
		p.AllOn.Reason = "rollout"
	}
	states := []v1alpha1.HostState{v1alpha1.HostOn, v1alpha1.HostOn, v1alpha1.HostOn, v1alpha1.HostOn, v1alpha1.HostOff, v1alpha1.HostFailed}
	for i := range 3 + random.IntN(20) {
		h := Host{
			Name: fmt.Sprint(i), Zone: fmt.Sprint(random.IntN(2)), State: states[random.IntN(len(states))], Usable: random.IntN(10) > 0,
			CPUs: units.Cores(4 + random.IntN(16)), Memory: 100, EmptySince: noon().Add(-time.Duration(random.IntN(60)) * time.Minute),
		}
		if random.IntN(2) == 0 {
			h.Keeps.Reason, h.VMs = []string{ReasonVMs, ReasonPods}[random.IntN(2)], true
		}
		if random.IntN(10) == 0 {
			h.Closed.Reason = v1alpha1.ReasonOptedOut
		}
		z := p.Zones[h.Zone]
		z.Nodes++
		if h.State != v1alpha1.HostOn || !h.Usable {
			z.Down++
		}
		p.Zones[h.Zone] = z
		p.Hosts = append(p.Hosts, h)
	}
	return p
}

func TestKeeps(t *testing.T) {
	daemons := []Pod{{Name: "ns/agent", Owner: "DaemonSet"}, {Name: "kube-system/proxy-n", Owner: "Node"}}
	launcher, web := Pod{Name: "ns/launcher", OfVM: true}, Pod{Name: "ns/web-2", Owner: "ReplicaSet"}
	for name, test := range map[string]struct {
		contents        Contents
		reason, message string
	}{
		"empty":         {Contents{Pods: daemons}, "", ""},
		"pods":          {Contents{Pods: append(daemons, web, Pod{Name: "ns/alone"})}, ReasonPods, "the node runs pod ns/alone and 1 more"},
		"VM":            {Contents{VMs: []string{"ns/vm"}, Pods: []Pod{launcher}}, ReasonVMs, "the node runs VM ns/vm"},
		"VM, and a pod": {Contents{VMs: []string{"ns/vm"}, Pods: []Pod{launcher, web}}, ReasonPods, "the node runs pod ns/web-2"},
		"VM that ends":  {Contents{Pods: []Pod{launcher}}, ReasonVMs, "the node runs pod ns/launcher"},
		"target":        {Contents{Targets: []string{"ns/move"}}, ReasonMigrationTarget, "the node is the target of migration ns/move"},
		"attachment":    {Contents{Attachments: []string{"csi-1"}}, ReasonAttached, "the node has VolumeAttachment csi-1"},
		"local volume":  {Contents{LocalVolumes: []string{"pv-1"}}, ReasonLocalVolume, "the node alone has the data of PersistentVolume pv-1"},
		"control plane": {Contents{Labels: map[string]string{"node-role.kubernetes.io/control-plane": ""}}, ReasonNodeRole, "the node has label node-role.kubernetes.io/control-plane"},
		"storage":       {Contents{Labels: map[string]string{"cluster.ocs.openshift.io/openshift-storage": ""}}, ReasonNodeRole, "the node has label cluster.ocs.openshift.io/openshift-storage"},
	} {
		if got := test.contents.Keeps(); got.Reason != test.reason || got.Message != test.message {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestForecast(t *testing.T) {
	var h History
	add := func(from, to time.Duration, cpus func(time.Duration) float64) {
		for at := from; at <= to; at += time.Minute {
			h.Add(noon().Add(at), Demand{CPUs: units.Cores(cpus(at)), Memory: 7})
		}
	}
	check := func(what string, at time.Duration, want float64, known bool) {
		t.Helper()
		got, is := h.Forecast(noon().Add(at), 15*time.Minute)
		if math.Abs(float64(got.CPUs)-want) > 1e-6 || is != known || got.Memory != 7 {
			t.Errorf("%s: %+v, known %v; want %v CPUs", what, got, is, want)
		}
	}
	flat := func(time.Duration) float64 { return 5 }
	add(0, 29*time.Minute, flat)
	check("29 minutes are known", 29*time.Minute, 5, false)
	add(30*time.Minute, 40*time.Minute, flat)
	check("all is flat", 40*time.Minute, 5, true)
	// Each step has a CPU more than the one before: three steps on it is three more.
	add(45*time.Minute, 104*time.Minute, func(at time.Duration) float64 { return 5 + math.Floor((at-45*time.Minute).Minutes()/5) })
	check("it grows", 104*time.Minute, 16+3, true)
	add(105*time.Minute, 25*time.Hour, flat)
	check("a day after it grew", 24*time.Hour+40*time.Minute, 5+3-1, true)
	check("it fell", 24*time.Hour+2*time.Hour-time.Hour, 5+7-1, true)
}

// A host that takes long to boot is powered on earlier, and may take twice as long as it did.
func TestTimes(t *testing.T) {
	if Ahead(4*time.Minute) != 15*time.Minute || Ahead(20*time.Minute) != 25*time.Minute || Deadline(4*time.Minute) != 15*time.Minute || Deadline(10*time.Minute) != 20*time.Minute {
		t.Error(Ahead(4*time.Minute), Ahead(20*time.Minute), Deadline(4*time.Minute), Deadline(10*time.Minute))
	}
}

// What VMs leave behind, or what passes, does not keep a host on for good.
func TestLasts(t *testing.T) {
	for reason, want := range map[string]bool{
		ReasonNodeRole: true, ReasonPods: true, ReasonLocalVolume: true, v1alpha1.ReasonHostRefused: true, v1alpha1.ReasonHostFailed: true,
		ReasonVMs: false, ReasonMigrationTarget: false, ReasonAttached: false, ReasonEmpty: false, ReasonZone: false, ReasonBootedLately: false,
		v1alpha1.ReasonKubeVirtUpdating: false, v1alpha1.ReasonOutsideChangeWindow: false,
	} {
		if Lasts(reason) != want {
			t.Errorf("%s: want %v", reason, want)
		}
	}
}

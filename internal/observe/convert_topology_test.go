package observe

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

func TestTopology(t *testing.T) {
	got, err := Topology(v1alpha1.Topology{
		IsolatedCPUs: "3", ExclusiveCPUs: "2,4", ReservedCPUs: "0", Nested: true, CPUModel: "m",
		CoreGroups: []v1alpha1.CoreGroup{
			{Cores: []string{"1,3"}, LLC: 1, Class: v1alpha1.CorePerformance},
			{Cores: []string{"0,2"}, Package: 2, NUMANode: 3, Class: v1alpha1.CoreEfficiency},
			{Cores: []string{"4"}, LLC: 2, Class: "Vector"}, // of a newer agent
		},
		IdleStates: []v1alpha1.IdleState{{Name: "C6", ExitLatencyMicroseconds: 220, TargetResidencyMicroseconds: 600}},
		Clocks:     &v1alpha1.Clocks{Governor: "schedutil", FollowLoad: true, LowestMegahertz: 1500, HighestMegahertz: 3700, BaseMegahertz: 2800},
		NICs:       []v1alpha1.NIC{{Name: "eth0", NUMANode: 1, InterruptCPUs: "1-2"}, {Name: "eth1"}},
	})
	want := model.Topology{
		Isolated: units.NewCPUSet(3), Exclusive: units.NewCPUSet(2, 4), Reserved: units.NewCPUSet(0), Nested: true, CPUModel: "m",
		Cores: []model.Core{
			{CPUs: units.NewCPUSet(0, 2), Package: 2, NUMANode: 3, Class: model.CoreEfficiency},
			{CPUs: units.NewCPUSet(1, 3), LLC: 1, Class: model.CorePerformance},
			{CPUs: units.NewCPUSet(4), LLC: 2},
		},
		IdleStates: []model.IdleState{{Name: "C6", ExitLatency: 220 * time.Microsecond, TargetResidency: 600 * time.Microsecond}},
		Clocks:     model.Clocks{Governor: "schedutil", FollowLoad: true, Lowest: 1500, Highest: 3700, Base: 2800},
		NICs:       []model.NIC{{Name: "eth0", NUMANode: 1, CPUs: units.NewCPUSet(1, 2)}, {Name: "eth1"}},
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if taken := got.Taken().String(); taken != "0,2-4" {
		t.Errorf("taken CPUs %s", taken)
	}
}

func TestTopologiesThatCannotBeRead(t *testing.T) {
	groups := func(cores ...string) v1alpha1.Topology {
		return v1alpha1.Topology{CoreGroups: []v1alpha1.CoreGroup{{Cores: []string{"9"}}, {Cores: cores}}}
	}
	for field, bad := range map[string]v1alpha1.Topology{
		"coreGroups[1].cores[1]": groups("0,2", "2,3"),
		"coreGroups[1].cores[0]": groups(""),
		"coreGroups[1].cores[2]": groups("0", "1", "x"),
		"isolatedCPUs":           {IsolatedCPUs: "9999999"},
		"exclusiveCPUs":          {ExclusiveCPUs: "3-1"},
		"reservedCPUs":           {ReservedCPUs: "all"},
	} {
		if _, err := Topology(bad); err == nil || !strings.Contains(err.Error(), "status.topology."+field+":") {
			t.Errorf("%s: %v", field, err)
		}
	}
}

// What plans can do without costs no report.
func TestTopologyLeavesOutWhatMakesNoSense(t *testing.T) {
	got, err := Topology(v1alpha1.Topology{
		CoreGroups: []v1alpha1.CoreGroup{{Cores: []string{"0"}, Class: "Middling"}},
		NICs:       []v1alpha1.NIC{{Name: "a", InterruptCPUs: "0"}, {Name: "b", InterruptCPUs: "-"}},
		IdleStates: []v1alpha1.IdleState{{Name: "C1"}, {Name: "C3", ExitLatencyMicroseconds: -1}, {Name: "C6", TargetResidencyMicroseconds: -1}},
	})
	want := model.Topology{
		Cores: []model.Core{{CPUs: units.NewCPUSet(0)}}, NICs: []model.NIC{{Name: "a", CPUs: units.NewCPUSet(0)}},
		IdleStates: []model.IdleState{{Name: "C1"}},
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

// The model repeats the API's words, because it must not import the API.
func TestClassesAreTheAPIs(t *testing.T) {
	for word, api := range map[model.CoreClass]v1alpha1.CoreClass{
		model.CorePerformance: v1alpha1.CorePerformance, model.CoreEfficiency: v1alpha1.CoreEfficiency,
	} {
		if string(word) != string(api) || class(api) != word {
			t.Errorf("the model's %q is the API's %q", word, api)
		}
	}
}

package controllers

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe"
)

func someDisturbances() *disturbanceFacts {
	return &disturbanceFacts{profiles: map[types.NamespacedName]*profileSight{
		{Namespace: "ns", Name: "web"}:       {verdicts: map[model.Interference]int{model.InterferenceStable: 3, model.InterferenceCoRunner: 2, "": 1}, heavy: 1, watched: 4, flooded: 2},
		{Namespace: "ns", Name: "unwatched"}: {},
	}}
}

func TestDisturbanceMetrics(t *testing.T) {
	var facts *disturbanceFacts
	collector := newDisturbanceCollector(func() *disturbanceFacts { return facts })
	if got := testutil.CollectAndCount(collector); got != 0 {
		t.Errorf("%d series of a manager that does not lead", got)
	}
	facts = someDisturbances()
	want := `
# HELP joulevirt_profile_flooded_vms Running VMs of a profile that are flooded with small packets, of those that lever Buffering watches.
# TYPE joulevirt_profile_flooded_vms gauge
joulevirt_profile_flooded_vms{namespace="ns",profile="web"} 2
# HELP joulevirt_profile_heavy_steal_vms Those of the CoRunner VMs whose vCPUs wait so much that they had better run on another node.
# TYPE joulevirt_profile_heavy_steal_vms gauge
joulevirt_profile_heavy_steal_vms{namespace="ns",profile="unwatched"} 0
joulevirt_profile_heavy_steal_vms{namespace="ns",profile="web"} 1
# HELP joulevirt_profile_vms Running VMs that a profile governs, by what keeps them from their network work: Stable (nothing), CoRunner (other work on the same cores), Self (their own computing), Unknown (not seen for long enough).
# TYPE joulevirt_profile_vms gauge
joulevirt_profile_vms{interference="CoRunner",namespace="ns",profile="unwatched"} 0
joulevirt_profile_vms{interference="CoRunner",namespace="ns",profile="web"} 2
joulevirt_profile_vms{interference="Self",namespace="ns",profile="unwatched"} 0
joulevirt_profile_vms{interference="Self",namespace="ns",profile="web"} 0
joulevirt_profile_vms{interference="Stable",namespace="ns",profile="unwatched"} 0
joulevirt_profile_vms{interference="Stable",namespace="ns",profile="web"} 3
joulevirt_profile_vms{interference="Unknown",namespace="ns",profile="unwatched"} 0
joulevirt_profile_vms{interference="Unknown",namespace="ns",profile="web"} 1
`
	if err := testutil.CollectAndCompare(collector, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
	if problems, err := testutil.CollectAndLint(collector); err != nil || len(problems) != 0 {
		t.Errorf("%v, %v", problems, err)
	}
}

// seenSince is what was seen of VM a of profile web.
type seenSince struct{}

func (seenSince) Of(podUID string, profile types.NamespacedName) model.Tuning {
	if podUID == "pod-a" && profile == (types.NamespacedName{Namespace: "ns", Name: "web"}) {
		return model.Tuning{Since: statusTime()}
	}
	return model.Tuning{}
}

// fixedCosts are those of every node.
type fixedCosts struct{ model.PowerCosts }

func (c fixedCosts) Costs(string, model.Topology) model.PowerCosts { return c.PowerCosts }

// A plan is made with the node's kernel, its costs, and what disturbs its VMs.
func TestWhatPlansAreMadeWith(t *testing.T) {
	s := newOneNode(t)
	patch := client.RawPatch(types.MergePatchType, []byte(`{"status":{"capabilities":[{"name":"Other","available":true},{"name":"SchedSlice","available":true},{"name":"Buffering","message":"the kernel has no fq"}]}}`))
	if err := s.client.Patch(t.Context(), &v1alpha1.NodeReport{ObjectMeta: metav1.ObjectMeta{Name: "n"}}, patch); err != nil {
		t.Fatal(err)
	}
	costs := model.PowerCosts{PerBusyCore: 9, Pinned: 0.2, Separated: 0.1}
	observer := &observe.Observer{
		Reader: s.client, Powers: &observe.Powers{Rates: s.heard(), Meters: s.meters, Clock: s.clock},
		Costs: fixedCosts{costs}, Disturbances: disturbances{"pod-a": steals(20, 1)}, Tunings: seenSince{},
	}
	seen, err := observer.Node(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "n"}})
	if err != nil || len(seen.Node.VMs) != 1 {
		t.Fatalf("%+v, %v", seen.Node.VMs, err)
	}
	if !seen.Node.Slices || seen.Node.Costs != costs || seen.Node.Buffering != "the kernel has no fq" {
		t.Errorf("slices %t, costs %+v, buffering %q", seen.Node.Slices, seen.Node.Costs, seen.Node.Buffering)
	}
	if vm := seen.Node.VMs[0]; !vm.Tuning.Since.Equal(statusTime()) || vm.OnPackets != 10_000 || !vm.DefendFloods {
		t.Errorf("VM %+v", vm)
	}
	if vm := seen.Node.VMs[0]; vm.Disturbance.Verdict != model.InterferenceCoRunner || vm.MaxSteal != 0.05 {
		t.Errorf("VM %+v", vm)
	}
}

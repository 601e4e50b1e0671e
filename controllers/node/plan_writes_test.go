package node

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// TestWritesOfANamespace: an owner with a VM on each of 1,000 nodes has their plans written so
// often and no more, and does not keep others from theirs.
func TestWritesOfANamespace(t *testing.T) {
	const nodes = 1000
	var w planWrites
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	written := 0
	const minutes = 5
	for second := range minutes * 60 {
		for node := range nodes {
			if w.take(fmt.Sprint(node), []string{"owner"}, now.Add(time.Duration(second)*time.Second)) == 0 {
				written++
			}
		}
	}
	if most := namespaceBurst + namespaceRate*minutes*60; written > most || written < most-namespaceRate {
		t.Errorf("%d plans written, want %d", written, most)
	}
	end := now.Add(minutes * time.Minute)
	if w.take("another", []string{"owner", "neighbor"}, end) != 0 {
		t.Error("a namespace that has writes left waits for another's")
	}
	if w.take("another", nil, end) != 0 {
		t.Error("what no namespace causes waits for one")
	}
	for i := range 2 * namespaceRate {
		if wait := w.take(fmt.Sprintf("node %d", i), []string{"owner"}, end); wait != 0 && wait != writeEvery {
			t.Errorf("the next try is in %v", wait)
		}
	}
	for i := range 10 * prunedFrom {
		w.take("n", []string{fmt.Sprint(i)}, end.Add(time.Duration(i)*time.Minute))
	}
	if len(w.namespaces) > prunedFrom+1 {
		t.Errorf("%d namespaces are remembered", len(w.namespaces))
	}
}

// TestWritesOfAPolicy: what a policy changes on all nodes at once waits for nobody's writes, once a
// version.
func TestWritesOfAPolicy(t *testing.T) {
	var w planWrites
	for _, step := range []struct {
		policy string
		first  bool
	}{{"a/1", true}, {"a/1", false}, {"a/2", true}, {"a/2", false}, {"b/2", true}} {
		if got := w.firstOf("n", step.policy); got != step.first {
			t.Errorf("%s is the first of its version: %t, want %t", step.policy, got, step.first)
		}
		w.wrote("n", step.policy)
	}
	if w.forget("n"); !w.firstOf("n", "b/2") {
		t.Error("a node without a plan is remembered")
	}
}

func TestCauses(t *testing.T) {
	vm := func(namespace, uid, profile string) v1alpha1.VMPlan {
		vm := v1alpha1.VMPlan{Profile: profile}
		vm.Namespace, vm.PodUID = namespace, types.UID(uid)
		return vm
	}
	spec := func(vms ...v1alpha1.VMPlan) *v1alpha1.NodePlanSpec { return &v1alpha1.NodePlanSpec{VMs: vms} }
	before := spec(vm("a", "1", "p"), vm("b", "2", "p"))
	for name, tc := range map[string]struct {
		is   *v1alpha1.NodePlanSpec
		want []string
	}{
		"nothing":         {before, nil},
		"one changed":     {spec(vm("a", "1", "other"), vm("b", "2", "p")), []string{"a"}},
		"one came":        {spec(vm("a", "1", "p"), vm("b", "2", "p"), vm("c", "3", "p")), []string{"c"}},
		"one went":        {spec(vm("a", "1", "p")), []string{"b"}},
		"all are others'": {spec(vm("c", "1", "p")), []string{"b", "c"}},
	} {
		got := causes(before, tc.is)
		if slices.Sort(got); !slices.Equal(got, tc.want) {
			t.Errorf("%s: caused by %v, want %v", name, got, tc.want)
		}
	}
}

// TestPlansFit: however large a node's VMs are, a plan is made that can be stored.
func TestPlansFit(t *testing.T) {
	var node model.Node
	for i := range 1024 {
		node.VMs = append(node.VMs, model.VM{PodUID: fmt.Sprintf("%04d", (i*37)%1024)})
	}
	if left := leaveOut(&node, mostPlannedVMs); left != 320 || len(node.VMs) != 704 || node.VMs[703].PodUID != "0703" {
		t.Errorf("%d left out, %d stay, the last is %s", left, len(node.VMs), node.VMs[len(node.VMs)-1].PodUID)
	}
	plan := model.Plan{Reason: v1alpha1.ReasonPlanned}
	add := func(vcpus int) {
		vm := model.VMPlan{PodUID: "0f9a3c52-7d1e-4b7a-9c55-012345678901", Namespace: "shop", Name: "web-server-1", Profile: "web"}
		for i := range vcpus {
			vm.Pins = append(vm.Pins, model.Pin{VCPU: i, CPUs: units.NewCPUSet(i%128, 128+i%128)})
		}
		vm.Reasons = []model.LeverReason{
			{Lever: v1alpha1.LeverAffinity, Reason: v1alpha1.ReasonPinned}, {Lever: v1alpha1.LeverSlice, Reason: v1alpha1.ReasonShortSlice},
			{Lever: v1alpha1.LeverBuffering, Reason: v1alpha1.ReasonFewPackets, Message: strings.Repeat("m", 80)}, {Lever: v1alpha1.LeverShaping, Reason: v1alpha1.ReasonNothingToShape},
		}
		plan.VMs = append(plan.VMs, vm)
	}
	for range mostPlannedVMs {
		add(8)
	}
	if !fits(&plan) {
		t.Errorf("%d VMs of 8 vCPUs do not fit", mostPlannedVMs)
	}
	for range 200 {
		add(128)
	}
	if fits(&plan) {
		t.Error("200 VMs of 128 vCPUs more fit")
	}
	if explainLeftOut(&plan, 320); plan.Reason != v1alpha1.ReasonTooManyVMs || !strings.Contains(plan.Message, "320 VMs") {
		t.Errorf("%s: %s", plan.Reason, plan.Message)
	}
	plan.Reason = v1alpha1.ReasonPaused
	if explainLeftOut(&plan, 320); plan.Reason != v1alpha1.ReasonPaused {
		t.Errorf("a plan that is %s says that some VMs are left out", v1alpha1.ReasonPaused)
	}
}

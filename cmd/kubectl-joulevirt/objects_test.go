package main

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/cli/access"
)

func policy() *v1alpha1.EnergyPolicy {
	estimate := func(low, value, high v1alpha1.Decimal) *v1alpha1.Estimate {
		return &v1alpha1.Estimate{Low: low, Value: value, High: high}
	}
	return &v1alpha1.EnergyPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: v1alpha1.EnergyPolicySpec{
			Mode: v1alpha1.ModeRecommend, Levers: []v1alpha1.Lever{v1alpha1.LeverAffinity, v1alpha1.LeverSlice, v1alpha1.LeverTrafficShare},
			Tariff: &v1alpha1.Tariff{Currency: "EUR"},
		},
		Status: v1alpha1.EnergyPolicyStatus{
			Nodes: v1alpha1.NodeCounts{Selected: 1, Governed: 1, Reporting: 1, Metered: 1}, Watts: ptr.To(int64(180)),
			Proven: []v1alpha1.Saving{{Lever: v1alpha1.LeverAffinity, Watts: v1alpha1.Estimate{Value: "14", Low: "12", High: "16"}}},
			Savings: []v1alpha1.Savings{{
				Basis: v1alpha1.BasisMeasured, Period: "2026-10", KilowattHours: *estimate("10", "12.5", "15"), Cost: estimate("3", "3.5", "4"),
			}},
		},
	}
}

func profile() *v1alpha1.VMNetworkProfile {
	return &v1alpha1.VMNetworkProfile{
		ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: "web"},
		Spec: v1alpha1.VMNetworkProfileSpec{
			Selector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			Group:    &v1alpha1.TrafficGroup{Kind: v1alpha1.GroupService, Name: "web"},
		},
		Status: v1alpha1.VMNetworkProfileStatus{GovernedVMs: 2, Traffic: &v1alpha1.TrafficStatus{
			Members: 2, ReadyMembers: 2, ActiveMembers: 2, State: v1alpha1.LeverRecommended, Reason: v1alpha1.ReasonAwaitingApproval,
			Revision: "r-group",
			Shares: []v1alpha1.MemberShare{
				{Name: "web-00000", Node: node, PerMille: 800, Reason: "AtLimit"},
				{Name: "web-00001", Node: node, PerMille: 200, Reason: "Remainder"},
			},
		}},
	}
}

func report() *v1alpha1.NodeReport {
	now := metav1.Now()
	return &v1alpha1.NodeReport{
		ObjectMeta: metav1.ObjectMeta{Name: node},
		Status: v1alpha1.NodeReportStatus{
			KernelVersion: "6.1.0", ReportedAt: &now, VMs: 2,
			Capabilities: []v1alpha1.Capability{{Name: "Affinity", Available: true}, {Name: "SchedSlice", Message: "too old"}},
			Power:        v1alpha1.Power{Source: v1alpha1.PowerRAPL, Scope: v1alpha1.PowerScopePackage, Watts: ptr.To(int64(180)), MeasuredAt: &now},
		},
	}
}

// plan is a recommendation for two VMs that is not approved.
func plan() *v1alpha1.NodePlan {
	vm := func() v1alpha1.VMPlan {
		return v1alpha1.VMPlan{
			VMReference: v1alpha1.VMReference{Namespace: shop}, Profile: "web",
			Affinity:          &v1alpha1.AffinityAction{VCPUs: []v1alpha1.VCPUPin{{VCPU: 0, CPUs: "1"}}},
			SliceMicroseconds: ptr.To(int32(1000)),
			Reasons: []v1alpha1.LeverReason{
				{Lever: v1alpha1.LeverAffinity, Reason: v1alpha1.ReasonPinned}, {Lever: v1alpha1.LeverSlice, Reason: v1alpha1.ReasonShortSlice, Message: "of pool Network"},
			},
		}
	}
	recommended := metav1.NewTime(time.Now().Add(-time.Hour))
	plan := &v1alpha1.NodePlan{
		ObjectMeta: metav1.ObjectMeta{Name: node},
		Spec: v1alpha1.NodePlanSpec{
			Policy: "web", Mode: v1alpha1.ModeRecommend, Revision: "r-node", RecommendedAt: &recommended,
			Reason: v1alpha1.ReasonAwaitingApproval, VMs: []v1alpha1.VMPlan{vm(), vm()},
		},
	}
	return plan
}

// placementPlan is a recommendation to move a VM.
func placementPlan() *v1alpha1.PlacementPlan {
	return &v1alpha1.PlacementPlan{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: v1alpha1.PlacementPlanSpec{
			Policy: "web", Mode: v1alpha1.ModeRecommend, Revision: "r-moves", WattsBefore: "180", WattsAfter: "170",
			Moves: []v1alpha1.PlacementMove{{Namespace: shop, Name: "web-00000", UID: "uid", From: node, To: "node-of-another", Watts: "10", Reason: "VMSuffers"}},
		},
		Status: v1alpha1.PlacementPlanStatus{Stays: []v1alpha1.ReasonCount{{Reason: "NoBetterNode", Count: 1}}},
	}
}

// gone is satisfied once plans cannot be listed.
func gone(s *scene) func(context.Context) error {
	return func(ctx context.Context) error {
		c, err := access.New(s.cluster.RESTConfig())
		if err != nil {
			return err
		}
		switch err := c.List(ctx, &v1alpha1.NodePlanList{}); {
		case access.Is(err, access.KindMissing), meta.IsNoMatchError(err):
			return nil
		case err != nil:
			return err
		default:
			return errors.New("plans are still served")
		}
	}
}

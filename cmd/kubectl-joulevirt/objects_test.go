package main

import (
	"context"
	"errors"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/cli/access"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/verify"
	"github.com/joulevirt/joulevirt/internal/verify/ledger"
)

func policy() *v1alpha1.EnergyPolicy {
	estimate := func(low, value, high v1alpha1.Decimal) *v1alpha1.Estimate {
		return &v1alpha1.Estimate{Low: low, Value: value, High: high}
	}
	return &v1alpha1.EnergyPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: v1alpha1.EnergyPolicySpec{
			Mode: v1alpha1.ModeRecommend, Levers: []v1alpha1.Lever{v1alpha1.LeverAffinity, v1alpha1.LeverSlice, v1alpha1.LeverTrafficShare},
		},
		Status: v1alpha1.EnergyPolicyStatus{
			Nodes: v1alpha1.NodeCounts{Selected: 1, Governed: 1, Reporting: 1, Metered: 1}, Watts: ptr.To(int64(180)),
			Proven: []v1alpha1.Saving{{Lever: v1alpha1.LeverAffinity, Milliwatts: 14000, LowMilliwatts: 12000, HighMilliwatts: 16000}},
			Savings: []v1alpha1.Savings{{
				Basis: v1alpha1.BasisMeasured, Period: "2026-10", KilowattHours: *estimate("10", "12.5", "15"), Cost: estimate("3", "3.5", "4"),
			}},
			Tariff: &v1alpha1.TariffStatus{Currency: "EUR", PricePerKWh: "0.28"},
		},
	}
}

// booked is the ledger of the policy, with an hour of one lever on the node.
func booked(t *testing.T) *v1alpha1.EnergyLedger {
	t.Helper()
	l, from := ledger.New(), time.Date(2026, 10, 1, 0, 0, 0, 0, time.UTC)
	cause := l.Book(ledger.Block{
		Node: node, Lever: model.LeverBuffering, From: from, To: from.Add(time.Hour), On: true,
		Effect: verify.Shrunk{Log: -0.1, Own: 0.01, Freedom: 20}, Measured: ledger.Measured{Seconds: 3600, Joules: 3.6e5},
	}, from.Add(time.Hour))
	if cause != "" {
		t.Fatal(cause)
	}
	return &v1alpha1.EnergyLedger{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Status: v1alpha1.EnergyLedgerStatus{Ledger: l.Save()}}
}

func profile() *v1alpha1.VMNetworkProfile {
	return &v1alpha1.VMNetworkProfile{
		ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: "web"},
		Spec: v1alpha1.VMNetworkProfileSpec{
			Selector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			Group:    &v1alpha1.TrafficGroup{Kind: v1alpha1.GroupService, Name: "web"},
		},
		Status: v1alpha1.VMNetworkProfileStatus{MatchedVMs: 2, GovernedVMs: 2, Traffic: &v1alpha1.TrafficStatus{
			Members: 2, ReadyMembers: 2, ActiveMembers: 2, State: v1alpha1.LeverRecommended, Reason: v1alpha1.ReasonAwaitingApproval,
			Revision: "r-group", Now: &v1alpha1.TrafficSpread{SigmaBitsPerSecond: 120e6, EffectiveTalkers: resource.MustParse("1.8")},
			Shares: []v1alpha1.MemberShare{
				{Name: "web-00000", Node: node, Ready: true, PerMille: 800, Reason: "AtLimit"},
				{Name: "web-00001", Node: node, Ready: true, PerMille: 200, Reason: "Remainder"},
			},
		}},
	}
}

func report() *v1alpha1.NodeReport {
	now := metav1.Now()
	return &v1alpha1.NodeReport{
		ObjectMeta: metav1.ObjectMeta{Name: node},
		Status: v1alpha1.NodeReportStatus{
			KernelVersion: "6.1.0", ReportedAt: &now, VMs: v1alpha1.VMCounts{Running: 2},
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
			Affinity: &v1alpha1.AffinityAction{VCPUs: []v1alpha1.VCPUPin{{VCPU: 0, CPUs: "1"}}},
			Slice:    &v1alpha1.SliceAction{Microseconds: 1000},
			Reasons: []v1alpha1.PlanReason{
				{Lever: v1alpha1.LeverAffinity, Reason: v1alpha1.ReasonPinned}, {Lever: v1alpha1.LeverSlice, Reason: v1alpha1.ReasonShortSlice, Message: "of pool Network"},
			},
		}
	}
	recommended := metav1.NewTime(time.Now().Add(-time.Hour))
	plan := &v1alpha1.NodePlan{
		ObjectMeta: metav1.ObjectMeta{Name: node},
		Spec: v1alpha1.NodePlanSpec{
			Policy: "web", Mode: v1alpha1.ModeRecommend, Revision: "r-node", ReplacedRevision: "r-before", RecommendedAt: &recommended,
			Reason: v1alpha1.ReasonAwaitingApproval, VMs: []v1alpha1.VMPlan{vm(), vm()},
		},
	}
	return plan
}

// gone is satisfied once plans cannot be listed.
func gone(s *scene) func(context.Context) error {
	return func(ctx context.Context) error {
		c, err := access.New(s.cluster.RESTConfig())
		if err != nil {
			return err
		}
		var missing *access.KindMissing
		switch err := c.List(ctx, &v1alpha1.NodePlanList{}); {
		case errors.As(err, &missing), meta.IsNoMatchError(err):
			return nil
		case err != nil:
			return err
		default:
			return errors.New("plans are still served")
		}
	}
}

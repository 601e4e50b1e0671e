package page

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
)

const (
	policyName = "production"
	nodeName   = "worker-01"
	namespace  = "shop"
	// hostile is text that would be markup, in messages that other programs wrote.
	hostile = `<img src=x onerror="document.title='broken'"><script>document.title='broken'</script>`
)

// long names are as long as names may be.
func long(start string) string {
	for len(start) < 63 {
		start += "-very-long"
	}
	return start[:63]
}

func estimate(low, value, high v1alpha1.Decimal) *v1alpha1.Estimate {
	return &v1alpha1.Estimate{Low: low, Value: value, High: high}
}

// scenery are the objects of a cluster in which most things happen at once.
func scenery(now time.Time) []client.Object {
	return append(Nodes(14, policyName, now), Policy(policyName, now), placement(policyName, now), withdrawn(), group("checkout", 6), group(long("catalogue"), 14))
}

// Nodes are the reports and plans of nodes of a policy, with 20 VMs each.
func Nodes(count int, policy string, now time.Time) (out []client.Object) {
	for i := 1; i <= count; i++ {
		name := fmt.Sprintf("worker-%02d", i)
		out = append(out, report(name, i, now), plan(name, policy))
	}
	return out
}

// placement has moves that are planned, and some that were made.
func placement(policy string, now time.Time) *v1alpha1.PlacementPlan {
	plan := &v1alpha1.PlacementPlan{
		ObjectMeta: metav1.ObjectMeta{Name: policy},
		Spec:       v1alpha1.PlacementPlanSpec{Policy: policy, Mode: v1alpha1.ModeEnforce, Apply: true, Revision: "r-moves", WattsBefore: "890", WattsAfter: "781.5"},
		Status: v1alpha1.PlacementPlanStatus{
			Stays: []v1alpha1.ReasonCount{{Reason: "NoBetterNode", Count: 250}, {Reason: "NeverHeardOf", Count: 1}},
			Conditions: []metav1.Condition{
				{Type: v1alpha1.ConditionMovesAllowed, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonMovesAllowed, LastTransitionTime: metav1.NewTime(now)},
				{Type: v1alpha1.ConditionHostsManaged, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonHostFailed, Message: "worker-14 did not come back: " + hostile, LastTransitionTime: metav1.NewTime(now)},
			},
			Hosts: []v1alpha1.HostStatus{
				{Node: "worker-13", State: v1alpha1.HostOff, Since: &metav1.Time{Time: now.Add(-2 * time.Hour)}, Reason: "Empty"},
				{Node: "worker-14", State: v1alpha1.HostFailed, Since: &metav1.Time{Time: now.Add(-time.Hour)}, Reason: v1alpha1.ReasonHostFailed, Message: "the host did not come back " + hostile},
				{Node: "worker-01", State: v1alpha1.HostOn, Reason: "VMsOnNode"},
			},
		},
	}
	for i := range 4 {
		after := v1alpha1.PlacementLoad{VMs: 21, CPUPercent: 46, Watts: "240"}
		if i == 0 {
			after = v1alpha1.PlacementLoad{Watts: "0"}
		}
		plan.Spec.Nodes = append(plan.Spec.Nodes, v1alpha1.PlacementNode{Name: fmt.Sprintf("worker-%02d", 1+i), Before: v1alpha1.PlacementLoad{VMs: 20, CPUPercent: 41, Watts: "233.5"}, After: after})
	}
	for i, reason := range []string{"VMSuffers", "SavesEnergy", "SavesEnergy"} {
		plan.Spec.Moves = append(plan.Spec.Moves, v1alpha1.PlacementMove{
			Namespace: namespace, Name: long(fmt.Sprintf("moving-%d", i)), UID: "uid", From: "worker-01", To: fmt.Sprintf("worker-%02d", 2+i), Watts: "36.2", Reason: reason,
			Cost: v1alpha1.PlacementCost{Bytes: 4 << 30, Seconds: 600, Joules: 4800, BreaksConnections: i > 0},
		})
		plan.Status.Moves = append(plan.Status.Moves, v1alpha1.PlacementOutcome{
			Revision: "r-before", Namespace: namespace, Name: fmt.Sprintf("moved-%d", i), From: "worker-03", To: "worker-04", Migration: "joulevirt-1",
			Phase: []v1alpha1.PlacementPhase{v1alpha1.PlacementSucceeded, v1alpha1.PlacementFailed, v1alpha1.PlacementRunning}[i], Reason: reason,
			CreatedAt: metav1.NewTime(now.Add(time.Duration(i-3) * time.Hour)),
		})
	}
	return plan
}

// Policy has a value for everything that the page shows of a policy.
func Policy(name string, now time.Time) *v1alpha1.EnergyPolicy {
	condition := func(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
		return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(now.Add(-26 * time.Hour))}
	}
	saving := func(lever v1alpha1.Lever, low, value, high v1alpha1.Decimal) v1alpha1.Saving {
		return v1alpha1.Saving{Lever: lever, Watts: v1alpha1.Estimate{Value: value, Low: low, High: high}}
	}
	booked := func(basis v1alpha1.Basis, period string, factor float64) v1alpha1.Savings {
		of := func(v float64) v1alpha1.Decimal { return v1alpha1.Decimal(fmt.Sprintf("%.3g", v*factor)) }
		range3 := func(v, half float64) v1alpha1.Estimate { return *estimate(of(v-half), of(v), of(v+half)) }
		s := v1alpha1.Savings{Basis: basis, Period: period, KilowattHours: range3(60, 9), Levers: []v1alpha1.LeverSavings{
			{Lever: v1alpha1.LeverAffinity, KilowattHours: range3(41, 6)}, {Lever: v1alpha1.LeverBuffering, KilowattHours: range3(21, 5)},
		}}
		if basis == v1alpha1.BasisMeasured {
			s.JoulesPerGB, s.JoulesPerGBWithout = "412", estimate("431", "446", "463")
			s.Cost, s.KilogramsCO2 = ptr.To(range3(16.8, 2.5)), ptr.To(range3(22.8, 3.4))
		}
		return s
	}
	return &v1alpha1.EnergyPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.EnergyPolicySpec{
			Mode:   v1alpha1.ModeEnforce,
			Levers: []v1alpha1.Lever{v1alpha1.LeverAffinity, v1alpha1.LeverSlice, v1alpha1.LeverBuffering, v1alpha1.LeverTrafficShare},
			Tariff: &v1alpha1.Tariff{Currency: "EUR"},
		},
		Status: v1alpha1.EnergyPolicyStatus{
			Nodes: v1alpha1.NodeCounts{Selected: 14, Governed: 14, Reporting: 14, Metered: 12}, Watts: ptr.To(int64(2890)),
			JoulesPerGB: "409",
			EnergySources: []v1alpha1.EnergySourceStatus{
				{Type: v1alpha1.PowerPrometheus, Nodes: 11},
				{Type: v1alpha1.PowerRAPL, Nodes: 1},
				{Type: v1alpha1.PowerModel, Nodes: 2, Reason: v1alpha1.ReasonNoMeter, Message: "node worker-13: " + hostile},
			},
			Potential: []v1alpha1.Saving{saving(v1alpha1.LeverTrafficShare, "20", "55", "90")},
			Proven:    []v1alpha1.Saving{saving(v1alpha1.LeverAffinity, "128", "172", "214"), saving(v1alpha1.LeverBuffering, "52", "88", "121")},
			Savings: []v1alpha1.Savings{
				booked(v1alpha1.BasisMeasured, now.UTC().Format("2006-01"), 1), booked(v1alpha1.BasisMeasured, "Total", 3.2), booked(v1alpha1.BasisModelled, "Total", .21),
			},
			Trials: trials(now), Coverage: coverages(),
			Conditions: []metav1.Condition{
				condition(v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonGoverningNodes, "14 nodes are governed"),
				condition(v1alpha1.ConditionMeterAvailable, metav1.ConditionFalse, v1alpha1.ReasonNoMeter, "2 of 14 nodes have no meter: "+hostile),
				condition(v1alpha1.ConditionSavingsProven, metav1.ConditionTrue, v1alpha1.ReasonLeverAdopted, "Affinity and Buffering were measured to save"),
				condition(v1alpha1.ConditionNodesContested, metav1.ConditionFalse, v1alpha1.ReasonNotContested, ""),
				condition(v1alpha1.ConditionLedgerStored, metav1.ConditionTrue, v1alpha1.ReasonLedgerStored, ""),
				condition("FromTheFuture", metav1.ConditionTrue, "NeverHeardOf", ""),
			},
		},
	}
}

func trials(now time.Time) []v1alpha1.LeverTrial {
	const xeon = "Intel(R) Xeon(R) Gold 6338, Linux 6.12, network heavy"
	until := metav1.NewTime(now.Add(5 * time.Hour))
	return []v1alpha1.LeverTrial{
		{Lever: v1alpha1.LeverTrafficShare, Class: "groups of 6 to 15 VMs, network heavy", Stance: "OnTrial", Units: 2, Pairs: 7, PlannedPairs: 24, SavedPercent: estimate("-1.2", "3.1", "7.4"), Until: &until, Message: "7 of 24 pairs are done"},
		{Lever: v1alpha1.LeverAffinity, Class: xeon, Stance: "Adopted", Units: 8, Pairs: 18, PlannedPairs: 24, SavedPercent: estimate("4.4", "5.9", "7.3"), Message: "saves on 8 nodes"},
		{Lever: v1alpha1.LeverBuffering, Class: xeon, Stance: "Adopted", Units: 8, Pairs: 24, PlannedPairs: 24, SavedPercent: estimate("1.8", "3", "4.1")},
		{Lever: v1alpha1.LeverAffinity, Class: "only worker-09", Stance: "Rejected", Units: 1, Pairs: 24, PlannedPairs: 24, SavedPercent: estimate("-10.5", "-10.2", "-9.96"), Until: &until, Message: "costs energy on this node"},
		{Lever: v1alpha1.LeverBuffering, Class: "AMD EPYC 9354P, Linux 6.12, " + long("mixed"), Stance: "Undecided", Units: 3, Pairs: 24, PlannedPairs: 24, SavedPercent: estimate("-2.9", "0.8", "4.6")},
		{Lever: v1alpha1.LeverSlice, Class: "AMD EPYC 9354P, Linux 6.12, mixed", Stance: "AwaitingTrial", PlannedPairs: 24},
	}
}

func coverages() []v1alpha1.LeverCoverage {
	return []v1alpha1.LeverCoverage{
		{Lever: v1alpha1.LeverTrafficShare, ReachedVMs: 20, ReachedBytesPercent: ptr.To(int32(34)), Reasons: []v1alpha1.ReasonCount{{Reason: v1alpha1.ReasonNoGroup, Count: 190}, {Reason: v1alpha1.ReasonNoProfile, Count: 70}}},
		{Lever: v1alpha1.LeverAffinity, ReachedVMs: 122, ReachedBytesPercent: ptr.To(int32(81)), Reasons: []v1alpha1.ReasonCount{
			{Reason: v1alpha1.ReasonNoProfile, Count: 70}, {Reason: v1alpha1.ReasonNoSaving, Count: 54}, {Reason: v1alpha1.ReasonRejectedByTrial, Count: 20}, {Reason: v1alpha1.ReasonDedicatedCPUs, Count: 14},
		}},
		{Lever: v1alpha1.LeverSlice, Reasons: []v1alpha1.ReasonCount{{Reason: v1alpha1.ReasonAwaitingTrial, Count: 210}, {Reason: v1alpha1.ReasonNoProfile, Count: 70}}},
		{Lever: v1alpha1.LeverBuffering, ReachedVMs: 96, ReachedBytesPercent: ptr.To(int32(77)), Reasons: []v1alpha1.ReasonCount{{Reason: v1alpha1.ReasonNoProfile, Count: 70}, {Reason: "NeverHeardOf", Count: 114}}},
	}
}

func report(name string, i int, now time.Time) *v1alpha1.NodeReport {
	at := metav1.NewTime(now.Add(-40 * time.Second))
	report := &v1alpha1.NodeReport{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: v1alpha1.NodeReportStatus{
		KernelVersion: "6.12.48", ReportedAt: &at, VMs: 20,
		Topology:     v1alpha1.Topology{TakenCPUs: "0,48", CPUModel: "Intel(R) Xeon(R) Gold 6338"},
		Capabilities: []v1alpha1.Capability{{Name: "Affinity", Available: true}, {Name: "GuestTools", Message: "no guest answers: " + hostile}},
		Power:        v1alpha1.Power{Source: v1alpha1.PowerRAPL, Scope: v1alpha1.PowerScopePackage, Watts: ptr.To(int64(190 + 7*i)), MeasuredAt: &at},
	}}
	if i > 12 {
		report.Status.Power.Source = v1alpha1.PowerModel
	}
	for p := range 2 {
		g := v1alpha1.CoreGroup{Package: int32(p), NUMANode: int32(p), LLC: int32(p)}
		for core := range 24 {
			g.Cores = append(g.Cores, fmt.Sprintf("%d,%d", 24*p+core, 48+24*p+core))
		}
		report.Status.Topology.CoreGroups = append(report.Status.Topology.CoreGroups, g)
	}
	return report
}

func plan(name, policy string) *v1alpha1.NodePlan {
	plan := &v1alpha1.NodePlan{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.NodePlanSpec{
		Policy: policy, Mode: v1alpha1.ModeEnforce, Revision: "7a625d409810dc4a", Apply: true, Reason: v1alpha1.ReasonPlanned,
		NetworkCPUs: "1-11,49-59", ComputeCPUs: "12-47,60-95",
	}}
	for v := range 20 {
		of := v1alpha1.VMReference{Namespace: namespace, Name: fmt.Sprintf("web-%s-%d", name, v), PodUID: types.UID(fmt.Sprintf("pod-%s-%d", name, v))}
		vm := v1alpha1.VMPlan{VMReference: of, Profile: "checkout", Pool: v1alpha1.PoolNetwork, Reasons: []v1alpha1.LeverReason{
			{Lever: v1alpha1.LeverAffinity, Reason: v1alpha1.ReasonNoSaving, Message: hostile}, {Lever: v1alpha1.LeverBuffering, Reason: v1alpha1.ReasonAwaitingTrial},
			{Lever: v1alpha1.LeverSlice, Reason: v1alpha1.ReasonAwaitingTrial}, {Lever: v1alpha1.LeverShaping, Reason: v1alpha1.ReasonLeverNotAllowed},
		}}
		if v < 9 {
			cpus := fmt.Sprintf("%d,%d", 1+v, 49+v)
			vm.Affinity = &v1alpha1.AffinityAction{VCPUs: []v1alpha1.VCPUPin{{VCPU: 0, CPUs: cpus}, {VCPU: 1, CPUs: cpus}}}
			vm.Reasons[0] = v1alpha1.LeverReason{Lever: v1alpha1.LeverAffinity, Reason: v1alpha1.ReasonPinned}
			plan.Status.VMs = append(plan.Status.VMs, v1alpha1.VMApplied{
				VMReference: v1alpha1.VMReference{PodUID: of.PodUID, Namespace: of.Namespace, Name: of.Name},
				LeverReason: v1alpha1.LeverReason{Lever: v1alpha1.LeverAffinity, Reason: v1alpha1.ReasonApplied},
				State:       v1alpha1.LeverInForce,
				VCPUs:       []v1alpha1.VCPUPin{{VCPU: 0, CPUs: cpus}, {VCPU: 1, CPUs: cpus}},
			})
			plan.Status.VMsInForce++
		}
		plan.Spec.VMs = append(plan.Spec.VMs, vm)
	}
	return plan
}

// withdrawn has a VM whose gateway was withdrawn, and one whose gateway serves.
func withdrawn() *v1alpha1.HybridWorkload {
	return &v1alpha1.HybridWorkload{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "render"},
		Spec: v1alpha1.HybridWorkloadSpec{
			Selector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "render"}}, ServiceName: "render", Port: 80,
			Memory: v1alpha1.GatewayMemory{Min: resource.MustParse("16Mi"), Max: resource.MustParse("64Mi")}, TargetResponseTime: &metav1.Duration{Duration: time.Second},
		},
		Status: v1alpha1.HybridWorkloadStatus{VMs: 2, ReadyGateways: 1, Gateways: []v1alpha1.GatewayStatus{
			{VM: "render-0", Node: nodeName, Pod: "gateway", Ready: true, Reason: v1alpha1.ReasonGatewayServes},
			{VM: long("render-1"), Node: nodeName, Reason: v1alpha1.ReasonGuardWithdrawn, Message: "withdrawn until noon: it was restarted 3 times " + hostile},
		}},
	}
}

func group(name string, members int) *v1alpha1.VMNetworkProfile {
	t := &v1alpha1.TrafficStatus{
		Members: int32(members), ReadyMembers: int32(members - 1), ActiveMembers: 3, State: v1alpha1.LeverInForce, Reason: v1alpha1.ReasonSkewed, Message: "shares are in force " + hostile,
		Saving: &v1alpha1.Saving{Lever: v1alpha1.LeverTrafficShare, Watts: v1alpha1.Estimate{Value: "21", Low: "8", High: "33"}},
	}
	for i := range members {
		share := v1alpha1.MemberShare{Name: fmt.Sprintf("%s-%d", name, i), Node: nodeName, Reason: "Remainder", MeasuredPerMille: ptr.To(int32(10))}
		switch i {
		case 0:
			share.PerMille, share.MeasuredPerMille, share.Reason = 520, ptr.To(int32(470)), "AtLimit"
		case 1:
			share.PerMille, share.MeasuredPerMille, share.Reason = 330, ptr.To(int32(310)), "AtLimit"
		case 2:
			share.PerMille, share.MeasuredPerMille = 150, ptr.To(int32(170))
		}
		if i == members-1 {
			share.Reason = v1alpha1.ReasonMemberNotReady
		}
		t.Shares = append(t.Shares, share)
	}
	return &v1alpha1.VMNetworkProfile{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       v1alpha1.VMNetworkProfileSpec{Selector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, Group: &v1alpha1.TrafficGroup{Kind: v1alpha1.GroupService, Name: "web"}},
		Status:     v1alpha1.VMNetworkProfileStatus{Traffic: t},
	}
}

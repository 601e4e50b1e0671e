package doctor

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/utils/ptr"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/cli/access"
	"github.com/joulevirt/joulevirt/internal/cli/facts"
)

func now() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }

// healthy is an installation that lacks nothing.
func healthy() Input {
	reported := metav1.NewTime(now().Add(-time.Minute))
	renewed := metav1.NewMicroTime(now().Add(-5 * time.Second))
	deployment := &appsv1.Deployment{Status: appsv1.DeploymentStatus{ReadyReplicas: 2}}
	deployment.Spec.Replicas = ptr.To(int32(2))
	return Input{
		Facts: &facts.Facts{
			Now:      now(),
			KubeVirt: []virtv1.KubeVirt{{Status: virtv1.KubeVirtStatus{Phase: "Deployed", ObservedKubeVirtVersion: "v1.7.0"}}},
			Nodes:    []metav1.PartialObjectMetadata{{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{virtv1.NodeSchedulable: "true"}}}},
			Reports: []v1alpha1.NodeReport{{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Status: v1alpha1.NodeReportStatus{
				ReportedAt: &reported, Capabilities: []v1alpha1.Capability{{Name: "Affinity", Available: true}},
				Power: v1alpha1.Power{Source: v1alpha1.PowerRAPL, Watts: ptr.To(int64(180)), MeasuredAt: &reported},
			}}},
			Policies: []v1alpha1.EnergyPolicy{{ObjectMeta: metav1.ObjectMeta{Name: "p"}}},
			Profiles: []v1alpha1.VMNetworkProfile{{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}},
		},
		Namespace: "joulevirt-system",
		Server:    &version.Info{Major: "1", Minor: "36+", GitVersion: "v1.36.1"},
		Lease: &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{
			HolderIdentity: ptr.To("pod-1_x"), RenewTime: &renewed, LeaseDurationSeconds: ptr.To(int32(15)),
		}},
		Manager: deployment,
	}
}

// govern lets the policy govern node a, and count nodes.
func govern(in *Input, counts v1alpha1.NodeCounts) {
	in.Plans = []v1alpha1.NodePlan{{ObjectMeta: metav1.ObjectMeta{Name: "a"}}}
	in.Policies[0].Status.Nodes = counts
}

// applied is a plan that is not in force, for some time.
func applied(node, reason string, since time.Duration) v1alpha1.NodePlan {
	plan := v1alpha1.NodePlan{ObjectMeta: metav1.ObjectMeta{Name: node}, Spec: v1alpha1.NodePlanSpec{Apply: true}}
	plan.Status.Conditions = []metav1.Condition{{
		Type: v1alpha1.ConditionApplied, Status: metav1.ConditionFalse, Reason: reason, Message: "in words", LastTransitionTime: metav1.NewTime(now().Add(-since)),
	}}
	return plan
}

func TestDiagnose(t *testing.T) {
	denied := &access.Error{Message: "you may not get leases"}
	condition := func(kind string, status metav1.ConditionStatus) []metav1.Condition {
		return []metav1.Condition{{Type: kind, Status: status, Reason: "Paused", Message: "words"}}
	}
	for name, tc := range map[string]struct {
		change  func(*Input)
		check   string
		finding Finding
		message string
		code    int
	}{
		"all well":        {func(*Input) {}, "Manager leads", OK, "pod-1 leads", 0},
		"old Kubernetes":  {func(in *Input) { in.Server.Minor = "29" }, "Kubernetes", Problem, "v1.36.1", 1},
		"odd Kubernetes":  {func(in *Input) { in.Server.Minor = "x" }, "Kubernetes", Unknown, "cannot be parsed", 2},
		"no KubeVirt":     {func(in *Input) { in.KubeVirt = nil }, "KubeVirt", Problem, "no KubeVirt object", 1},
		"KubeVirt starts": {func(in *Input) { in.KubeVirt[0].Status.Phase = "Deploying" }, "KubeVirt", Note, "Deploying", 0},
		"never led":       {func(in *Input) { in.LeaseErr = access.NoObject("", "", "") }, "Manager leads", Problem, "no manager ever led", 1},
		"no right":        {func(in *Input) { in.LeaseErr = denied }, "Manager leads", Unknown, "you may not get leases", 2},
		"lease is old": {func(in *Input) {
			old := metav1.NewMicroTime(now().Add(-time.Hour))
			in.Lease.Spec.RenewTime = &old
		}, "Manager leads", Problem, "no manager leads: pod-1 renewed its Lease 1h0m0s ago", 1},
		"manager is down": {func(in *Input) { in.Manager.Status.ReadyReplicas = 0 }, "Manager runs", Problem, "0 of 2", 1},
		"one is down":     {func(in *Input) { in.Manager.Status.ReadyReplicas = 1 }, "Manager runs", Note, "1 of 2", 0},
		"run otherwise":   {func(in *Input) { in.ManagerErr = access.NoObject("", "", "") }, "Manager runs", Note, "in another way", 0},
		"old report":      {func(in *Input) { in.Reports[0].Status.ReportedAt = nil }, "Agents report", Problem, "0 agents reported in the last 15 minutes; not those of a", 1},
		"silent node":     {func(in *Input) { in.Nodes[0].Name = "b" }, "Agents run", Problem, "no agent ever reported on b", 1},
		"no agents":       {func(in *Input) { in.Reports, in.Nodes = nil, nil }, "Agents report", Problem, "no agent ever reported", 1},
		"lacks":           {func(in *Input) { in.Reports[0].Status.Capabilities[0].Available = false }, "Affinity", Note, "missing on a", 0},
		"metered":         {func(in *Input) { govern(in, v1alpha1.NodeCounts{Governed: 1, Metered: 1}) }, "Meters", OK, "1 of 1 governed node metered", 0},
		"some metered":    {func(in *Input) { govern(in, v1alpha1.NodeCounts{Governed: 30, Metered: 8}) }, "Meters", Note, "8 of 30 governed nodes metered", 0},
		"cannot sample": {func(in *Input) {
			in.Reports[0].Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonSamplingFailed, Message: "no /proc"}}
		}, "Reports SamplingFailed", Problem, "a: no /proc", 1},
		"no rates": {func(in *Input) {
			in.Plans = []v1alpha1.NodePlan{{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: v1alpha1.NodePlanSpec{Reason: v1alpha1.ReasonNoRates, Message: "they are old"}}}
		}, "Plans NoRates", Problem, "a: they are old", 1},
		"too many VMs": {func(in *Input) {
			in.Plans = []v1alpha1.NodePlan{{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: v1alpha1.NodePlanSpec{Reason: v1alpha1.ReasonTooManyVMs, Message: "7 do not fit"}}}
		}, "Plans TooManyVMs", Problem, "a: 7 do not fit", 1},
		"anybody's meters": {func(in *Input) {
			in.Policies[0].Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionMeterAvailable, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonNoMatchers, Message: "words"}}
		}, "EnergyPolicies NoMatchers", Note, "p: words", 0},
		"a reason without a message": {func(in *Input) {
			in.Plans = []v1alpha1.NodePlan{{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: v1alpha1.NodePlanSpec{Reason: v1alpha1.ReasonNoRates}}}
		}, "Plans NoRates", Problem, "a", 1},
		"refused by the kernel": {func(in *Input) {
			in.Plans = []v1alpha1.NodePlan{applied("a", v1alpha1.ReasonApplyFailed, 0)}
		}, "Plans ApplyFailed", Problem, "a: in words", 1},
		"pending for long": {func(in *Input) {
			in.Plans = []v1alpha1.NodePlan{applied("a", v1alpha1.ReasonAwaitingAgent, time.Hour), applied("b", v1alpha1.ReasonAwaitingAgent, time.Hour)}
		}, "Plans AwaitingAgent", Note, "a, b: in words", 0},
		"one lever fails": {func(in *Input) {
			plan := applied("a", "Refused", 0)
			plan.Status.VMs = []v1alpha1.VMApplied{{State: v1alpha1.LeverFailed}}
			in.Plans = []v1alpha1.NodePlan{plan}
		}, "Plans Refused", Note, "a: in words", 0},
		"wrong profile": {func(in *Input) {
			in.Profiles[0].Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonInvalidSelector, Message: "words"}}
		}, "VMNetworkProfiles InvalidSelector", Problem, "shop/web: words", 1},
		"profile without VMs": {func(in *Input) {
			in.Profiles[0].Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonNoVMsMatched, Message: "words"}}
		}, "VMNetworkProfiles NoVMsMatched", Note, "shop/web: words", 0},
		"no policy": {func(in *Input) { in.Policies = nil }, "EnergyPolicies", Note, "nothing is changed anywhere", 0},
		"broken policy": {func(in *Input) {
			in.Policies[0].Status.Conditions = condition(v1alpha1.ConditionReady, metav1.ConditionFalse)
		}, "EnergyPolicies Paused", Problem, "p: words", 1},
		"paused policy": {func(in *Input) {
			in.Policies[0].Status.Conditions = condition(v1alpha1.ConditionPaused, metav1.ConditionTrue)
		}, "EnergyPolicies Paused", Note, "p: words", 0},
		"no profile":        {func(in *Input) { in.Profiles = nil }, "VMNetworkProfiles", Note, "no VM is acted on", 0},
		"lever not allowed": {func(in *Input) { offload(in, v1alpha1.ReasonLeverNotAllowed, 0) }, "HybridWorkloads LeverNotAllowed", Note, "shop/web: words", 0},
		"a named port":      {func(in *Input) { offload(in, v1alpha1.ReasonServicePort, 0) }, "HybridWorkloads ServicePort", Problem, "shop/web: words", 1},
		"another VM": {func(in *Input) {
			offload(in, v1alpha1.ReasonMemberNotReady, 0)
			in.Hybrids[0].Status.Gateways = []v1alpha1.GatewayStatus{
				{VM: "web-0", Reason: v1alpha1.ReasonMemberNotReady}, {VM: "web-1", Ready: true, Reason: v1alpha1.ReasonGatewayServes},
				{VM: "web-2", Reason: v1alpha1.ReasonGatewayRefused, Message: "quota"},
			}
		}, "HybridWorkloads GatewayRefused", Problem, "shop/web: VM web-2: quota", 1},
		"a gateway starts for long": {func(in *Input) { offload(in, v1alpha1.ReasonGatewayStarting, time.Hour) }, "HybridWorkloads GatewayStarting", Note, "shop/web: words", 0},
		"gateways are not scraped": {func(in *Input) {
			in.Hybrids, in.PodMonitors = []v1alpha1.HybridWorkload{{}}, []metav1.PartialObjectMetadata{}
		}, "Gateways are scraped", Note, "PodMonitor joulevirt-gateway", 0},
		"a share that is not installed": {func(in *Input) { offload(in, v1alpha1.ReasonShareNotInstalled, 0) }, "HybridWorkloads ShareNotInstalled", Problem, "shop/web: words", 1},
		"shares without their gate":     {func(in *Input) { share(in, nil, "") }, "VMs may have shares", Problem, "lacks feature gate EnableVirtioFsStorageVolumes", 1},
		"shares with KubeVirt's limit": {func(in *Input) {
			share(in, []string{"EnableVirtioFsStorageVolumes"}, "")
		}, "VMs may have shares", Problem, "virtiofsd use 80M of memory, and a share of HybridWorkload shop/web needs 1152Mi", 1},
		"shares": {func(in *Input) { share(in, []string{"EnableVirtioFsStorageVolumes"}, "1152Mi") }, "VMs may have shares", OK, "", 0},
		"disturbed VMs": {func(in *Input) {
			in.Profiles[0].Status.Conditions = condition(v1alpha1.ConditionDisturbed, metav1.ConditionTrue)
		}, "VMNetworkProfiles Paused", Note, "shop/web: words", 0},
	} {
		t.Run(name, func(t *testing.T) {
			in := healthy()
			tc.change(&in)
			d := Diagnose(in)
			if d.ExitCode() != tc.code || d.Healthy != (tc.code == 0) {
				t.Errorf("exit code %d, healthy %v, want %d: %+v", d.ExitCode(), d.Healthy, tc.code, d.Checks)
			}
			for _, check := range d.Checks {
				if check.Name != tc.check {
					continue
				}
				if check.Finding != tc.finding || !strings.Contains(check.Message, tc.message) {
					t.Errorf("check %+v, want %s with %q", check, tc.finding, tc.message)
				}
				if strings.HasSuffix(check.Message, ": ") {
					t.Errorf("check %+v ends in nothing", check)
				}
				if check.Finding == Problem && check.Fix == "" {
					t.Errorf("problem %+v has no fix", check)
				}
				return
			}
			t.Errorf("there is no check %q", tc.check)
		})
	}
}

// offload has a HybridWorkload with a condition since a while.
func offload(in *Input, reason string, since time.Duration) {
	in.Hybrids = []v1alpha1.HybridWorkload{{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}}
	in.Hybrids[0].Status.Conditions = []metav1.Condition{{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: reason, Message: "words", LastTransitionTime: metav1.NewTime(now().Add(-since)),
	}}
}

// share has a HybridWorkload with shares of 1Gi, and KubeVirt with gates and a limit for virtiofsd.
func share(in *Input, gates []string, limit string) {
	offload(in, v1alpha1.ReasonGatewayServes, 0)
	in.Hybrids[0].Status.Conditions[0].Status = metav1.ConditionTrue
	in.Hybrids[0].Spec.Path, in.Hybrids[0].Spec.Memory.Max = v1alpha1.PathSharedMemory, resource.MustParse("1Gi")
	config := &in.KubeVirt[0].Spec.Configuration
	config.DeveloperConfiguration = &virtv1.DeveloperConfiguration{FeatureGates: gates}
	if limit != "" {
		config.SupportContainerResources = []virtv1.SupportContainerResources{{Type: virtv1.VirtioFS, Resources: virtv1.ResourceRequirementsWithoutClaims{
			Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(limit)},
		}}}
	}
}

// TestServing: the Service of a group selects by the label, and its VMs keep it.
func TestServing(t *testing.T) {
	const silent, losing, relying = "Services select by label", "VMs keep the label", "VMs start with the label"
	for name, tc := range map[string]struct {
		change func(*Input)
		want   []string
	}{
		"adopted":    {func(*Input) {}, nil},
		"not yet":    {func(in *Input) { in.Services[0].Spec.Selector = nil }, nil},
		"no consent": {func(in *Input) { in.Services[0].Spec.Selector, in.Services[0].Annotations = nil, nil }, []string{silent}},
		"a VM lacks it": {func(in *Input) {
			delete(in.VMs[0].Labels, v1alpha1.LabelServing)
		}, []string{losing}},
		"a VM of nobody lacks it": {func(in *Input) { in.VMs[0].Labels = nil }, nil},
		"no group":                {func(in *Input) { in.Profiles[0].Spec.Group = nil; in.VMs[0].Labels["joulevirt.io/serving"] = "" }, nil},
		"an old Kubernetes":       {func(in *Input) { in.Server.Minor = "35" }, []string{relying}},
		"an old Kubernetes, from the template": {func(in *Input) {
			in.Server.Minor, in.VMs[0].ManagedFields = "35", nil
		}, nil},
	} {
		in := healthy()
		in.Profiles[0].Spec.Selector.MatchLabels = map[string]string{"app": "web"}
		in.Profiles[0].Spec.Group = &v1alpha1.TrafficGroup{Kind: v1alpha1.GroupService, Name: "web"}
		in.Services = []corev1.Service{{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", Annotations: map[string]string{v1alpha1.AnnotationAdopt: "true"}},
			Spec:       corev1.ServiceSpec{Selector: map[string]string{v1alpha1.LabelServing: v1alpha1.ServingActive}},
		}}
		in.VMs = []metav1.PartialObjectMetadata{{ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "web-0", Labels: map[string]string{"app": "web", v1alpha1.LabelServing: v1alpha1.ServingActive},
			ManagedFields: []metav1.ManagedFieldsEntry{{
				Manager: "joulevirt-traffic", FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{"f:joulevirt.io/serving":{}}}}`),
			}},
		}}}
		tc.change(&in)
		var got []string
		for _, check := range Diagnose(in).Checks {
			if slices.Contains([]string{silent, losing, relying}, check.Name) {
				got = append(got, check.Name)
			}
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s, -want +got:\n%s", name, diff)
		}
	}
}

// TestPending: plans that are new or not to be applied are healthy, and so are gateways, and a node has one check for
// one cause.
func TestPending(t *testing.T) {
	for name, change := range map[string]func(*Input){
		"new": func(in *Input) {
			in.Plans = []v1alpha1.NodePlan{applied("a", v1alpha1.ReasonAwaitingAgent, time.Minute)}
		},
		"not to be applied": func(in *Input) {
			in.Plans = []v1alpha1.NodePlan{applied("a", v1alpha1.ReasonAwaitingApproval, time.Hour)}
			in.Plans[0].Spec.Apply = false
		},
		"a gateway": func(in *Input) { offload(in, v1alpha1.ReasonGatewayStarting, time.Minute) },
		"what serves": func(in *Input) {
			offload(in, v1alpha1.ReasonGatewayServes, time.Hour)
			in.Hybrids[0].Status.Conditions[0].Status = metav1.ConditionTrue
			in.PodMonitors = []metav1.PartialObjectMetadata{{ObjectMeta: metav1.ObjectMeta{Name: "joulevirt-gateway"}}}
		},
	} {
		in := healthy()
		change(&in)
		if diff := cmp.Diff(Diagnose(healthy()).Checks, Diagnose(in).Checks); diff != "" {
			t.Errorf("%s (-healthy +got):\n%s", name, diff)
		}
	}
	in := healthy()
	in.Reports[0].Status.ReportedAt = nil
	in.Plans = []v1alpha1.NodePlan{{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: v1alpha1.NodePlanSpec{Reason: v1alpha1.ReasonNoRates}}}
	if d := Diagnose(in); slices.ContainsFunc(d.Checks, func(c Check) bool { return strings.HasPrefix(c.Name, "Plans") }) {
		t.Errorf("a node whose agent is silent has two checks: %+v", d.Checks)
	}
}

// TestUnreadable: everything that could not be read is Unknown.
func TestUnreadable(t *testing.T) {
	in := healthy()
	in.ServerErr, in.LeaseErr, in.ManagerErr = errors.New("a"), errors.New("b"), errors.New("c")
	var err error
	if in.Facts, err = facts.Read(t.Context(), failing{errors.New("d")}, now(), facts.Scope{}, Parts()...); err != nil {
		t.Fatal(err)
	}
	d := Diagnose(in)
	unknown := 0
	for _, check := range d.Checks {
		if check.Finding == Unknown {
			unknown++
		}
	}
	if want := 3 + len(Parts()); d.ExitCode() != 2 || unknown != want {
		t.Errorf("exit code %d with %d unknown, want 2 with %d: %+v", d.ExitCode(), unknown, want, d.Checks)
	}
}

// TestNotInstalled: missing kinds are one problem.
func TestNotInstalled(t *testing.T) {
	in := healthy()
	var err error
	if in.Facts, err = facts.Read(t.Context(), failing{access.NoKind("", "")}, now(), facts.Scope{}, Parts()...); err != nil {
		t.Fatal(err)
	}
	d := Diagnose(in)
	for _, check := range d.Checks {
		if isKinds := check.Name == "CRDs"; isKinds != (check.Finding == Problem) || isKinds && !strings.Contains(check.Message, "NodePlans") {
			t.Errorf("check %+v", check)
		}
	}
}

// failing is a cluster of which nothing can be read.
type failing struct{ err error }

func (f failing) Get(context.Context, string, string, client.Object) error { return f.err }

func (f failing) List(context.Context, client.ObjectList, ...client.ListOption) error { return f.err }

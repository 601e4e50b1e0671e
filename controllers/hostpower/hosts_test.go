package hostpower

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/tools/events"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	virtv1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/controllers/objects"
	"github.com/joulevirt/joulevirt/internal/observe/loads"
	"github.com/joulevirt/joulevirt/internal/planner/power"
	"github.com/joulevirt/joulevirt/test/cluster"
	"github.com/joulevirt/joulevirt/test/cluster/binaries"
)

const (
	metal3 = "metal3"
	reboot = "reboot.metal3.io/joulevirt"
)

// suite is the API server of all stories, and clients of the admin and of the manager, whose rights
// are those that are shipped.
type suite struct {
	cluster *cluster.Cluster
	admin   client.Client
	manager client.Client
	kinds   discovery.DiscoveryInterface
}

// TestHosts powers hosts by Metal3 against a real API server. In place of Metal3 and of the hosts, the
// test does what they do; time passes by the test's clock.
func TestHosts(t *testing.T) {
	ctrl.SetLogger(logr.Discard())
	s := startSuite(t)
	for name, story := range map[string]func(*testing.T, *suite){
		"off and on":         testOffAndOn,
		"does not come back": testFails,
		"a person":           testPerson,
		"killed":             testKilled,
		"rollout":            testRollout,
		"hangs":              testHung,
		"two policies":       testTwoPolicies,
		"bad input":          testBadInput,
		"recommend":          testRecommend,
		"ends":               testEnds,
		"not empty":          testNotEmpty,
		"local volume":       testLocalVolume,
	} {
		t.Run(name, func(t *testing.T) { story(t, s) })
	}
}

func startSuite(t *testing.T) *suite {
	c, err := cluster.Start(t.Context(), cluster.Options{Binaries: binaries.FromEnvironment(os.Getenv, os.Stderr), KubeVirt: cluster.KubeVirtAPI})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	s := &suite{cluster: c}
	for _, path := range []string{"../../config/default/namespace.yaml", "../../config/crd", "../../config/rbac", "../../config/host-power", "testdata/crds.yaml"} {
		s.must(t, c.ApplyManifests(t.Context(), path))
	}
	s.kubectl(t, "wait", "--for=condition=Established", "--timeout=3m", "--filename=testdata/crds.yaml")
	s.kubectl(t, "create", "namespace", metal3)
	s.kubectl(t, "apply", "--server-side", "--namespace="+metal3, "--kustomize=../../config/host-power/metal3")
	scheme, err := objects.NewScheme()
	s.must(t, err)
	s.admin, err = client.New(c.RESTConfig(), client.Options{Scheme: scheme})
	s.must(t, err)
	config, _, err := c.ServiceAccountConfig(t.Context(), "joulevirt-system", "joulevirt-manager", "")
	s.must(t, err)
	s.manager, err = client.New(config, client.Options{Scheme: scheme})
	s.must(t, err)
	s.kinds, err = discovery.NewDiscoveryClientForConfig(config)
	s.must(t, err)
	s.deployed(t, "same")
	return s
}

func (s *suite) must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (s *suite) kubectl(t *testing.T, args ...string) {
	t.Helper()
	_, err := s.cluster.RunKubectl(t.Context(), args...)
	s.must(t, err)
}

// deployed lets virt-operator want a deployment of KubeVirt; "same" is what is deployed.
func (s *suite) deployed(t *testing.T, wanted string) {
	t.Helper()
	var list virtv1.KubeVirtList
	s.must(t, s.admin.List(t.Context(), &list))
	kv := &list.Items[0]
	kv.Status.Phase, kv.Status.ObservedDeploymentID, kv.Status.TargetDeploymentID = virtv1.KubeVirtPhaseDeployed, "same", wanted
	s.must(t, s.admin.Status().Update(t.Context(), kv))
}

// world is the nodes and hosts of one story, in a zone of their own.
type world struct {
	*testing.T
	*suite
	name       string
	nodes      []string
	policy     *v1alpha1.EnergyPolicy
	reconciler *Reconciler
	clock      *testingclock.FakePassiveClock
	// broken hosts do not come back, hung ones do not shut down.
	broken, hung map[string]bool
	boots        int
}

// newWorld has so many nodes of 32 CPUs, on the first of which a VM runs.
func newWorld(t *testing.T, s *suite, nodes int, change func(*v1alpha1.EnergyPolicySpec)) *world {
	t.Helper()
	w := &world{T: t, suite: s, name: "w-" + rand.String(5), clock: testingclock.NewFakePassiveClock(time.Now()), broken: map[string]bool{}, hung: map[string]bool{}}
	var err error
	w.nodes, err = s.cluster.AddSimulatedNodes(t.Context(), nodes, cluster.SimulatedNodes{Prefix: w.name, Labels: map[string]string{"scene": w.name, corev1.LabelTopologyZone: w.name}})
	w.check(err)
	for _, name := range w.nodes {
		w.kubectl("patch", "node", name, "--patch", fmt.Sprintf(`{"spec":{"providerID":"metal3://%s/%s/machine"}}`, metal3, name))
		w.bootNode(name)
		w.host(name)
	}
	_, err = s.cluster.SeedVMIs(t.Context(), cluster.Seed{Namespace: w.name, Count: 1, Nodes: w.nodes[:1]})
	w.check(err)
	w.policy = w.newPolicy(w.name, change)
	w.start()
	t.Cleanup(func() { w.remove() })
	return w
}

// newKnownWorld is one whose VMs were observed for 40 minutes.
func newKnownWorld(t *testing.T, s *suite, nodes int, change func(*v1alpha1.EnergyPolicySpec)) *world {
	t.Helper()
	w := newWorld(t, s, nodes, change)
	for before := 40 * time.Minute; before > 0; before -= time.Minute {
		w.reconciler.memoryOf(w.policy.Name).history.Add(w.clock.Now().Add(-before), power.Demand{CPUs: 1, Memory: 1 << 30})
	}
	return w
}

func (w *world) check(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) kubectl(args ...string) {
	w.Helper()
	w.suite.kubectl(w.T, args...)
}

// remove removes what the next story would count.
func (w *world) remove() {
	ctx := context.Background()
	err := errors.Join(
		client.IgnoreNotFound(w.admin.Delete(ctx, w.policy)),
		w.admin.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(w.name), client.GracePeriodSeconds(0)),
		w.admin.DeleteAllOf(ctx, &virtv1.VirtualMachineInstance{}, client.InNamespace(w.name)),
		w.admin.DeleteAllOf(ctx, &corev1.Node{}, client.MatchingLabels{"scene": w.name}),
	)
	if err != nil {
		w.Error(err)
	}
}

// newPolicy has hostPower by Metal3, and the plan that lever Placement writes.
func (w *world) newPolicy(name string, change func(*v1alpha1.EnergyPolicySpec)) *v1alpha1.EnergyPolicy {
	w.Helper()
	policy := &v1alpha1.EnergyPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.EnergyPolicySpec{
			Mode: v1alpha1.ModeEnforce, Levers: []v1alpha1.Lever{v1alpha1.LeverPlacement},
			NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"scene": w.name}},
			HostPower:    &v1alpha1.HostPower{Metal3: &v1alpha1.Metal3Power{Namespace: metal3}},
		},
	}
	if change != nil {
		change(&policy.Spec)
	}
	w.check(w.admin.Create(w.Context(), policy))
	w.check(w.admin.Create(w.Context(), &v1alpha1.PlacementPlan{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.PlacementPlanSpec{Policy: name, Mode: policy.Spec.Mode},
	}))
	return policy
}

// start begins with a manager that remembers nothing.
func (w *world) start() {
	w.reconciler = &Reconciler{
		Client: w.manager, Scheduling: w.manager, Direct: w.manager, Discovery: w.kinds, Loads: loads.NewStore(w.clock, 15*time.Minute),
		Recorder: events.NewFakeRecorder(1000), Clock: w.clock, Options: DefaultOptions(),
	}
}

func (w *world) host(name string) {
	w.Helper()
	host := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost", "metadata": map[string]any{"namespace": metal3, "name": name},
		"spec": map[string]any{"online": true},
	}}
	w.check(w.admin.Create(w.Context(), host))
	host.Object["status"] = map[string]any{
		"poweredOn": true, "provisioning": map[string]any{"ID": name, "state": "provisioned"}, "errorCount": int64(0), "errorMessage": "", "operationalStatus": "OK",
	}
	w.check(w.admin.Status().Update(w.Context(), host))
}

func (w *world) node(name string) *corev1.Node {
	w.Helper()
	node := &corev1.Node{}
	w.check(w.admin.Get(w.Context(), types.NamespacedName{Name: name}, node))
	return node
}

func (w *world) setReady(name string, status corev1.ConditionStatus, bootID string) {
	w.Helper()
	node := w.node(name)
	before := node.DeepCopy()
	for i := range node.Status.Conditions {
		if node.Status.Conditions[i].Type == corev1.NodeReady {
			node.Status.Conditions[i].Status = status
		}
	}
	if bootID != "" {
		node.Status.NodeInfo.BootID = bootID
	}
	w.check(w.admin.Status().Patch(w.Context(), node, client.MergeFrom(before)))
}

func (w *world) bootNode(name string) {
	w.Helper()
	w.boots++
	w.setReady(name, corev1.ConditionTrue, fmt.Sprint("boot-", w.boots))
}

// metal3 does what Metal3 and the hosts do: a host is off while it has the annotation.
func (w *world) metal3() {
	w.Helper()
	for _, name := range w.nodes {
		host := &unstructured.Unstructured{}
		host.SetAPIVersion("metal3.io/v1alpha1")
		host.SetKind("BareMetalHost")
		if err := w.admin.Get(w.Context(), types.NamespacedName{Namespace: metal3, Name: name}, host); err != nil {
			w.check(client.IgnoreNotFound(err))
			continue
		}
		_, off := host.GetAnnotations()[reboot]
		on, _, _ := unstructured.NestedBool(host.Object, "status", "poweredOn")
		switch {
		case off && on && !w.hung[name]:
			w.setReady(name, corev1.ConditionUnknown, "")
		case !off && !on && !w.broken[name]:
			w.bootNode(name)
		default:
			continue
		}
		w.check(unstructured.SetNestedField(host.Object, !off, "status", "poweredOn"))
		w.check(w.admin.Status().Update(w.Context(), host))
	}
}

// pass lets so many minutes pass.
func (w *world) pass(minutes int) {
	w.Helper()
	for range minutes {
		w.reconcile(w.policy.Name)
		w.metal3()
		w.clock.SetTime(w.clock.Now().Add(time.Minute))
	}
}

func (w *world) reconcile(policy string) {
	w.Helper()
	_, err := w.reconciler.Reconcile(w.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: policy}})
	w.check(err)
}

// until lets time pass until a number of hosts are in a state.
func (w *world) until(state v1alpha1.HostState, count, minutes int) {
	w.Helper()
	for range minutes {
		w.pass(1)
		if len(w.in(state)) == count {
			return
		}
	}
	w.Fatalf("after %d minutes, hosts are %+v, want %d %s; %+v", minutes, w.plan(w.policy).Status.Hosts, count, state, w.plan(w.policy).Status.Conditions)
}

// in returns the nodes with a record of a state.
func (w *world) in(state v1alpha1.HostState) (names []string) {
	w.Helper()
	for _, name := range w.nodes {
		known, err := recordOf(w.node(name))
		w.check(err)
		if known != nil && known.State == state || known == nil && state == v1alpha1.HostOn {
			names = append(names, name)
		}
	}
	return names
}

func (w *world) plan(policy *v1alpha1.EnergyPolicy) *v1alpha1.PlacementPlan {
	w.Helper()
	plan := &v1alpha1.PlacementPlan{}
	w.check(w.admin.Get(w.Context(), client.ObjectKeyFromObject(policy), plan))
	return plan
}

// reason is what the status gives for a node, and says the condition's message.
func (w *world) reason(policy *v1alpha1.EnergyPolicy, node string) (reason string, condition metav1.Condition) {
	w.Helper()
	plan := w.plan(policy)
	for _, h := range plan.Status.Hosts {
		if h.Node == node {
			reason = h.Reason
		}
	}
	if c := meta.FindStatusCondition(plan.Status.Conditions, v1alpha1.ConditionHostsManaged); c != nil {
		condition = *c
	}
	return reason, condition
}

// wantClean fails if anything is left on a node.
func (w *world) wantClean(name string) {
	w.Helper()
	node := w.node(name)
	_, record := node.Annotations[v1alpha1.AnnotationHostPower]
	_, failed := node.Annotations[v1alpha1.AnnotationHostFailed]
	_, scale := node.Annotations[scaleDownAnnotation]
	_, exclude := node.Labels[excludeLabel]
	if record || failed || scale || exclude || node.Spec.Unschedulable {
		w.Errorf("node %s has labels %v, annotations %v, unschedulable %v", name, node.Labels, node.Annotations, node.Spec.Unschedulable)
	}
}

// VMs that wait for a node, or start on one, request so many CPUs.
func (w *world) pods(node string, count int, cpus string) {
	w.Helper()
	for range count {
		w.check(w.admin.Create(w.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: w.name, GenerateName: "launcher-", Labels: map[string]string{virtv1.AppLabel: "virt-launcher"}},
			Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "compute", Image: "registry.local/c", Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpus)},
			}}}},
		}))
	}
}

// In half an hour the manager knows what VMs need. Of seven nodes two are then powered off, one after
// the other, with all marks; when VMs need more, they come back without a trace.
func testOffAndOn(t *testing.T, s *suite) {
	w := newWorld(t, s, 7, nil)
	machine := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "metadata": map[string]any{"namespace": w.name, "name": "machine"}, "spec": map[string]any{"clusterName": "c"},
	}}
	w.check(w.admin.Create(t.Context(), machine))
	for _, name := range w.nodes {
		w.kubectl("annotate", "node", name, "cluster.x-k8s.io/machine=machine", "cluster.x-k8s.io/cluster-namespace="+w.name)
	}
	w.pass(24)
	if on := w.in(v1alpha1.HostOn); len(on) != 7 {
		t.Fatalf("hosts are powered off before enough is known: %v are on", on)
	}
	w.until(v1alpha1.HostCordoned, 1, 10)
	first := w.in(v1alpha1.HostCordoned)[0]
	w.pass(1)
	node := w.node(first)
	if !node.Spec.Unschedulable || node.Labels[excludeLabel] != "true" || node.Annotations[scaleDownAnnotation] != "true" || first == w.nodes[0] {
		t.Errorf("node %s: %+v", first, node.ObjectMeta)
	}
	w.check(w.admin.Get(t.Context(), client.ObjectKeyFromObject(machine), machine))
	if machine.GetAnnotations()[skipAnnotation] != "true" {
		t.Errorf("the Machine has annotations %v", machine.GetAnnotations())
	}
	w.until(v1alpha1.HostOff, 2, 20)
	w.pass(30)
	if off := w.in(v1alpha1.HostOff); len(off) != 2 {
		t.Errorf("%v are off, want a third of seven nodes", off)
	}
	reason, condition := w.reason(w.policy, w.nodes[3])
	if reason != power.ReasonZone && reason != power.ReasonEmpty || condition.Status != metav1.ConditionTrue {
		t.Errorf("reason %s, condition %+v", reason, condition)
	}
	// Five hosts of 32 CPUs carry 0.65 x 160 = 104 CPUs.
	w.pods("", 4, "27")
	w.pass(1)
	if coming := w.in(v1alpha1.HostPoweringOn); len(coming) == 0 {
		t.Errorf("no host is powered on for VMs that wait: %+v", w.plan(w.policy).Status.Hosts)
	}
	w.pods("", 1, "20")
	w.until(v1alpha1.HostOn, 7, 8)
	back := 0
	for _, name := range w.nodes {
		w.wantClean(name)
		if bootOf(w.node(name)).Seconds > 0 {
			back++
		}
	}
	if back != 2 {
		t.Errorf("of %d hosts it is known how long they take to boot, want 2", back)
	}
	w.check(w.admin.Get(t.Context(), client.ObjectKeyFromObject(machine), machine))
	if annotations := machine.GetAnnotations(); len(annotations) > 0 {
		t.Errorf("the Machine has annotations %v", annotations)
	}
}

// A host that does not come back is reported and left alone, also by another manager, until a person
// has repaired it.
func testFails(t *testing.T, s *suite) {
	w := newKnownWorld(t, s, 3, nil)
	w.until(v1alpha1.HostOff, 1, 20)
	name := w.in(v1alpha1.HostOff)[0]
	w.broken[name] = true
	w.pods("", 4, "12")
	w.until(v1alpha1.HostPoweringOn, 1, 3)
	w.pass(14)
	w.until(v1alpha1.HostFailed, 1, 3)
	w.start()
	w.pass(20)
	reason, condition := w.reason(w.policy, name)
	if reason != v1alpha1.ReasonHostFailed || condition.Reason != v1alpha1.ReasonHostFailed || !strings.Contains(condition.Message, "kubectl annotate node NODE joulevirt.io/host-failed-") {
		t.Errorf("reason %s, condition %+v", reason, condition)
	}
	w.broken[name] = false
	w.pass(2)
	if failed := w.in(v1alpha1.HostFailed); len(failed) != 1 {
		t.Errorf("the host is trusted again before somebody said so")
	}
	w.kubectl("annotate", "node", name, v1alpha1.AnnotationHostFailed+"-")
	w.until(v1alpha1.HostOn, 3, 10)
	w.wantClean(name)
}

// Who cordons a node keeps it cordoned, and who uncordons one gets it back.
func testPerson(t *testing.T, s *suite) {
	w := newKnownWorld(t, s, 4, nil)
	w.kubectl("cordon", w.nodes[3])
	w.until(v1alpha1.HostOff, 1, 20)
	name := w.in(v1alpha1.HostOff)[0]
	if reason, _ := w.reason(w.policy, w.nodes[3]); reason != v1alpha1.ReasonNodeFrozen || name == w.nodes[3] {
		t.Errorf("the cordoned node: %s", reason)
	}
	w.kubectl("uncordon", name)
	w.kubectl("cordon", name)
	w.pods("", 3, "20")
	w.pass(5)
	node := w.node(name)
	if _, left := node.Annotations[v1alpha1.AnnotationHostPower]; left || !node.Spec.Unschedulable || !objects.IsNodeReady(node) {
		t.Errorf("the host is back, and the cordon a person's: %+v, unschedulable %v", node.Annotations, node.Spec.Unschedulable)
	}
	w.kubectl("uncordon", name)
	w.kubectl("delete", "pods", "--namespace="+w.name, "--all", "--force", "--grace-period=0")
	w.until(v1alpha1.HostOff, 1, 150) // an hour after its boot, or the other one
	name = w.in(v1alpha1.HostOff)[0]
	w.kubectl("uncordon", name)
	w.until(v1alpha1.HostOn, 4, 6)
	w.wantClean(name)
}

// A manager that is killed after any write is followed by one that goes on.
func testKilled(t *testing.T, s *suite) {
	w := newKnownWorld(t, s, 3, nil)
	w.until(v1alpha1.HostCordoned, 1, 15)
	name := w.in(v1alpha1.HostCordoned)[0]
	w.start()
	w.until(v1alpha1.HostOff, 1, 5)
	// As if it had been killed after it recorded that the host is shut down, and before it asked for it.
	w.start()
	w.pods("", 4, "12")
	w.until(v1alpha1.HostOn, 3, 8)
	w.wantClean(name)
	w.kubectl("delete", "pods", "--namespace="+w.name, "--all", "--force", "--grace-period=0")
	w.until(v1alpha1.HostCordoned, 1, 150)
	name = w.in(v1alpha1.HostCordoned)[0]
	node := w.node(name)
	known, err := recordOf(node)
	w.check(err)
	known.State, known.Since, known.BootID = v1alpha1.HostShuttingDown, metav1.NewTime(w.clock.Now()), node.Status.NodeInfo.BootID
	annotate(node, v1alpha1.AnnotationHostPower, known)
	w.check(w.admin.Update(t.Context(), node, client.FieldOwner(fieldOwner)))
	w.start()
	w.until(v1alpha1.HostOff, 1, 5)
}

// All hosts are on while KubeVirt or a DaemonSet is rolled out, and may be off afterwards.
func testRollout(t *testing.T, s *suite) {
	for name, test := range map[string]struct {
		begin, end func(*world)
		reason     string
	}{
		"KubeVirt": {
			func(w *world) { w.deployed(w.T, "newer") }, func(w *world) { w.deployed(w.T, "same") }, v1alpha1.ReasonKubeVirtUpdating,
		},
		"DaemonSet that is not looked at yet": {
			func(w *world) { w.editDaemon() }, func(w *world) { w.rolledOut(1) }, v1alpha1.ReasonDaemonSetRollout,
		},
		"DaemonSet with old pods": {
			func(w *world) {
				w.editDaemon()
				w.rolledOut(0)
			}, func(w *world) { w.rolledOut(1) }, v1alpha1.ReasonDaemonSetRollout,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newKnownWorld(t, s, 3, nil)
			w.newDaemon("agent", appsv1.RollingUpdateDaemonSetStrategyType)
			w.rolledOut(1)
			// Of one whose pods are replaced by hand nobody knows when its rollout ends.
			w.newDaemon("by-hand", appsv1.OnDeleteDaemonSetStrategyType)
			w.until(v1alpha1.HostOff, 1, 20)
			name := w.in(v1alpha1.HostOff)[0]
			test.begin(w)
			w.until(v1alpha1.HostOn, 3, 5)
			w.pass(70)
			if reason, _ := w.reason(w.policy, name); reason != test.reason {
				t.Errorf("reason %s, want %s", reason, test.reason)
			}
			w.wantClean(name)
			test.end(w)
			w.until(v1alpha1.HostOff, 1, 5)
		})
	}
}

// newDaemon has a pod on each node, of which none has the newest template.
func (w *world) newDaemon(name string, strategy appsv1.DaemonSetUpdateStrategyType) {
	w.Helper()
	labels := map[string]string{"daemon": name}
	daemon := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.name, Name: name},
		Spec: appsv1.DaemonSetSpec{
			UpdateStrategy: appsv1.DaemonSetUpdateStrategy{Type: strategy}, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "agent", Image: "registry.local/agent:1"}}},
			},
		},
	}
	w.check(w.admin.Create(w.Context(), daemon))
	w.Cleanup(func() { _ = w.admin.Delete(context.Background(), daemon) })
	daemon.Status.ObservedGeneration, daemon.Status.DesiredNumberScheduled = daemon.Generation, int32(len(w.nodes))
	w.check(w.admin.Status().Update(w.Context(), daemon))
}

// editDaemon gives the DaemonSet a new template.
func (w *world) editDaemon() {
	w.Helper()
	w.kubectl("set", "image", "daemonset/agent", "agent=registry.local/agent:2", "--namespace="+w.name)
}

// rolledOut does what the DaemonSet's controller does: it looks at the newest template, and has
// replaced the pods of a part of the nodes.
func (w *world) rolledOut(part int) {
	w.Helper()
	daemon := &appsv1.DaemonSet{}
	w.check(w.admin.Get(w.Context(), types.NamespacedName{Namespace: w.name, Name: "agent"}, daemon))
	daemon.Status.ObservedGeneration, daemon.Status.UpdatedNumberScheduled = daemon.Generation, int32(part*len(w.nodes))
	w.check(w.admin.Status().Update(w.Context(), daemon))
}

// A host that does not shut down comes back.
func testHung(t *testing.T, s *suite) {
	w := newKnownWorld(t, s, 3, nil)
	for _, node := range w.nodes {
		w.hung[node] = true
	}
	w.until(v1alpha1.HostShuttingDown, 1, 100)
	w.pass(13)
	w.until(v1alpha1.HostPoweringOn, 1, 5)
	w.until(v1alpha1.HostOn, 3, 10)
}

func testTwoPolicies(t *testing.T, s *suite) {
	w := newKnownWorld(t, s, 3, nil)
	w.until(v1alpha1.HostOff, 1, 20)
	other := w.newPolicy(w.name+"-other", nil)
	t.Cleanup(func() { _ = w.admin.Delete(context.Background(), other) })
	w.until(v1alpha1.HostOn, 3, 5)
	w.pass(20)
	w.reconcile(other.Name)
	reason, condition := w.reason(w.policy, w.nodes[1])
	if reason != v1alpha1.ReasonHostContested || !strings.Contains(condition.Message, w.name+" and "+other.Name) || !strings.Contains(condition.Message, "spec.nodeSelector") {
		t.Errorf("reason %s, condition %+v", reason, condition)
	}
	if on := w.in(v1alpha1.HostOn); len(on) != 3 {
		t.Errorf("%v are on", on)
	}
}

// Whatever keeps hosts from being powered off is said, and nothing happens.
func testBadInput(t *testing.T, s *suite) {
	patch := func(w *world, merge string) {
		for _, name := range w.nodes {
			w.kubectl("patch", "baremetalhost", name, "--namespace="+metal3, "--type=merge", "--patch="+merge)
		}
	}
	for name, test := range map[string]struct {
		change  func(*world)
		reason  string
		message string
	}{
		"no host": {func(w *world) {
			for _, name := range w.nodes {
				w.kubectl("delete", "baremetalhost", name, "--namespace="+metal3)
			}
		}, v1alpha1.ReasonHostUnknown, "spec.hostPower.metal3.namespace"},
		"paused": {func(w *world) {
			patch(w, `{"metadata":{"annotations":{"baremetalhost.metal3.io/paused":""}}}`)
		}, v1alpha1.ReasonHostRefused, "baremetalhost.metal3.io/paused"},
		"detached": {func(w *world) {
			patch(w, `{"metadata":{"annotations":{"baremetalhost.metal3.io/detached":""}}}`)
		}, v1alpha1.ReasonHostRefused, "baremetalhost.metal3.io/detached"},
		"disabled": {func(w *world) { patch(w, `{"spec":{"disablePowerOff":true}}`) }, v1alpha1.ReasonHostRefused, "spec.disablePowerOff"},
		"offline":  {func(w *world) { patch(w, `{"spec":{"online":false}}`) }, v1alpha1.ReasonHostRefused, "spec.online"},
		"another namespace": {func(w *world) {
			w.kubectl("patch", "energypolicy", w.name, "--type=merge", `--patch={"spec":{"hostPower":{"metal3":{"namespace":"elsewhere"}}}}`)
		}, v1alpha1.ReasonHostUnknown, "spec.hostPower.metal3.namespace (elsewhere)"},
		"no rights": {func(w *world) {
			w.kubectl("patch", "energypolicy", w.name, "--type=merge", `--patch={"spec":{"hostPower":{"metal3":null,"redfish":{"secretNamespace":"default"}}}}`)
		}, v1alpha1.ReasonHostRights, "config/host-power"},
		"no ClusterRole": {func(w *world) {
			w.kubectl("delete", "clusterrolebinding", "joulevirt-host-power")
			w.Cleanup(func() {
				err := w.cluster.ApplyManifests(context.Background(), "../../config/host-power")
				w.check(errors.Join(err, w.cluster.WaitFor(context.Background(), time.Minute, "the manager has its rights again", func(ctx context.Context) error {
					return w.manager.List(ctx, &storagev1.VolumeAttachmentList{})
				})))
			})
			w.check(w.cluster.WaitFor(w.Context(), time.Minute, "the manager has no rights", func(ctx context.Context) error {
				if err := w.manager.List(ctx, &storagev1.VolumeAttachmentList{}); !apierrors.IsForbidden(err) {
					return fmt.Errorf("it may list: %w", err)
				}
				return nil
			}))
		}, v1alpha1.ReasonHostRights, "config/host-power"},
		"health check": {func(w *world) {
			w.kubectl("label", "node", "--selector=scene="+w.name, "checked=yes")
			check := &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "machine.openshift.io/v1beta1", "kind": "MachineHealthCheck", "metadata": map[string]any{"namespace": "default", "name": "check"},
				"spec": map[string]any{"selector": map[string]any{"matchLabels": map[string]any{"checked": "yes"}}},
			}}
			w.check(w.admin.Create(w.Context(), check))
			w.Cleanup(func() { _ = w.admin.Delete(context.Background(), check) })
		}, v1alpha1.ReasonHealthCheck, "MachineHealthCheck check"},
		"Machine elsewhere": {func(w *world) {
			w.kubectl("annotate", "node", "--selector=scene="+w.name, "cluster.x-k8s.io/machine=gone", "cluster.x-k8s.io/cluster-namespace=default")
		}, v1alpha1.ReasonHealthCheck, "Machine default/gone"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newKnownWorld(t, s, 3, nil)
			test.change(w)
			w.pass(14)
			reason, condition := w.reason(w.policy, w.nodes[1])
			if reason != test.reason && reason != "" || condition.Status != metav1.ConditionFalse || condition.Reason != test.reason || !strings.Contains(condition.Message, test.message) {
				t.Errorf("reason %s, condition %+v", reason, condition)
			}
			for _, name := range w.nodes {
				w.wantClean(name)
			}
		})
	}
}

func testRecommend(t *testing.T, s *suite) {
	w := newKnownWorld(t, s, 3, func(spec *v1alpha1.EnergyPolicySpec) { spec.Mode = v1alpha1.ModeRecommend })
	w.pass(14)
	says := false
	for _, h := range w.plan(w.policy).Status.Hosts {
		says = says || h.Reason == power.ReasonEmpty && h.Message == "it would be powered off in mode Enforce"
		w.wantClean(h.Node)
	}
	if !says {
		t.Errorf("hosts %+v", w.plan(w.policy).Status.Hosts)
	}
}

// Without hostPower, without the policy, and while it is paused, all hosts are on and nothing is left.
func testEnds(t *testing.T, s *suite) {
	for name, end := range map[string]func(*world){
		"deleted": func(w *world) { w.check(w.admin.Delete(w.Context(), w.policy)) },
		"removed": func(w *world) {
			w.kubectl("patch", "energypolicy", w.name, "--type=merge", `--patch={"spec":{"hostPower":null}}`)
		},
		"paused": func(w *world) {
			w.kubectl("patch", "energypolicy", w.name, "--type=merge", `--patch={"spec":{"paused":true}}`)
		},
		"opted out": func(w *world) {
			w.kubectl("annotate", "node", "--selector=scene="+w.name, v1alpha1.AnnotationOptOut+"=Placement")
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newKnownWorld(t, s, 3, nil)
			w.until(v1alpha1.HostOff, 1, 20)
			w.start()
			end(w)
			w.until(v1alpha1.HostOn, 3, 6)
			for _, name := range w.nodes {
				w.wantClean(name)
			}
		})
	}
}

// A PersistentVolume whose data a node alone has keeps its host on while a claim has it.
func testLocalVolume(t *testing.T, s *suite) {
	w := newKnownWorld(t, s, 3, nil)
	local, claimed := w.nodes[1], w.name
	w.volume(claimed, true, local)
	w.volume(w.name+"-free", false, w.nodes[2])
	w.volume(w.name+"-shared", true, w.nodes...)
	w.pass(2)
	if reason, _ := w.reason(w.policy, local); reason != power.ReasonLocalVolume {
		t.Errorf("reason %s", reason)
	}
	w.until(v1alpha1.HostOff, 1, 20)
	w.pass(30)
	if off := w.in(v1alpha1.HostOff); len(off) != 1 || off[0] != w.nodes[2] {
		t.Errorf("%v are off, want the host without a volume of its own", off)
	}
	w.wantClean(local)
}

// volume is a PersistentVolume that some nodes reach, for a claim or for none yet.
func (w *world) volume(name string, claimed bool, nodes ...string) {
	w.Helper()
	volume := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: "/data"}},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: nodes}},
			}}}},
		},
	}
	if claimed {
		volume.Spec.ClaimRef = &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: w.name, Name: name}
	}
	w.check(w.admin.Create(w.Context(), volume))
	w.Cleanup(func() { _ = w.admin.Delete(context.Background(), volume) })
}

// What comes to a node after it was found empty is seen before its host is powered off.
func testNotEmpty(t *testing.T, s *suite) {
	for name, come := range map[string]func(*world, string){
		"pod": func(w *world, node string) { w.pods(node, 1, "1") },
		"volume attachment": func(w *world, node string) {
			attachment := &storagev1.VolumeAttachment{
				ObjectMeta: metav1.ObjectMeta{Name: w.name},
				Spec:       storagev1.VolumeAttachmentSpec{Attacher: "csi", NodeName: node, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: ptr.To("pv")}},
			}
			w.check(w.admin.Create(w.Context(), attachment))
			w.Cleanup(func() { _ = w.admin.Delete(context.Background(), attachment) })
		},
		"local volume": func(w *world, node string) { w.volume(w.name, true, node) },
		"migration": func(w *world, node string) {
			w.check(w.admin.Create(w.Context(), &virtv1.VirtualMachineInstanceMigration{
				ObjectMeta: metav1.ObjectMeta{Namespace: w.name, Name: "move"},
				Spec:       virtv1.VirtualMachineInstanceMigrationSpec{VMIName: "vmi-00000", AddedNodeSelector: map[string]string{corev1.LabelHostname: node}},
			}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newKnownWorld(t, s, 3, nil)
			w.until(v1alpha1.HostCordoned, 1, 15)
			node := w.in(v1alpha1.HostCordoned)[0]
			come(w, node)
			w.reconcile(w.policy.Name)
			w.wantClean(node)
		})
	}
}

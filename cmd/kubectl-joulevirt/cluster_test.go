package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/cli/access"
	"github.com/joulevirt/joulevirt/internal/cli/open"
	"github.com/joulevirt/joulevirt/internal/cli/top"
	"github.com/joulevirt/joulevirt/test/cluster"
	"github.com/joulevirt/joulevirt/test/cluster/binaries"
)

const (
	system = "joulevirt-system"
	shop   = "shop"
	node   = "worker-1"
)

// scene is an API server with KubeVirt's kinds, and people of different rights.
type scene struct {
	*testing.T
	cluster *cluster.Cluster
	client  client.Client
	// kubeconfigs of people by name.
	people map[string]string
}

func (s *scene) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *scene) as(who string, args ...string) answer {
	s.Helper()
	return call(s.T, s.people[who], "kubectl-joulevirt", args...)
}

// TestCluster goes from a cluster without the product to a complete one, and to one without a
// kind.
func TestCluster(t *testing.T) {
	s := &scene{T: t, people: map[string]string{}}
	var err error
	s.cluster, err = cluster.Start(t.Context(), cluster.Options{Binaries: binaries.FromEnvironment(os.Getenv, os.Stderr), KubeVirt: cluster.KubeVirtAPI})
	s.must(err)
	t.Cleanup(func() {
		if err := s.cluster.Stop(); err != nil {
			t.Error(err)
		}
	})
	s.people["admin"] = s.cluster.Kubeconfig()
	s.as("admin", "doctor").want(t, exitFailed, "not installed", "kubectl apply --server-side -k config/default")
	s.as("admin", "top", "nodes").want(t, exitFailed, "nodereports.joulevirt.io", "apply config/crd")

	s.as("admin", "init").want(t, 0, "Neither Prometheus nor Kepler", "and not before", "No VMNetworkProfile")

	s.install()
	for _, step := range []struct {
		name string
		run  func(*scene)
	}{
		{"rights", testRights}, {"views", testViews}, {"init", testInit}, {"changes", testChanges}, {"page", testPage}, {"doctor", testDoctor}, {"missing kind", testMissingKind},
	} {
		if !t.Run(step.name, func(t *testing.T) {
			within := *s
			within.T = t
			step.run(&within)
		}) {
			return
		}
	}
}

// install applies the product's manifests and what manager and agents would have written.
func (s *scene) install() {
	s.Helper()
	ctx := s.Context()
	s.must(s.cluster.AddNode(ctx, node))
	s.must(s.cluster.ApplyManifests(ctx, "../../config/default"))
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme, virtv1.AddToScheme} {
		s.must(add(scheme))
	}
	var err error
	s.client, err = client.New(s.cluster.RESTConfig(), client.Options{Scheme: scheme})
	s.must(err)
	// Nobody else may write plans.
	manager, err := client.New(s.cluster.AsServiceAccount(system, "joulevirt-manager"), client.Options{Scheme: scheme})
	s.must(err)
	for who, roles := range map[string][]string{
		"viewer": {"joulevirt-viewer"}, "editor": {"joulevirt-viewer", "joulevirt-policy-editor"}, "nobody": nil,
	} {
		s.addPerson(who, roles)
	}
	names, err := s.cluster.SeedVMIs(ctx, cluster.Seed{Namespace: shop, Prefix: "web", Count: 2, Nodes: []string{node}})
	s.must(err)
	s.must(s.create(policy()))
	s.must(s.create(profile()))
	s.must(s.create(report()))
	plan := plan()
	for i, name := range names {
		var vmi virtv1.VirtualMachineInstance
		s.must(s.client.Get(ctx, name, &vmi))
		vmi.Labels = map[string]string{"app": "web"}
		s.must(s.client.Update(ctx, &vmi))
		for pod := range vmi.Status.ActivePods {
			plan.Spec.VMs[i].PodUID = pod
		}
		plan.Spec.VMs[i].Name = name.Name
	}
	s.must(s.createBy(manager, plan))
	s.must(s.createBy(manager, placementPlan()))
}

func (s *scene) addPerson(who string, roles []string) {
	s.Helper()
	s.must(s.client.Create(s.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: who}}))
	for _, role := range roles {
		s.must(s.client.Create(s.Context(), &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: who + "-" + role},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "default", Name: who}},
		}))
	}
	_, kubeconfig, err := s.cluster.ServiceAccountConfig(s.Context(), "default", who, "")
	s.must(err)
	s.people[who] = kubeconfig
}

// create writes an object with its status.
func (s *scene) create(object client.Object) error { return s.createBy(s.client, object) }

// createBy is create by somebody, with the status by an administrator.
func (s *scene) createBy(who client.Client, object client.Object) error {
	status := object.DeepCopyObject().(client.Object)
	if err := who.Create(s.Context(), object); err != nil {
		return err
	}
	status.SetResourceVersion(object.GetResourceVersion())
	return s.client.Status().Update(s.Context(), status)
}

func testRights(s *scene) {
	s.as("nobody", "top", "nodes").want(s.T, exitFailed, "you may not list nodereports.joulevirt.io", "ClusterRole joulevirt-viewer")
	s.as("nobody", "top", "groups", "-n", shop).want(s.T, exitFailed, "vmnetworkprofiles.joulevirt.io in namespace shop", "ClusterRole view")
	s.as("nobody", "explain", "vm", "web-00000", "-n", shop).want(s.T, exitFailed, "virtualmachineinstances.kubevirt.io web-00000", "joulevirt-viewer")
	s.as("nobody", "explain", "node", node).want(s.T, 0, "warning: NodePlan: you may not get nodeplans.joulevirt.io")
	s.as("nobody", "doctor").want(s.T, exitUnknown, "Unknown", "you may not get leases.coordination.k8s.io")
	s.as("viewer", "pause", "web").want(s.T, exitFailed, "you may not patch energypolicies.joulevirt.io web", "joulevirt-policy-editor")
	s.as("viewer", "--context=gone", "savings").want(s.T, exitFailed, "gone", "a context of it with --context")
	s.as("viewer", "--token=wrong", "top", "nodes").want(s.T, exitFailed, "does not accept your credentials")
}

func testViews(s *scene) {
	s.as("viewer", "top", "nodes").want(s.T, 0, node, "180", "Measured", "RAPL", "Recommend")
	s.as("viewer", "top", "nodes", "-l", "kubernetes.io/hostname=other").want(s.T, 0, "No resources found")
	s.as("viewer", "top", "vms", "-n", shop).want(s.T, 0, "web-00000", "web-00001", "Slice", "Affinity")
	s.as("viewer", "top", "vms", "-n", shop).want(s.T, 0, "warning: manager: you may not create serviceaccounts/token", "watts of nodes are those of their agents")
	s.as("viewer", "top", "vms", "-n", "default").want(s.T, 0, "No resources found")
	s.as("viewer", "top", "vms", "-A", "-l", "app=none").want(s.T, 0, "No resources found")
	s.as("viewer", "top", "vms", "-A", "-l", "app=web").want(s.T, 0, "web-00001")
	s.as("viewer", "top", "groups", "-A").want(s.T, 0, "shop", "2/2", "Recommended")
	s.as("viewer", "top", "policies", "-o", "jsonpath={.items[0].name}").want(s.T, 0, "web")

	s.as("viewer", "explain", "vm", "web-00000", "-n", shop).want(s.T, 0, "Slice", "ShortSlice", "Why, and what to do", "slice 1000us", "TrafficShare")
	s.as("viewer", "explain", "node", node).want(s.T, 0, "AwaitingApproval", "kubectl joulevirt approve", "SchedSlice (too old)",
		"180 W by RAPL")
	s.as("viewer", "explain", "group", "web", "-n", shop).want(s.T, 0, "Service web", "web-00001", "20 %")
	s.as("viewer", "explain", "vm", "gone", "-n", shop).want(s.T, exitFailed, `there is no VirtualMachineInstance "gone" in namespace shop`, "kubectl get vmi -A")
	s.as("viewer", "explain", "node", "gone").want(s.T, exitFailed, `there is no node "gone"`)
	s.as("viewer", "plan", node).want(s.T, 0, "vCPUs 0:1", "slice 1000us", "r-node")
	s.as("viewer", "plan", "gone").want(s.T, exitFailed, "has no plan")
	s.as("viewer", "plan", "policy", "web").want(s.T, 0, "r-moves", "WATTS-AFTER", "VMSuffers", "node-of-another", "NoBetterNode")
	s.as("viewer", "plan", "policy", "gone").want(s.T, exitFailed, "its spec.levers lack Placement")
	s.as("viewer", "explain", "vm", "web-00000", "-n", shop).want(s.T, 0, "Placement", "to node-of-another")
	s.as("viewer", "savings").want(s.T, 0, "2026-10", "12.5", "3.5 (3 to 4) EUR", "Proven")
	s.as("viewer", "savings", "gone").want(s.T, exitFailed, `there is no EnergyPolicy "gone"`)

	var document struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Items      []struct {
			Name  string   `json:"name"`
			Watts *float64 `json:"watts"`
		} `json:"items"`
	}
	got := s.as("viewer", "top", "nodes", "-o", "json")
	s.must(json.Unmarshal([]byte(got.out), &document))
	if document.APIVersion != "cli.joulevirt.io/v1alpha1" || document.Kind != "NodeEnergyList" || len(document.Items) != 1 || ptr.Deref(document.Items[0].Watts, 0) != 180 {
		s.Errorf("document %+v, want the one node with 180 W", document)
	}
	if got := s.as("viewer", "top", "nodes", "-o", "xml"); got.code == 0 {
		s.Errorf("-o xml is accepted: %s", got.out)
	}
}

func testChanges(s *scene) {
	approvals := func() []string {
		s.Helper()
		var policy v1alpha1.EnergyPolicy
		s.must(s.client.Get(s.Context(), client.ObjectKey{Name: "web"}, &policy))
		return policy.Spec.Approvals
	}
	s.as("editor", "approve", "r-unknown").want(s.T, exitFailed, "r-unknown", "recommended now: r-node of node worker-1, r-moves of the moves of EnergyPolicy web, r-group of group shop/web")
	s.as("editor", "approve", "r-before").want(s.T, exitFailed, "nor the revision of a current recommendation")
	s.as("editor", "approve", "r-node", "--dry-run=server").want(s.T, 0, "1 revision approved (server dry run)")
	if got := approvals(); len(got) != 0 {
		s.Errorf("a dry run wrote approvals %v", got)
	}
	s.as("editor", "approve", "r-node").want(s.T, 0, "energypolicy.joulevirt.io/web 1 revision approved")
	s.as("editor", "approve", "web").want(s.T, 0, "2 revisions approved")
	s.as("editor", "approve", "r-node").want(s.T, 0, "unchanged")
	if got := strings.Join(approvals(), ","); got != "r-node,r-group,r-moves" {
		s.Errorf("approvals %s, want those of the node, of the group and of the moves", got)
	}

	s.as("editor", "pause", "gone").want(s.T, exitFailed, "there are web")
	s.as("editor", "pause", "web").want(s.T, 0, "web paused")
	s.as("editor", "pause", "web").want(s.T, 0, "unchanged")
	s.as("editor", "resume", "--all").want(s.T, 0, "web resumed")

	c, err := access.New(s.cluster.RESTConfig())
	s.must(err)
	stale := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"resourceVersion":"1"},"spec":{"paused":true}}`))
	if err := c.Patch(s.Context(), &v1alpha1.EnergyPolicy{ObjectMeta: metav1.ObjectMeta{Name: "web"}}, stale, false); !access.Is(err, access.Conflict) {
		s.Errorf("a patch of an old version: %v, want a conflict", err)
	}
}

// testInit: what init prints for a cluster the API server accepts.
func testInit(s *scene) {
	const blog, power = "blog", "power"
	ctx := s.Context()
	names, err := s.cluster.SeedVMIs(ctx, cluster.Seed{Namespace: blog, Prefix: "blog", Count: 3, Nodes: []string{node}})
	s.must(err)
	for _, name := range names {
		var vmi virtv1.VirtualMachineInstance
		s.must(s.client.Get(ctx, name, &vmi))
		vmi.Labels = map[string]string{"app": "blog"}
		s.must(s.client.Update(ctx, &vmi))
	}
	s.must(s.client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: power}}))
	for _, one := range []struct {
		namespace, name string
		port            int32
		selector        map[string]string
	}{
		{power, "prometheus-operated", 9090, nil}, {power, "kepler", 28282, nil}, {blog, "blog", 80, map[string]string{"app": "blog"}},
	} {
		s.must(s.client.Create(ctx, &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: one.namespace, Name: one.name},
			Spec:       corev1.ServiceSpec{Selector: one.selector, Ports: []corev1.ServicePort{{Name: "web", Port: one.port}}},
		}))
	}
	got := s.as("admin", "init")
	got.want(s.T, 0, "prometheus-operated.power.svc:9090", `job: "kepler"`, "1 of 1 reporting nodes", "Service blog has 3 VMs")
	if got.err != "" {
		s.Errorf("warnings of an administrator: %s", got.err)
	}
	path := filepath.Join(s.TempDir(), "start.yaml")
	s.must(os.WriteFile(path, []byte(got.out), 0o600))
	if out, err := s.cluster.RunKubectl(ctx, "apply", "--dry-run=server", "--validate=strict", "--filename="+path); err != nil {
		s.Errorf("%v\n%s", err, got.out)
	} else if !strings.Contains(out, "energypolicy.joulevirt.io/start created") || !strings.Contains(out, "vmnetworkprofile.joulevirt.io/blog created") {
		s.Errorf("applied: %s", out)
	}
	var policies v1alpha1.EnergyPolicyList
	s.must(s.client.List(ctx, &policies))
	if len(policies.Items) != 1 {
		s.Errorf("init applied something: %d policies", len(policies.Items))
	}
	s.as("nobody", "init").want(s.T, 0, "warning: Services: you may not list services", "Services could not be listed")
}

// testPage: the manager never gets the kubeconfig's own token, but one that opens the page alone.
func testPage(s *scene) {
	s.as("viewer", "page").want(s.T, exitFailed, "may not create serviceaccounts/token of joulevirt-page", "Role joulevirt-page-user")
	s.as("admin", "page", "--service-account=nobody").want(s.T, exitFailed, "there is no ServiceAccount nobody")
	s.addPerson("visitor", nil)
	s.must(s.client.Create(s.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: "visitor"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "joulevirt-page-user"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "default", Name: "visitor"}},
	}))
	s.as("visitor", "page").want(s.T, exitFailed, `there is no Lease "joulevirt-manager"`)
	var got http.Header
	asked := ""
	manager := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if got, asked = r.Header, r.URL.Path; asked != access.LivePath {
			http.NotFound(w, r)
			return
		}
		fmt.Fprint(w, `{"nodes":{"a":{"watts":5,"source":"RAPL"}}}`)
	}))
	s.Cleanup(manager.Close)
	to, err := url.Parse(manager.URL)
	s.must(err)
	config, err := clientcmd.BuildConfigFromFlags("", s.people["visitor"])
	s.must(err)
	clients, err := kubernetes.NewForConfig(config)
	s.must(err)
	account := types.NamespacedName{Namespace: system, Name: "joulevirt-page"}
	proxy := open.NewProxy("127.0.0.1:9000", to, &open.Tokens{Client: clients, Account: account, Clock: clock.RealClock{}})
	request := httptest.NewRequestWithContext(s.Context(), http.MethodGet, "http://127.0.0.1:9000"+access.PagePath, nil)
	request.Header.Set("Authorization", "Bearer "+config.BearerToken)
	proxy.ServeHTTP(httptest.NewRecorder(), request)
	var live top.Live
	tokens := &open.Tokens{Client: clients, Account: account, Clock: clock.RealClock{}}
	if err := open.Ask(s.Context(), to, access.LivePath, tokens, &live); err != nil || asked != access.LivePath || live.Nodes["a"].Source != v1alpha1.PowerRAPL {
		s.Errorf("asked for %s: %+v, %v", asked, live, err)
	}
	if err := open.Ask(s.Context(), to, "/none", tokens, &live); err == nil || !strings.Contains(err.Error(), "404") {
		s.Errorf("an answer that is refused: %v", err)
	}
	lent, is := strings.CutPrefix(got.Get("Authorization"), "Bearer ")
	if config.BearerToken == "" || !is || strings.Contains(fmt.Sprint(got), config.BearerToken) {
		s.Fatalf("the manager got %v", got)
	}
	for audience, want := range map[string]string{access.PageAudience: "system:serviceaccount:" + system + ":joulevirt-page", "": ""} {
		review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: lent}}
		if audience != "" {
			review.Spec.Audiences = []string{audience}
		}
		s.must(s.client.Create(s.Context(), review))
		if review.Status.User.Username != want {
			s.Errorf("with audience %q the token is of %q, want %q", audience, review.Status.User.Username, want)
		}
	}
}

// testDoctor makes the installation whole.
func testDoctor(s *scene) {
	s.as("viewer", "doctor").want(s.T, exitFailed, "no manager ever led", "0 of 2 pods are ready")
	now := metav1.NewMicroTime(time.Now())
	s.must(s.client.Create(s.Context(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: "joulevirt-manager"},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: ptr.To("pod-1_x"), LeaseDurationSeconds: ptr.To(int32(3600)), RenewTime: &now},
	}))
	s.as("admin", "page", "--address=0.0.0.0:9000").want(s.T, exitFailed, "of this machine alone")
	s.as("visitor", "page", "--no-browser").want(s.T, exitFailed, "to pod pod-1", "not found")
	deployment := &appsv1.Deployment{}
	s.must(s.client.Get(s.Context(), client.ObjectKey{Namespace: system, Name: "joulevirt-manager"}, deployment))
	deployment.Status.Replicas, deployment.Status.ReadyReplicas = 2, 2
	s.must(s.client.Status().Update(s.Context(), deployment))
	s.as("viewer", "doctor").want(s.T, 0, "pod-1 leads", "all kinds are served", "1 agent reported", "missing on worker-1: too old", "Upgrade the node's kernel to 6.12")
	s.as("viewer", "doctor", "-o", "jsonpath={.healthy}").want(s.T, 0, "true")
}

func testMissingKind(s *scene) {
	_, err := s.cluster.RunKubectl(s.Context(), "delete", "crd", "nodeplans.joulevirt.io", "--timeout=2m")
	s.must(err)
	s.must(s.cluster.WaitFor(s.Context(), 2*time.Minute, "the kind is gone", gone(s)))
	s.as("viewer", "doctor").want(s.T, exitFailed, "not installed: NodePlans")
	s.as("viewer", "top", "nodes").want(s.T, 0, node, "warning: NodePlans: the cluster has no nodeplans.joulevirt.io of version v1alpha1")
	s.as("viewer", "plan", node).want(s.T, exitFailed, "the cluster has no nodeplans.joulevirt.io")
	s.as("editor", "approve", "web").want(s.T, exitFailed, "the cluster has no nodeplans.joulevirt.io")
}

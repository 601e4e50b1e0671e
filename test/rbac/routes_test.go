package rbac

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/test/cluster"
	"github.com/joulevirt/joulevirt/test/dataplane/gatewaycrds"
)

const (
	// routed is a namespace of VM owners with routes.
	routed = "routed"
	// profileAuthor may write profiles there, routeAuthor HTTPRoutes too.
	profileAuthor, routeAuthor = "profile-author", "route-author"
)

// testRoutes shows who may have the manager make a route, and which routes it may write.
func testRoutes(t *testing.T, c *cluster.Cluster) {
	if err := gatewaycrds.Install(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	objects := []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: routed}},
		&rbacv1.Role{
			ObjectMeta: metav1.ObjectMeta{Namespace: routed, Name: "routes"},
			Rules:      []rbacv1.PolicyRule{{APIGroups: []string{gatewayv1.GroupName}, Resources: []string{"httproutes"}, Verbs: []string{"create"}}},
		},
		bindRole("profiles", "ClusterRole", "joulevirt-profile-editor", profileAuthor, routeAuthor),
		bindRole("routes", "Role", "routes", routeAuthor),
	}
	for _, object := range objects {
		if err := joulevirtClient(t, c.RESTConfig()).Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("Profiles", func(t *testing.T) { testProfileRoutes(t, c) })
	t.Run("Manager", func(t *testing.T) { testManagerRoutes(t, c) })
}

func bindRole(name, kind, role string, users ...string) *rbacv1.RoleBinding {
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: routed, Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: role},
	}
	for _, user := range users {
		binding.Subjects = append(binding.Subjects, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user})
	}
	return binding
}

func userClient(t *testing.T, c *cluster.Cluster, user string) client.Client {
	t.Helper()
	config := rest.CopyConfig(c.RESTConfig())
	config.Impersonate = rest.ImpersonationConfig{UserName: user}
	return joulevirtClient(t, config)
}

// routeProfile has the manager make a route that takes a host's traffic.
func routeProfile(name string, kind v1alpha1.GroupTargetKind, host string) *v1alpha1.VMNetworkProfile {
	return &v1alpha1.VMNetworkProfile{
		ObjectMeta: metav1.ObjectMeta{Namespace: routed, Name: name},
		Spec: v1alpha1.VMNetworkProfileSpec{
			Selector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			Group: &v1alpha1.TrafficGroup{
				Kind: kind, Name: name, Port: ptr.To[int32](80),
				Route: &v1alpha1.RouteTemplate{
					ParentRefs: []runtime.RawExtension{{Raw: []byte(`{"name":"shared","namespace":"infra"}`)}},
					Hostnames:  []string{host},
				},
			},
		},
	}
}

func testProfileRoutes(t *testing.T, c *cluster.Cluster) {
	without, with := userClient(t, c, profileAuthor), userClient(t, c, routeAuthor)
	err := c.WaitFor(t.Context(), policyDelay, "admission policy refuses a route", func(ctx context.Context) error {
		return isForbidden(without.Create(ctx, routeProfile("taken", v1alpha1.GroupHTTPRoute, "shop.example.com"), client.DryRunAll))
	})
	if err != nil {
		t.Fatal(err)
	}
	wantForbidden(t, without.Create(t.Context(), routeProfile("taken", v1alpha1.GroupHTTPRoute, "shop.example.com")),
		"create httproutes", `namespace "routed"`)
	wantForbidden(t, with.Create(t.Context(), routeProfile("calls", v1alpha1.GroupGRPCRoute, "calls.example.com")), "create grpcroutes")
	plain := routeProfile("plain", v1alpha1.GroupHTTPRoute, "")
	plain.Spec.Group = nil
	if err := without.Create(t.Context(), plain); err != nil {
		t.Errorf("a profile without a group: %v", err)
	}
	wantForbidden(t, mergePatch(t.Context(), without, plain,
		`{"spec":{"group":{"kind":"HTTPRoute","name":"plain","port":80,"route":{"parentRefs":[{"name":"shared"}]}}}}`), "create httproutes")
	shop := routeProfile("shop", v1alpha1.GroupHTTPRoute, "shop.example.com")
	if err := with.Create(t.Context(), shop); err != nil {
		t.Fatalf("a profile of somebody who may create routes: %v", err)
	}
	wantForbidden(t, mergePatch(t.Context(), without, shop, `{"spec":{"group":{"route":{"hostnames":["login.example.com"]}}}}`), "create httproutes")
	for what, patch := range map[string]string{
		"another field": `{"spec":{"trafficClass":"Throughput"}}`,
		"no group":      `{"spec":{"group":null}}`,
	} {
		if err := mergePatch(t.Context(), without, shop, patch, client.DryRunAll); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := mergePatch(t.Context(), with, shop, `{"spec":{"group":{"route":{"hostnames":["new.example.com"]}}}}`); err != nil {
		t.Errorf("another host of somebody who may create routes: %v", err)
	}
}

func testManagerRoutes(t *testing.T, c *cluster.Cluster) {
	account, admin := joulevirtClient(t, c.AsServiceAccount(namespace, manager)), joulevirtClient(t, c.RESTConfig())
	route := func(name, backend string, owned bool) *gatewayv1.HTTPRoute {
		out := &gatewayv1.HTTPRoute{ObjectMeta: metav1.ObjectMeta{Namespace: routed, Name: name}}
		out.Spec.Rules = []gatewayv1.HTTPRouteRule{{BackendRefs: []gatewayv1.HTTPBackendRef{{BackendRef: gatewayv1.BackendRef{
			BackendObjectReference: gatewayv1.BackendObjectReference{Name: gatewayv1.ObjectName(backend), Port: ptr.To[gatewayv1.PortNumber](80)},
		}}}}}
		if owned {
			out.OwnerReferences = []metav1.OwnerReference{{
				APIVersion: v1alpha1.GroupVersion.String(), Kind: "VMNetworkProfile", Name: "shop", UID: "1", Controller: ptr.To(true),
			}}
		}
		return out
	}
	foreign := route("foreign", "jv-web", false)
	if err := admin.Create(t.Context(), foreign); err != nil {
		t.Fatal(err)
	}
	err := c.WaitFor(t.Context(), policyDelay, "admission policy refuses the manager another route", func(ctx context.Context) error {
		return isForbidden(mergePatch(ctx, account, foreign, `{"metadata":{"labels":{"a":"b"}}}`, client.DryRunAll))
	})
	if err != nil {
		t.Fatal(err)
	}
	own := route("own", "jv-web", true)
	if err := account.Create(t.Context(), own); err != nil {
		t.Fatalf("a route of a profile: %v", err)
	}
	if err := mergePatch(t.Context(), account, own, `{"spec":{"hostnames":["shop.example.com"]}}`); err != nil {
		t.Errorf("another host of a profile's route: %v", err)
	}
	wantForbidden(t, account.Create(t.Context(), route("ownerless", "jv-web", false)), `"ownerless"`)
	wantForbidden(t, mergePatch(t.Context(), account, foreign, `{"spec":{"hostnames":["shop.example.com"]}}`), `"foreign"`)
	wantForbidden(t, mergePatch(t.Context(), account, own, `{"metadata":{"ownerReferences":null}}`), `"own"`)
	wantForbidden(t, account.Create(t.Context(), route("elsewhere", "somebodys", true)), "Services of the same namespace")
	wantForbidden(t, mergePatch(t.Context(), account, own,
		`{"spec":{"rules":[{"backendRefs":[{"name":"jv-web","namespace":"infra","port":80}]}]}}`), "Services of the same namespace")
}

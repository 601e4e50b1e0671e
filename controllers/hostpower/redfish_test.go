//go:build e2e

package hostpower

import (
	"os"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/bmc"
	"github.com/joulevirt/joulevirt/test/cluster/binaries"
	"github.com/joulevirt/joulevirt/test/redfish"
)

const bmcs = "bmc"

// redfishWorld has three nodes, of which the last runs on the emulator's machine.
type redfishWorld struct {
	*world
	name   string
	secret *corev1.Secret
}

func newRedfishWorld(t *testing.T, s *suite, emulator *redfish.Emulator) *redfishWorld {
	t.Helper()
	w := &redfishWorld{world: newKnownWorld(t, s, 3, func(spec *v1alpha1.EnergyPolicySpec) {
		spec.HostPower = &v1alpha1.HostPower{Redfish: &v1alpha1.RedfishPower{SecretNamespace: bmcs}}
	})}
	w.name = w.nodes[2]
	node := w.node(w.name)
	before := node.DeepCopy()
	node.Status.NodeInfo.SystemUUID = strings.ToUpper(redfish.UUID)
	w.check(s.admin.Status().Patch(t.Context(), node, client.MergeFrom(before)))
	w.secret = &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: bmcs, Name: w.name, Labels: map[string]string{v1alpha1.LabelHostCredentials: ""}},
		StringData: map[string]string{"address": emulator.URL + "/", "username": redfish.Username, "password": redfish.Password, "ca.crt": string(emulator.Certificate)},
	}
	w.check(s.admin.Create(t.Context(), w.secret))
	return w
}

// isOn asks the emulator.
func (w *redfishWorld) isOn() bool {
	w.Helper()
	host, err := bmc.Find(w.Context(), w.admin, w.policy.Spec.HostPower, w.node(w.nodes[2]))
	w.check(err)
	return host.IsOn()
}

// TestRedfish powers hosts by Redfish against sushy-emulator: off in an orderly way, on, and off by force.
// Whatever is wrong with the Secret is reported, and nothing happens.
func TestRedfish(t *testing.T) {
	ctrl.SetLogger(logr.Discard())
	s := startSuite(t)
	port, err := s.cluster.TakePort()
	s.must(t, err)
	emulator, err := redfish.Start(t.Context(), binaries.FromEnvironment(os.Getenv, os.Stderr), t.TempDir(), port)
	s.must(t, err)
	t.Cleanup(emulator.Stop)
	s.kubectl(t, "create", "namespace", bmcs)
	s.kubectl(t, "apply", "--server-side", "--namespace="+bmcs, "--kustomize=../../config/host-power/redfish")
	t.Run("off and on", func(t *testing.T) {
		w := newRedfishWorld(t, s, emulator)
		w.until(v1alpha1.HostOff, 1, 20)
		if w.isOn() {
			t.Error("the machine is on")
		}
		w.setReady(w.name, corev1.ConditionUnknown, "")
		w.pods("", 4, "12")
		w.until(v1alpha1.HostPoweringOn, 1, 3)
		if !w.isOn() {
			t.Error("the machine is off")
		}
		w.bootNode(w.name)
		w.until(v1alpha1.HostOn, 3, 3)
		w.wantClean(w.name)
	})
	t.Run("by force", func(t *testing.T) {
		w := newRedfishWorld(t, s, emulator)
		for _, force := range []bool{true, false} {
			host, err := bmc.Find(t.Context(), s.admin, w.policy.Spec.HostPower, w.node(w.name))
			w.check(err)
			if force {
				w.check(host.PowerOff(t.Context(), true))
			} else {
				w.check(host.PowerOn(t.Context()))
			}
			if w.isOn() == force {
				t.Errorf("force %v: the machine is on: %v", force, !force)
			}
		}
	})
	for name, test := range map[string]struct {
		change  func(*corev1.Secret, *corev1.Node)
		reason  string
		message string
	}{
		"label":       {func(s *corev1.Secret, _ *corev1.Node) { s.Labels = nil }, v1alpha1.ReasonHostCredentials, "has no label joulevirt.io/host-power-credentials"},
		"password":    {func(s *corev1.Secret, _ *corev1.Node) { s.StringData = map[string]string{"password": "wrong"} }, v1alpha1.ReasonHostCredentials, "refuses username and password"},
		"no username": {func(s *corev1.Secret, _ *corev1.Node) { delete(s.Data, "username") }, v1alpha1.ReasonHostCredentials, "lacks username or password"},
		"http": {func(s *corev1.Secret, _ *corev1.Node) {
			s.StringData = map[string]string{"address": "http://127.0.0.1"}
		}, v1alpha1.ReasonHostCredentials, "https://"},
		"authority":  {func(s *corev1.Secret, _ *corev1.Node) { delete(s.Data, "ca.crt") }, v1alpha1.ReasonHostUnreachable, "certificate"},
		"broken PEM": {func(s *corev1.Secret, _ *corev1.Node) { s.StringData = map[string]string{"ca.crt": "x"} }, v1alpha1.ReasonHostCredentials, "ca.crt"},
		"another machine": {func(_ *corev1.Secret, n *corev1.Node) {
			n.Status.NodeInfo.SystemUUID = "00000000-0000-0000-0000-000000000001"
		}, v1alpha1.ReasonHostUnknown, "none of the 1 systems"},
		"no UUID": {func(_ *corev1.Secret, n *corev1.Node) { n.Status.NodeInfo.SystemUUID = "" }, v1alpha1.ReasonHostUnknown, "status.nodeInfo.systemUUID"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newRedfishWorld(t, s, emulator)
			node := w.node(w.name)
			w.check(s.admin.Get(t.Context(), types.NamespacedName{Namespace: bmcs, Name: w.name}, w.secret))
			test.change(w.secret, node)
			w.check(s.admin.Update(t.Context(), w.secret))
			w.check(s.admin.Status().Update(t.Context(), node))
			w.pass(14)
			plan := w.plan(w.policy)
			for _, h := range plan.Status.Hosts {
				if h.Node == w.name && (h.Reason != test.reason || !strings.Contains(h.Message, test.message)) {
					t.Errorf("host %+v, want %s with %q", h, test.reason, test.message)
				}
				if strings.Contains(h.Message, redfish.Password) {
					t.Errorf("the message has the password: %s", h.Message)
				}
			}
			w.wantClean(w.name)
		})
	}
}

package observe

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
)

// TestSelectorFollowsGeneration: a compiled selector is used again, and not beyond its generation.
func TestSelectorFollowsGeneration(t *testing.T) {
	profile := v1alpha1.VMNetworkProfile{ObjectMeta: metav1.ObjectMeta{UID: "selector-follows", Generation: 1}}
	for _, app := range []string{"web", "db"} {
		profile.Spec.Selector.MatchLabels = map[string]string{"app": app}
		for range 2 {
			profiles := NewProfiles([]v1alpha1.VMNetworkProfile{profile})
			for _, of := range []string{"web", "db"} {
				vmi := &virtv1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": of}}}
				if got, ok := profiles.Governing(vmi); ok != (of == app) || ok && got.Spec.Selector.MatchLabels["app"] != app {
					t.Errorf("a selector of %s selects %s: %v, by %v", app, of, ok, got.VMNetworkProfile)
				}
			}
		}
		profile.Generation++
	}
}

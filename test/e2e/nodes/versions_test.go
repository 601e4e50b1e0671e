//go:build e2e

package nodes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/test/cluster/binaries"
)

// TestVersions: the product acts, and ends without a trace, with the newest KubeVirt and with the
// oldest Kubernetes that the documentation promises. All else runs with the usual versions.
func TestVersions(t *testing.T) {
	usual := binaries.FromEnvironment(os.Getenv, os.Stderr)
	for name, folder := range map[string]string{"NewestKubeVirt": binaries.NewestKubeVirt, "OldestKubernetes": binaries.OldestKubernetes} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			programs := usual.Other(folder)
			w := newWorld(t, programs)
			w.runs(programs)
			w.labels()
			w.check(w.Client().Delete(w.Context(), &v1alpha1.EnergyPolicy{ObjectMeta: metav1.ObjectMeta{Name: "slice"}}))
			n := w.Nodes()[0]
			w.eventually("nothing is left on the node", func(ctx context.Context) error {
				for _, vm := range []types.NamespacedName{web, bulk} {
					qemu, err := n.QEMU(vm)
					if err != nil {
						return err
					}
					if set, err := isSliced(qemu); err != nil || set {
						return fmt.Errorf("threads of VM %s have a slice: %w", vm, err)
					}
				}
				return nil
			})
			w.answers()
			w.logs.check(t)
		})
	}
}

// labels waits until VM web has the label that its next pods copy. Nothing here extends selectors:
// the status says which line to add.
func (w *world) labels() {
	w.Helper()
	w.agree()
	w.eventually("web has the label, and its status names the line to add", func(ctx context.Context) error {
		vmi, profile := &kubevirtv1.VirtualMachineInstance{}, &v1alpha1.VMNetworkProfile{}
		if err := errors.Join(w.Client().Get(ctx, web, vmi), w.Client().Get(ctx, web, profile)); err != nil {
			return err
		}
		status := profile.Status.Traffic
		if status == nil || !strings.Contains(status.Message, v1alpha1.LabelServing+": active") || !strings.Contains(status.Message, "config/mutation") ||
			vmi.Labels[v1alpha1.LabelServing] != v1alpha1.ServingActive {
			return fmt.Errorf("its labels are %v, the status is %+v", vmi.Labels, status)
		}
		return nil
	})
}

// runs checks that the cluster runs the versions of these programs, by its own word.
func (w *world) runs(programs binaries.Source) {
	w.Helper()
	for _, part := range []struct {
		component binaries.Component
		asked     []string
	}{
		{binaries.APIServer, []string{"get", "--raw=/version"}},
		{binaries.Kubelet, []string{"get", "node", w.Nodes()[0].Name, "--output=jsonpath={.status.nodeInfo.kubeletVersion}"}},
		{binaries.VirtLauncher, []string{"get", "vmi", "--namespace=" + shop, web.Name, "--output=jsonpath={.status.launcherContainerImageVersion}"}},
	} {
		want, err := programs.Version(part.component)
		w.check(err)
		if got := w.kubectl(part.asked...); !strings.Contains(got, want) {
			w.Errorf("%s is %s, want %s", part.component, got, want)
		}
	}
}

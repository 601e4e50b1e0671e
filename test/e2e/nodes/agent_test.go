//go:build e2e

package nodes

import (
	"context"
	"fmt"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/test/env/node"
	"github.com/joulevirt/joulevirt/test/env/product"
	"github.com/joulevirt/joulevirt/test/internal/proc"
)

const (
	// benchVMs run beside the agent that is measured, for benchTime.
	benchVMs  = 10
	benchTime = time.Minute
)

// BenchmarkAgentPod measures the agent as a pod beside ten idle VMs.
func BenchmarkAgentPod(b *testing.B) {
	check := func(err error) {
		b.Helper()
		if err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		e := node.StartForTest(b, node.Options{Product: true})
		check(product.Install(b.Context(), e))
		starts, ctx := errgroup.WithContext(b.Context())
		starts.SetLimit(3) // or all of them boot too slowly
		for i := range benchVMs {
			starts.Go(func() error {
				_, err := e.StartVM(ctx, e.NewVM("default", fmt.Sprintf("vm-%d", i), func(t *kubevirtv1.VirtualMachineInstanceTemplateSpec) {
					// With KubeVirt's default, ten do not fit two CPUs.
					t.Spec.Domain.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("20m")}
				}))
				return err
			})
		}
		check(starts.Wait())
		n := e.Nodes()[0]
		check(e.WaitFor(b.Context(), changeTimeout, "the agent reports all VMs", func(ctx context.Context) error {
			report := &v1alpha1.NodeReport{}
			if err := e.Client().Get(ctx, client.ObjectKey{Name: n.Name}, report); err != nil || report.Status.VMs != benchVMs {
				return fmt.Errorf("it reports %d: %w", report.Status.VMs, err)
			}
			return nil
		}))
		pid, err := product.AgentProcess(n)
		check(err)
		use, err := proc.Measure(b.Context(), pid, benchTime)
		check(err)
		b.Logf("figure agent_cpu_pct_pod %.2f percent of one core", use.CPUPercent)
		b.Logf("figure agent_rss_mb_pod %.1f MB", float64(use.Resident)/1e6)
	}
}

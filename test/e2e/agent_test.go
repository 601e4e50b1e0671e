//go:build e2e

package e2e

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/pki"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/test/cluster/stack"
	"github.com/joulevirt/joulevirt/test/env/node"
	"github.com/joulevirt/joulevirt/test/env/product"
)

// authority is the manager's, read as only the manager may.
func (f *fixture) authority(ctx context.Context) (*pki.Authority, error) {
	var secret corev1.Secret
	key := types.NamespacedName{Namespace: product.Namespace, Name: pki.AuthoritySecret}
	if err := f.Client().Get(ctx, key, &secret); err != nil {
		return nil, err
	}
	return pki.ParseAuthority(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
}

type authorities struct{ authority *pki.Authority }

func (a authorities) Authority() (*pki.Authority, error) { return a.authority, nil }

// rates reads the agent's rates as the manager does.
func (f *fixture) rates(ctx context.Context) (*model.NodeRates, error) {
	authority, err := f.authority(ctx)
	if err != nil {
		return nil, err
	}
	address, err := f.agentAddress(ctx, "9443")
	if err != nil {
		return nil, err
	}
	clients := pki.NewAgentClients(pki.NewManagerTLS(authorities{authority}, clock.RealClock{}).Settings)
	defer clients.Forget(f.node.Name)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+address+"/v1/rates", http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := clients.For(f.node.Name).Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("/v1/rates answers %s", response.Status)
	}
	var rates model.NodeRates
	return &rates, json.NewDecoder(response.Body).Decode(&rates)
}

// rounds waits for n more rounds of samples.
func (f *fixture) rounds(n int) {
	f.Helper()
	seen := 0
	var last time.Time
	f.eventually(fmt.Sprintf("%d rounds of samples", n), func(ctx context.Context) error {
		rates, err := f.rates(ctx)
		if err != nil {
			return err
		}
		if rates.Time.After(last) {
			last = rates.Time
			seen++
		}
		if seen <= n {
			return fmt.Errorf("%d so far", seen)
		}
		return nil
	})
}

// agentAddress is where the agent serves at one of its ports.
func (f *fixture) agentAddress(ctx context.Context, port string) (string, error) {
	pod, err := product.Agent(ctx, f.Client(), f.node.Name)
	if err != nil {
		return "", err
	}
	return net.JoinHostPort(pod.Status.PodIP, port), nil
}

// agentServes rates of a busy VM of two vCPUs and its node's power to the manager alone, and metrics
// to whom the API server lets read them.
func (f *fixture) agentServes() {
	web := f.web
	f.plugIn(web, 2)
	f.burn(web, burnSeconds)
	f.Cleanup(func() { f.burn(web, 0) })
	source := f.ownSource()
	f.eventually("one vCPU is busy, the tap has traffic and the VM has watts", func(ctx context.Context) error {
		// Each attempt is traffic to the VM.
		address, err := f.Address(ctx, web.vmi)
		if err == nil {
			err = node.Answers(ctx, address)
		}
		if err != nil {
			return err
		}
		rates, err := f.rates(ctx)
		if err != nil {
			return err
		}
		at := slices.IndexFunc(rates.VMs, func(vm model.VMRates) bool { return vm.Namespace == shop && vm.Name == web.name })
		if at < 0 {
			return fmt.Errorf("no rates of VM %s among %d", web.name, len(rates.VMs))
		}
		return errors.Join(expectBusy(&rates.VMs[at]), expectPower(rates, web.name, source))
	})
	f.reportPower(source)
	f.serveMetrics(web)
	stranger := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} //nolint:gosec // an attacker would not verify
	address, err := f.agentAddress(f.Context(), "9443")
	f.must(err)
	request, err := http.NewRequestWithContext(f.Context(), http.MethodGet, "https://"+address+"/v1/rates", http.NoBody)
	f.must(err)
	if response, err := stranger.Do(request); err == nil {
		_ = response.Body.Close()
		f.Errorf("a client without a certificate got %s", response.Status)
	}
}

func expectBusy(rates *model.VMRates) error {
	if len(rates.VCPUs) != 2 {
		return fmt.Errorf("%d vCPUs, want 2", len(rates.VCPUs))
	}
	busy := rates.VCPUs[0].RunCores + rates.VCPUs[1].RunCores
	switch {
	case busy < 0.3:
		return fmt.Errorf("the vCPUs use %.2f cores, want a busy one", busy)
	case busy > 2.1:
		return fmt.Errorf("the vCPUs use %.2f cores: more than there are", busy)
	case rates.VCPUs[0].SwitchesPerSecond+rates.VCPUs[1].SwitchesPerSecond <= 0:
		return errors.New("no context switches")
	case len(rates.Taps) != 1 || rates.Taps[0].Name != "tap0":
		return fmt.Errorf("taps are %+v, want tap0", rates.Taps)
	case rates.Taps[0].ToVM.PacketsPerSecond <= 0 || rates.Taps[0].FromVM.PacketsPerSecond <= 0:
		return fmt.Errorf("no traffic in both directions: %+v", rates.Taps[0])
	}
	return nil
}

// serveMetrics wants the agent's series and a VM's served to whom the API server lets read them.
func (f *fixture) serveMetrics(m *machine) {
	f.Helper()
	reader, err := stack.MetricsToken(f.Context(), f.Cluster, shop)
	f.must(err)
	stranger, err := stack.Token(f.Context(), f.Cluster, shop, "stranger")
	f.must(err)
	address, err := f.agentAddress(f.Context(), "8443")
	f.must(err)
	f.eventually("the agent's and the VM's series", func(ctx context.Context) error {
		status, body, err := stack.Scrape(ctx, address, reader)
		if err != nil || status != http.StatusOK {
			return fmt.Errorf("status %d: %w: %s", status, err, body)
		}
		for _, want := range []string{
			fmt.Sprintf(`joulevirt_agent_vms{node=%q,state="running"} %d`, f.node.Name, len(f.machines())),
			fmt.Sprintf(`joulevirt_vm_wait_cores{name=%q,namespace=%q,node=%q,thread="vcpu"}`, m.name, shop, f.node.Name),
		} {
			if !strings.Contains(body, want) {
				return fmt.Errorf("no %s in\n%s", want, body)
			}
		}
		return nil
	})
	for token, want := range map[string]int{"": http.StatusUnauthorized, stranger: http.StatusForbidden} {
		status, body, err := stack.Scrape(f.Context(), address, token)
		if err != nil || status != want || strings.Contains(body, "joulevirt_") {
			f.Errorf("status %d, %v, want %d: %s", status, err, want, body)
		}
	}
}

// ownSource is the agent's own source of power on this machine. A machine that
// is a VM counts as one without a meter even if it shows counters.
func (f *fixture) ownSource() v1alpha1.PowerSource {
	f.Helper()
	var report v1alpha1.NodeReport
	f.eventually("the agent reports", func(ctx context.Context) error {
		return f.Client().Get(ctx, types.NamespacedName{Name: f.node.Name}, &report)
	})
	zones, err := filepath.Glob("/sys/class/powercap/*:*/energy_uj")
	f.must(err)
	if len(zones) == 0 || report.Status.Topology.Nested {
		return v1alpha1.PowerModel
	}
	return v1alpha1.PowerRAPL
}

// reportPower wants the NodeReport to have the node's power.
func (f *fixture) reportPower(source v1alpha1.PowerSource) {
	f.Helper()
	f.eventually("the report has the node's power", func(ctx context.Context) error {
		var report v1alpha1.NodeReport
		if err := f.Client().Get(ctx, types.NamespacedName{Name: f.node.Name}, &report); err != nil {
			return err
		}
		power := report.Status.Power
		measured := meta.IsStatusConditionTrue(report.Status.Conditions, v1alpha1.ConditionMeterAvailable)
		modelled := source == v1alpha1.PowerModel
		if power.Source != source || power.Watts == nil || power.MeasuredAt == nil || measured == modelled {
			return fmt.Errorf("power is %+v, MeterAvailable %t, want source %s", power, measured, source)
		}
		return nil
	})
}

// expectPower checks that rates have the power of a node, and of one of its VMs, which is no more.
func expectPower(rates *model.NodeRates, vm string, source v1alpha1.PowerSource) error {
	power := rates.Power
	if power == nil || power.Source != source || power.Watts <= 0 || power.Time.IsZero() || rates.Totals == nil {
		return fmt.Errorf("power is %+v, totals %+v", power, rates.Totals)
	}
	var sum units.Watts
	found := false
	for i := range rates.VMs {
		if watts := rates.VMs[i].Watts; watts != nil {
			found = found || rates.VMs[i].Name == vm && *watts > 0
			sum += *watts
		}
	}
	if !found || sum > power.Watts {
		return fmt.Errorf("VM %s has no watts, or all VMs' %v W are more than the node's %v W", vm, sum, power.Watts)
	}
	return nil
}

package e2e

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/pki"
	"github.com/joulevirt/joulevirt/test/cluster/stack"
)

// authority is the manager's, read as only the manager may.
func (f *fixture) authority(ctx context.Context) (*pki.Authority, error) {
	var secret corev1.Secret
	key := types.NamespacedName{Namespace: stack.Namespace, Name: pki.AuthoritySecret}
	if err := f.client.Get(ctx, key, &secret); err != nil {
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
	clients := pki.NewAgentClients(pki.NewManagerTLS(authorities{authority}, clock.RealClock{}).Settings)
	defer clients.Forget(nodeName)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+world.Agent().Rates+"/v1/rates", http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := clients.For(nodeName).Do(request)
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

// TestAgentServes: rates of a busy VM and its node's power to the manager alone, and metrics to whom
// the API server lets read them.
func TestAgentServes(t *testing.T) {
	f := newFixture(t)
	web := f.startVM(f.newVM("web", 2))
	if err := web.sandbox.GuestBurn(t.Context(), 1, 60); err != nil {
		t.Fatal(err)
	}
	source := f.ownSource()
	f.eventually("one vCPU is busy, the tap has traffic and the VM has watts", func(ctx context.Context) error {
		// Each attempt is traffic to the VM.
		if err := web.sandbox.WaitGuestReady(ctx); err != nil {
			return err
		}
		rates, err := f.rates(ctx)
		if err != nil {
			return err
		}
		at := slices.IndexFunc(rates.VMs, func(vm model.VMRates) bool { return vm.Namespace == web.vmi.Namespace && vm.Name == web.vmi.Name })
		if at < 0 {
			return fmt.Errorf("no rates of VM %s among %d", web.vmi.Name, len(rates.VMs))
		}
		return errors.Join(expectBusy(&rates.VMs[at]), expectPower(rates, web.vmi.Name, source))
	})
	f.reportPower(source)
	f.serveMetrics(web)
	stranger := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} //nolint:gosec // an attacker would not verify
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+world.Agent().Rates+"/v1/rates", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if response, err := stranger.Do(request); err == nil {
		_ = response.Body.Close()
		t.Errorf("a client without a certificate got %s", response.Status)
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

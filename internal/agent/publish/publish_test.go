package publish

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/energy"
	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/pki"
	"github.com/joulevirt/joulevirt/internal/units"
)

func start() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }

func state(vms ...string) *State {
	s := &State{
		Synced: true, InForce: map[v1alpha1.Lever]int{v1alpha1.LeverAffinity: 1},
		Rates: &model.NodeRates{Node: "node1", Time: start(), IntervalSeconds: 1},
	}
	watts := units.Watts(3)
	for _, name := range vms {
		s.Rates.VMs = append(s.Rates.VMs, model.VMRates{
			PodUID: "pod-" + name, Namespace: "shop", Name: name,
			VCPUs: []model.VCPURates{{ThreadRates: model.ThreadRates{RunCores: 0.5, WaitCores: 0.03}}, {Index: 1, ThreadRates: model.ThreadRates{RunCores: 0.25, WaitCores: 0.02}}},
			Taps:  []model.TapRates{{Name: "tap0", ToVM: model.TrafficRates{BitsPerSecond: 8}}, {Name: "tap1", ToVM: model.TrafficRates{BitsPerSecond: 8}}},
			Watts: &watts,
		})
	}
	return s
}

func newCollector(board *Board, perVM bool) *Collector {
	return NewCollector(CollectorOptions{
		Board: board, Node: "node1", PerVM: perVM, Version: "v1",
		Expires: func() (time.Time, bool) { return start().Add(time.Hour), true },
	})
}

func TestMetrics(t *testing.T) {
	board := &Board{}
	collector := newCollector(board, true)
	if n := testutil.CollectAndCount(collector); n != 2 {
		t.Errorf("%d series before the first round, want the version and the certificate's end", n)
	}
	board.Post(state("web", "db"))
	want := `
# HELP joulevirt_vm_wait_cores Time spent runnable without a CPU: the steal that the guest sees.
# TYPE joulevirt_vm_wait_cores gauge
`
	for _, vm := range []string{"db", "web"} {
		for _, kind := range []string{"emulator", "io", "other", "vcpu", "vhost"} {
			value := "0"
			if kind == "vcpu" {
				value = "0.05"
			}
			want += fmt.Sprintf("joulevirt_vm_wait_cores{name=%q,namespace=\"shop\",node=\"node1\",thread=%q} %s\n", vm, kind, value)
		}
	}
	if err := testutil.CollectAndCompare(collector, strings.NewReader(want), "joulevirt_vm_wait_cores"); err != nil {
		t.Error(err)
	}
	both := testutil.CollectAndCount(collector)
	board.Post(state("web"))
	one := testutil.CollectAndCount(collector)
	const perVM = 6
	if both-one != perVM {
		t.Errorf("a VM has %d series, want %d", both-one, perVM)
	}
	if n := testutil.CollectAndCount(newCollector(board, false)); n != one-perVM {
		t.Errorf("%d series without those of VMs, want %d", n, one-perVM)
	}
	s := state("web")
	s.Rates.VMs[0].Buffering = flooded()
	board.Post(s)
	if n := testutil.CollectAndCount(collector); n != one+2+2 {
		t.Errorf("%d series of a VM whose packets are held, want %d, and two of the node", n, one+2)
	}
	board.Post(state("web", "web")) // two pods of one VM for a moment
	if n := testutil.CollectAndCount(collector); n != one {
		t.Errorf("%d series of a VM with two pods, want %d", n, one)
	}
}

// serveTLS serves the secured handlers and returns their address.
func serveTLS(t *testing.T, board *Board, settings *tls.Config) string {
	t.Helper()
	handlers, err := NewHandlers(board, clocktesting.NewFakePassiveClock(start()), time.Minute, newCollector(board, true), logr.Discard())
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(handlers.Secured())
	server.TLS = settings
	server.StartTLS()
	t.Cleanup(server.Close)
	return server.URL
}

func TestRatesNeedAClientCertificate(t *testing.T) {
	now := time.Now()
	authority, other := newAuthority(t, now), newAuthority(t, now)
	server := httptest.NewUnstartedServer(nil)
	server.StartTLS() // only for its certificate
	serving := server.TLS.Certificates[0]
	server.Close()
	board := &Board{}
	address := serveTLS(t, board, &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{serving},
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: authority.pool,
	})
	get := func(certificates ...tls.Certificate) (status int, body []byte, err error) {
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{
			InsecureSkipVerify: true, Certificates: certificates, //nolint:gosec // the server's side is not what is tested
		}}}
		defer client.CloseIdleConnections()
		response, err := client.Get(address + "/v1/rates")
		if err != nil {
			return 0, nil, err
		}
		defer response.Body.Close()
		body, err = io.ReadAll(response.Body)
		return response.StatusCode, body, err
	}
	if _, _, err := get(); err == nil {
		t.Error("served without a certificate")
	}
	if _, _, err := get(other.client); err == nil {
		t.Error("served to a certificate of another authority")
	}
	if status, _, err := get(authority.client); err != nil || status != http.StatusServiceUnavailable {
		t.Errorf("before the first round: %d, %v", status, err)
	}
	board.Post(state("web"))
	_, body, err := get(authority.client)
	if err != nil {
		t.Fatal(err)
	}
	var rates model.NodeRates
	if err := json.Unmarshal(body, &rates); err != nil || len(rates.VMs) != 1 || rates.Node != "node1" {
		t.Errorf("rates %+v, %v", rates, err)
	}
}

func TestRatesAreRefusedWithoutTLS(t *testing.T) {
	board := &Board{}
	board.Post(state("web"))
	h, err := NewHandlers(board, clocktesting.NewFakePassiveClock(start()), time.Minute, newCollector(board, true), logr.Discard())
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	h.Secured().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/rates", nil))
	if w.Code != http.StatusUnauthorized {
		t.Errorf("status %d", w.Code)
	}
}

func TestHealth(t *testing.T) {
	board := &Board{}
	clock := clocktesting.NewFakePassiveClock(start())
	h, err := NewHandlers(board, clock, time.Minute, newCollector(board, true), logr.Discard())
	if err != nil {
		t.Fatal(err)
	}
	want := func(code int) {
		t.Helper()
		for _, path := range []string{"/healthz", "/readyz"} {
			w := httptest.NewRecorder()
			h.Health().ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
			if w.Code != code {
				body, _ := io.ReadAll(w.Body)
				t.Errorf("%s: %d %s, want %d", path, w.Code, body, code)
			}
		}
	}
	want(http.StatusServiceUnavailable)
	board.Post(state())
	want(http.StatusOK)
	clock.SetTime(start().Add(2 * time.Minute))
	want(http.StatusServiceUnavailable)
}

func findings(cores int) *Findings {
	f := &Findings{State: state("web"), RatesAddress: "10.0.0.1:8443"}
	f.State.Rates.PowerMessage = "NoCounters: no energy counters"
	f.State.Energy.Refusal = energy.Refuse(energy.ReasonNoCounters, "no energy counters")
	for i := range cores {
		f.State.Topology.Cores = append(f.State.Topology.Cores, model.Core{
			CPUs: units.NewCPUSet(i, i+cores), Package: i * 2 / cores, NUMANode: i * 2 / cores, LLC: i / 8,
		})
	}
	for i := range 12 {
		f.Facts.Capabilities = append(f.Facts.Capabilities, host.Capability{Name: fmt.Sprint("C", i), Message: strings.Repeat("m", 300)})
	}
	return f
}

func TestReport(t *testing.T) {
	f := findings(16)
	status := Report(f, nil, start())
	if groups := status.Topology.CoreGroups; len(groups) != 2 || len(groups[0].Cores) != 8 || groups[1].Cores[7] != "15,31" {
		t.Errorf("topology %+v", status.Topology)
	}
	if status.Power.Source != v1alpha1.PowerNone || status.VMs != 1 {
		t.Errorf("power %+v, VMs %+v", status.Power, status.VMs)
	}
	if reportDue(&status, Report(f, &status, start().Add(time.Minute))) {
		t.Error("due without a change")
	}
	if !reportDue(&status, Report(f, &status, start().Add(reportInterval))) {
		t.Error("not due after the interval")
	}
	f.State.Rates.VMs = nil
	if !reportDue(&status, Report(f, &status, start().Add(time.Second))) {
		t.Error("not due after a change")
	}
}

func TestReportOfAFailedRound(t *testing.T) {
	f := findings(2)
	before := Report(f, nil, start())
	f.State.RoundError = errors.New(strings.Repeat("é", 400))
	after := Report(f, &before, start().Add(time.Minute))
	ready := meta.FindStatusCondition(after.Conditions, v1alpha1.ConditionReady)
	if ready.Status != metav1.ConditionFalse || len(ready.Message) > maxMessage || !ready.LastTransitionTime.Equal(&metav1.Time{Time: start().Add(time.Minute)}) {
		t.Errorf("Ready %+v", ready)
	}
	meter := meta.FindStatusCondition(after.Conditions, v1alpha1.ConditionMeterAvailable)
	if !meter.LastTransitionTime.Equal(&metav1.Time{Time: start()}) {
		t.Errorf("MeterAvailable changed its time without changing: %+v", meter)
	}
}

type testAuthority struct {
	pool   *x509.CertPool
	client tls.Certificate
}

func newAuthority(t *testing.T, now time.Time) testAuthority {
	t.Helper()
	authority, err := pki.NewAuthority(now)
	if err != nil {
		t.Fatal(err)
	}
	client, err := authority.IssueClient(now, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(authority.BundlePEM()) {
		t.Fatal("no certificate in the authority's bundle")
	}
	return testAuthority{pool: pool, client: *client}
}

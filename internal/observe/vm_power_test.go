package observe

import (
	"testing"
	"time"

	testingclock "k8s.io/utils/clock/testing"

	"github.com/joulevirt/joulevirt/internal/energy"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// VMs implements Meters.
func (server) VMs(energy.Server, string) energy.VMs { return nil }

// vmsByURL are what servers know of the VMs of node n.
type vmsByURL map[string]energy.VMs

func (v vmsByURL) Candidate(energy.Server, string) energy.Candidate { return energy.Candidate{} }

func (v vmsByURL) VMs(server energy.Server, node string) energy.VMs {
	if node != "n" {
		return nil
	}
	return v[server.URL]
}

func TestPowersOfVM(t *testing.T) {
	now := at(0).Time
	figure := func(watts units.Watts, age time.Duration) model.Power {
		return model.Power{Source: model.SourcePrometheus, Watts: watts, Time: now.Add(-age)}
	}
	powers := &Powers{Clock: testingclock.NewFakePassiveClock(now), Meters: vmsByURL{
		"http://a": {{UID: "1"}: figure(1, 0), {UID: "2"}: figure(2, 2*time.Minute)},
		"http://b": {{UID: "1"}: figure(10, 0), {UID: "2"}: figure(20, 2*time.Minute), {Namespace: "shop", Base: "virt-launcher-web-"}: figure(30, time.Minute)},
	}}
	source := func(url string, freshness time.Duration) energy.Setting {
		return energy.Setting{Type: model.SourcePrometheus, Freshness: freshness, Server: energy.Server{URL: url}}
	}
	settings := []energy.Setting{{Type: model.SourceRAPL}, source("http://a", time.Minute), source("http://b", 3*time.Minute), {Type: model.SourceModel}}
	for _, tc := range []struct {
		node, podUID, name string
		want               units.Watts
	}{
		{"n", "1", "any", 1}, {"n", "2", "any", 20}, {"n", "3", "web", 30}, {"n", "3", "db", 0}, {"m", "1", "any", 0},
	} {
		var got units.Watts
		if power := powers.OfVM(tc.node, settings, tc.podUID, "shop", tc.name); power != nil {
			got = power.Watts
		}
		if got != tc.want {
			t.Errorf("%+v: %v W", tc, got)
		}
	}
	if power := powers.OfVM("n", []energy.Setting{{Type: model.SourceRAPL}}, "1", "shop", "web"); power != nil {
		t.Errorf("%+v, from no Prometheus server", power)
	}
}

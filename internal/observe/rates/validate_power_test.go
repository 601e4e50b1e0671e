package rates

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// metered is a round with everything that an agent says of power.
func metered() *model.NodeRates {
	r := round(60)
	dram, watts := units.Watts(4), units.Watts(12)
	r.Power = &model.Power{
		Source: model.SourceRAPL, Scope: model.ScopePackage, Watts: 90, DRAMWatts: &dram,
		Time: start().Add(59 * time.Second), IntervalSeconds: 1,
	}
	r.PowerMessage = "words"
	r.Totals = &model.Totals{Since: start(), Seconds: 60, BusyCoreSeconds: 30, AwakeCoreSeconds: 40, WakeUps: 1e6, Joules: 5400, MeteredSeconds: 60, Bytes: 1e9}
	r.VMs[0].Watts = &watts
	return r
}

func TestValidatePower(t *testing.T) {
	power := func(change func(*model.Power)) func(*model.NodeRates) {
		return func(r *model.NodeRates) { change(r.Power) }
	}
	totals := func(change func(*model.Totals)) func(*model.NodeRates) {
		return func(r *model.NodeRates) { change(r.Totals) }
	}
	nan, inf := math.NaN(), math.Inf(1)
	for name, tc := range map[string]struct {
		change func(*model.NodeRates)
		want   string
	}{
		"good":                   {func(*model.NodeRates) {}, ""},
		"modelled":               {power(func(p *model.Power) { p.Source, p.StdErrWatts = model.SourceModel, 9 }), ""},
		"of the platform":        {power(func(p *model.Power) { p.Scope = model.ScopePlatform }), ""},
		"an instant":             {power(func(p *model.Power) { p.IntervalSeconds = 0 }), ""},
		"nothing drawn":          {power(func(p *model.Power) { p.Watts = 0 }), ""},
		"no power":               {func(r *model.NodeRates) { r.Power, r.Totals, r.VMs[0].Watts = nil, nil, nil }, ""},
		"old":                    {power(func(p *model.Power) { p.Time = start().Add(-time.Hour) }), ""},
		"no source":              {power(func(p *model.Power) { p.Source = "" }), "power.source"},
		"not an agent's source":  {power(func(p *model.Power) { p.Source = model.SourcePrometheus }), `power.source is "Prometheus"`},
		"a long source":          {power(func(p *model.Power) { p.Source = model.PowerSource(strings.Repeat("x", 9999)) }), "power.source"},
		"no scope":               {power(func(p *model.Power) { p.Scope = "" }), "power.scope"},
		"a newer agent's scope":  {power(func(p *model.Power) { p.Scope = "Rack" }), ""},
		"a newer agent's source": {power(func(p *model.Power) { p.Source = "Socket" }), ""},
		"a scope that is none":   {power(func(p *model.Power) { p.Scope = "two words" }), `power.scope is "two words"`},
		"negative":               {power(func(p *model.Power) { p.Watts = -1 }), "power is -1 W"},
		"not a number":           {power(func(p *model.Power) { p.Watts = units.Watts(nan) }), "NaN"},
		"infinite":               {power(func(p *model.Power) { p.Watts = units.Watts(inf) }), "+Inf"},
		"a power station":        {power(func(p *model.Power) { p.Watts = 1e6 }), "1e+06"},
		"error not a number":     {power(func(p *model.Power) { p.StdErrWatts = units.Watts(nan) }), "NaN"},
		"memory negative":        {power(func(p *model.Power) { *p.DRAMWatts = -3 }), "memory is -3 W"},
		"memory not a number":    {power(func(p *model.Power) { *p.DRAMWatts = units.Watts(nan) }), "memory"},
		"no time":                {power(func(p *model.Power) { p.Time = time.Time{} }), "power.time is missing"},
		"of the future":          {power(func(p *model.Power) { p.Time = start().Add(time.Hour) }), "after the round"},
		"interval negative":      {power(func(p *model.Power) { p.IntervalSeconds = -1 }), "power.intervalSeconds"},
		"interval not a number":  {power(func(p *model.Power) { p.IntervalSeconds = nan }), "power.intervalSeconds"},
		"interval of two hours":  {power(func(p *model.Power) { p.IntervalSeconds = 7200 }), "power.intervalSeconds"},
		"a long message":         {func(r *model.NodeRates) { r.PowerMessage = strings.Repeat("x", 1025) }, "powerMessage has 1025"},
		"totals of no time":      {totals(func(t *model.Totals) { t.Since = time.Time{} }), "totals.since"},
		"seconds negative":       {totals(func(t *model.Totals) { t.Seconds = -1 }), "totals are"},
		"busy infinite":          {totals(func(t *model.Totals) { t.BusyCoreSeconds = inf }), "totals are"},
		"awake not a number":     {totals(func(t *model.Totals) { t.AwakeCoreSeconds = nan }), "totals are"},
		"wake-ups negative":      {totals(func(t *model.Totals) { t.WakeUps = -1 }), "totals are"},
		"joules negative":        {totals(func(t *model.Totals) { t.Joules = -1 }), "totals are"},
		"metered not a number":   {totals(func(t *model.Totals) { t.MeteredSeconds = nan }), "totals are"},
		"bytes negative":         {totals(func(t *model.Totals) { t.Bytes = -1 }), "totals are"},
		"bytes not a number":     {totals(func(t *model.Totals) { t.Bytes = nan }), "totals are"},
		"agent negative":         {totals(func(t *model.Totals) { t.AgentSeconds = -1 }), "totals are"},
		"a VM's watts negative":  {func(r *model.NodeRates) { *r.VMs[0].Watts = -1 }, "draws -1 W"},
		"a VM's watts not known": {func(r *model.NodeRates) { *r.VMs[0].Watts = units.Watts(nan) }, "draws NaN W"},
	} {
		r := metered()
		tc.change(r)
		checkValidation(t, name, r, tc.want)
	}
}

// What an agent sends arrives as it was.
func TestDecodePower(t *testing.T) {
	checkArrives(t, metered())
}

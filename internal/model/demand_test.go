package model_test

import (
	"math"
	"testing"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// Waiting counts where CPUs have no time left, and not where they idle.
func TestLack(t *testing.T) {
	const run, wait units.Cores = 0.3, 0.5
	cpus := func(use ...units.Cores) (all []model.CPURates) {
		for cpu, busy := range use {
			all = append(all, model.CPURates{CPU: cpu, BusyCores: busy})
		}
		return all
	}
	for name, tc := range map[string]struct {
		cpus []model.CPURates
		set  units.CPUSet
		want units.Cores
	}{
		"CPUs idle":                       {cpus(0.5, 0.9), units.NewCPUSet(0, 1), run},
		"up to nine tenths":               {cpus(0.9), units.NewCPUSet(0), run},
		"half way":                        {cpus(0.94), units.NewCPUSet(0), run + wait/2},
		"full":                            {cpus(0.98), units.NewCPUSet(0), run + wait},
		"one has room":                    {cpus(1, 0.5), units.NewCPUSet(0, 1), run},
		"one that is out of reach":        {cpus(1, 0.5), units.NewCPUSet(0), run + wait},
		"a hypervisor took what was idle": {[]model.CPURates{{BusyCores: 0.4, StealCores: 0.6}}, units.NewCPUSet(0), run + wait},
		"nothing known":                   {nil, units.NewCPUSet(0, 1), run + wait},
		"of none of them":                 {cpus(0.1), units.NewCPUSet(3), run + wait},
		"of one":                          {cpus(0.1), units.NewCPUSet(0, 3), run},
	} {
		lack, threads := model.NewLack(tc.cpus), model.ThreadRates{RunCores: run, WaitCores: wait}
		for range 2 { // what was asked for last is remembered
			if got := lack.Demand(threads, tc.set); math.Abs(float64(got-tc.want)) > 1e-9 {
				t.Errorf("%s: %v, want %v", name, got, tc.want)
			}
		}
	}
}

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/planner"
	"github.com/joulevirt/joulevirt/internal/planner/affinity/affinitytest"
)

// measurePotential times how long it takes to work out what levers could save on a node of
// 128 CPUs with 200 VMs.
func measurePotential(_ context.Context, env environment) ([]figure, error) {
	const times, median = 41, 0.5
	s := affinitytest.Large(rand.New(rand.NewPCG(benchSeed, 0)))
	node := model.Node{
		Name: "n", Reported: true, Topology: s.Node.Topology, Costs: s.Node.Costs,
		Policy: model.Policy{MaxCoreUtilization: s.Node.MaxCoreUtilization, Sharing: s.Node.Sharing},
		Rates:  &model.NodeRates{Node: "n", CPUs: s.Node.CPUs},
	}
	for i := range s.VMs {
		vm := &s.VMs[i]
		rates := *vm.Rates
		rates.PodUID = strconv.Itoa(i)
		node.VMs = append(node.VMs, model.VM{PodUID: rates.PodUID, Namespace: vm.Namespace, Affinity: vm.Preference, NamespaceSelected: true})
		node.Rates.VMs = append(node.Rates.VMs, rates)
	}
	var took []time.Duration
	var potential []model.Potential
	for range times {
		start := time.Now()
		potential = planner.Potential(node, start)
		took = append(took, time.Since(start))
	}
	if len(potential) == 0 || potential[0].VMs < len(s.VMs)/2 {
		return nil, fmt.Errorf("levers act on %+v: nothing was to be measured by it", potential)
	}
	slices.Sort(took)
	ms := float64(percentile(took, median)) / float64(time.Millisecond)
	fmt.Fprintf(env.progress, "bench: what could be saved on %d CPUs with %d VMs takes %.1f ms: %+v\n", len(s.Node.CPUs), len(s.VMs), ms, potential)
	return []figure{{"potential_plan_128cpu_200vm_ms", ms, "ms"}}, nil
}

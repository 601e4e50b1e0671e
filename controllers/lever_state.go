package controllers

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/observe/leverstate"
)

// leverState is what became of a lever, for one VM or for a group.
type leverState struct {
	State           v1alpha1.LeverState
	Reason, Message string
}

// indexedPlan is a NodePlan that is asked about many of its VMs.
type indexedPlan = leverstate.Plan

// listPlans reads the cache's own plans, by node.
func listPlans(ctx context.Context, reader client.Reader) (map[string]*indexedPlan, error) {
	var list v1alpha1.NodePlanList
	if err := reader.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list NodePlans: %w", err)
	}
	plans := make(map[string]*indexedPlan, len(list.Items))
	for i := range list.Items {
		plans[list.Items[i].Name] = &indexedPlan{NodePlan: &list.Items[i]}
	}
	return plans, nil
}

// leverStateOf returns what tells the state of a lever for the VM of a launcher pod, or nil
// for a lever that no plan of a node holds.
func leverStateOf(lever v1alpha1.Lever) func(*indexedPlan, types.UID) leverState {
	of := leverstate.Of(lever)
	if of == nil {
		return nil
	}
	return func(plan *indexedPlan, podUID types.UID) leverState {
		state := leverState(of(plan, podUID))
		state.Message = cut(state.Message, maxLeverMessage)
		return state
	}
}

// maxLeverMessage is the API's bound of what is said of a lever and a VM.
const maxLeverMessage = 256

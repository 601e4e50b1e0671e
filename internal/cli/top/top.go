// Package top shows what nodes, VMs, groups and policies use and what acts on them. Each view
// is a pure function of what was read.
package top

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/cli/show"
	"github.com/joulevirt/joulevirt/internal/observe/leverstate"
)

// Power is a figure of power with where it comes from.
type Power struct {
	// Watts that are drawn. Nil: not known.
	Watts *float64 `json:"watts,omitempty"`
	// Source of the figure, a word of NodeReport.status.power.
	Source string `json:"source,omitempty"`
	// Basis is Measured or Modelled. Empty: there is no figure.
	Basis v1alpha1.Basis `json:"basis,omitempty"`
	// Scope is the part of the node that it covers. Empty: not known.
	Scope string `json:"scope,omitempty"`
	// AgeSeconds since the figure was true. Nil: not known.
	AgeSeconds *float64 `json:"ageSeconds,omitempty"`
}

// basisOf says what a source of power does.
func basisOf(source string) v1alpha1.Basis {
	switch v1alpha1.PowerSource(source) {
	case v1alpha1.PowerPrometheus, v1alpha1.PowerRAPL:
		return v1alpha1.BasisMeasured
	case v1alpha1.PowerModel:
		return v1alpha1.BasisModelled
	default:
		return ""
	}
}

// LeverUse is what a lever does for a VM.
type LeverUse struct {
	Lever  v1alpha1.Lever      `json:"lever"`
	State  v1alpha1.LeverState `json:"state"`
	Reason string              `json:"reason"`
}

// levers tells what each lever does for the VM of a launcher pod.
func levers(plan *leverstate.Plan, pod types.UID) []LeverUse {
	var uses []LeverUse
	for _, lever := range leverstate.Levers() {
		state := leverstate.Of(lever)(plan, pod)
		uses = append(uses, LeverUse{Lever: lever, State: state.State, Reason: state.Reason})
	}
	return uses
}

// named joins the levers that are in a state.
func named(uses []LeverUse, states ...v1alpha1.LeverState) string {
	var names []string
	for _, use := range uses {
		if slices.Contains(states, use.State) {
			names = append(names, string(use.Lever))
		}
	}
	return show.Or(strings.Join(names, ","))
}

// perGB is the energy for a gigabyte (1e9 bytes), of watts and bytes per second. Nil: one is
// not known, or there is no traffic to speak of.
func perGB(watts, bytesPerSecond *float64) *float64 {
	const least = 1000 // bytes per second: below, the quotient says nothing
	if watts == nil || bytesPerSecond == nil || *bytesPerSecond < least {
		return nil
	}
	v := *watts / *bytesPerSecond * 1e9
	return &v
}

// megabits writes bytes per second as Mbit/s.
func megabits(bytesPerSecond *float64) string {
	if bytesPerSecond == nil {
		return show.None
	}
	v := *bytesPerSecond * 8 / 1e6
	return show.Number(&v)
}

// Age writes how old a figure is. Nil is none.
func Age(seconds *float64) string {
	if seconds == nil {
		return show.None
	}
	return fmt.Sprintf("%.0fs", *seconds)
}

// condition is the status of a condition, or nothing.
func condition(conditions []metav1.Condition, kind string) string {
	if c := meta.FindStatusCondition(conditions, kind); c != nil {
		return string(c.Status)
	}
	return ""
}

// counted writes levers with the number of their VMs.
func counted[N int | int32](count map[v1alpha1.Lever]N) string {
	var words []string
	for _, lever := range append([]v1alpha1.Lever{v1alpha1.LeverTrafficShare}, leverstate.Levers()...) {
		if n := count[lever]; n > 0 {
			words = append(words, fmt.Sprintf("%s:%d", lever, n))
		}
	}
	return strings.Join(words, ",")
}

// names of all items of a list.
func names[T any](items []T, name func(*T) string) []string {
	var all []string
	for i := range items {
		all = append(all, name(&items[i]))
	}
	return all
}

package agent

import (
	"fmt"
	"slices"
	"strings"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/agent/actuate/affinity"
	"github.com/joulevirt/joulevirt/internal/model"
)

// addTrials reads the schedules of a plan. A lever whose trial makes no sense stays off:
// whether it saves or hurts would never show.
func (o *orders) addTrials(spec *v1alpha1.NodePlanSpec) {
	times := map[v1alpha1.Lever]int{}
	for i := range spec.Trials {
		times[spec.Trials[i].Lever]++
	}
	for i := range spec.Trials {
		trial := &spec.Trials[i]
		schedule, err := scheduleOf(trial)
		if err == nil && times[trial.Lever] > 1 {
			err = fmt.Errorf("lever names %s twice: name each once", trial.Lever)
		}
		if err != nil {
			o.refuseTrial(spec, trial.Lever, fmt.Sprintf("spec.trials[%d].%v: the lever stays off", i, err))
			continue
		}
		o.schedules = append(o.schedules, schedule)
	}
	slices.SortFunc(o.schedules, func(x, y model.Schedule) int { return strings.Compare(string(x.Lever), string(y.Lever)) })
}

// refuseTrial keeps a lever off for all VMs. What is wrong with a VM's own part of the plan
// is still told of it.
func (o *orders) refuseTrial(spec *v1alpha1.NodePlanSpec, lever v1alpha1.Lever, why string) {
	if o.badTrial == "" {
		o.badTrial = why
	}
	o.switchOff(lever)
	// Floods are no part of a trial that makes sense, of which there is none.
	if lever == v1alpha1.LeverBuffering {
		clear(o.buffering)
	}
	for i := range spec.VMs {
		key := refusal{string(spec.VMs[i].PodUID), lever}
		if _, refused := o.refused[key]; !refused {
			o.refused[key] = why
		}
	}
}

// switchOff leaves nothing of what a lever saves by in the orders. That VMs stay in them has
// the actuators remember who contests what the lever does. What protects is not on trial: the
// ceiling that the owner asked for, and what buffering does during floods, with which the
// program stays on the tap, which to take off and put on again would lose packets.
func (o *orders) switchOff(lever v1alpha1.Lever) {
	switch lever {
	case v1alpha1.LeverAffinity:
		for uid := range o.pins {
			o.pins[uid] = affinity.Pins{}
		}
	case v1alpha1.LeverSlice:
		for uid := range o.slices {
			o.slices[uid] = 0
		}
	case v1alpha1.LeverShaping:
		for uid, shaping := range o.shaping {
			o.shaping[uid] = model.Shaping{Ceiling: shaping.Ceiling}
		}
	case v1alpha1.LeverBuffering:
		for uid, b := range o.buffering {
			b.Window = 0
			o.buffering[uid] = b
		}
	}
}

// scheduleOf reads a trial. The error begins with the field that is wrong.
func scheduleOf(t *v1alpha1.TrialSchedule) (model.Schedule, error) {
	s := model.Schedule{
		Lever: model.Lever(t.Lever), Seed: t.Seed, Start: t.Start.Time,
		Block: t.BlockLength.Duration, WashOut: t.WashOut.Duration, Otherwise: t.Otherwise,
	}
	switch {
	case !s.Lever.ActsOnNodes():
		return s, fmt.Errorf("lever %.16q: must be Affinity, Slice, Buffering or Shaping", t.Lever)
	case s.Start.IsZero():
		return s, fmt.Errorf("start is missing")
	case s.Block < model.LeastBlock || s.Block > model.MostBlock:
		return s, fmt.Errorf("blockLength %v: must be from %v to %v", s.Block, model.LeastBlock, model.MostBlock)
	case s.WashOut < 0 || s.WashOut >= s.Block:
		return s, fmt.Errorf("washOut %v: must be from 0s to below blockLength, %v", s.WashOut, s.Block)
	case t.Blocks < 1 || t.Blocks > model.MostBlocks:
		return s, fmt.Errorf("blocks %d: must be from 1 to %d", t.Blocks, model.MostBlocks)
	}
	s.On = slices.Repeat([]bool{true}, int(t.Blocks))
	for i, off := range t.OffBlocks {
		switch {
		case off < 0 || off >= t.Blocks:
			return s, fmt.Errorf("offBlocks[%d] %d: must be from 0 to below blocks, %d", i, off, t.Blocks)
		case !s.On[off]:
			return s, fmt.Errorf("offBlocks[%d] names block %d twice: name each once", i, off)
		}
		s.On[off] = false
	}
	if !s.IsValid() {
		return s, fmt.Errorf("blocks cannot be followed by this version of the agent")
	}
	return s, nil
}

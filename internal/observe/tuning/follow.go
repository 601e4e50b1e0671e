package tuning

import (
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/planner/buffering"
)

const (
	// silentRounds is how many rounds in a row without a word of the lever mean that it
	// holds nothing: an agent that starts knows of its programs a little later.
	silentRounds = 3
	// certainDrops are needed for a sign: fewer may be of anything.
	certainDrops = 10
	// settle is how old the oldest of the drops may be that a round tells of: agents look
	// at the queues each 15 s, and tell what was lost between the two looks before.
	settle = 30 * time.Second
	// fresh is how old a trip may be that is of the window in force: agents tell trips for
	// days, managers that start hear of old ones, and pulls may fail.
	fresh = time.Minute
)

// follow is what is known of one VM.
type follow struct {
	// window in force, once started, and since when; since is zero when it was there
	// before.
	started bool
	window  time.Duration
	since   time.Time
	silent  int
	// flooded is true when the last round was in a flood.
	flooded bool
	// settled is from when on rounds tell of the window in force alone, and of no flood.
	settled time.Time
	// tripped is when the last trip was of the agent's guard, by the node's clock.
	tripped time.Time
	trials  trials
	// hurts of this VM alone.
	hurts      hurts
	throughput throughput
}

// found is what a round brought.
type found struct {
	news bool
	// hurt, and whether it is remembered for the profile or for the VM alone.
	hurt      *model.Hurt
	ofProfile bool
	// suspected is a window that a VM's throughput fell with and came back without. Nil:
	// none.
	suspected *suspicion
}

// hear takes in a round.
func (f *follow) hear(now time.Time, r round, vm VM, known hurts) found {
	f.hurts = f.hurts.at(now)
	told := f.follows(now, &r)
	if !told || r.flooded || now.Before(f.settled) || f.hurts.bar(now, r.window) || known.bar(now, r.window) {
		return found{}
	}
	// The first sign of loss counts, however short packets were held in the round.
	if r.held && r.window > 0 && f.loses(&r.sums, vm) && !f.trials.losesToo(r.window, r.lostShare(), true) {
		return hurtBy(now, r.window, signDrops, f.toBlame(r.window, vm))
	}
	if r.packets == 0 || r.window > 0 && !r.active || r.window == 0 && !(r.fastest >= float64(vm.OnPackets)) {
		return found{}
	}
	trial, enough := f.trials.add(now, r)
	if is := f.throughput.add(now, r, buffering.LeastThroughput(vm.KeepThroughput)); is.verdict != nothing {
		return suspect(now, is, vm)
	}
	if r.window > 0 && f.loses(&trial.sums, vm) && !f.trials.losesToo(r.window, trial.lostShare(), false) {
		return hurtBy(now, r.window, signDrops, f.toBlame(r.window, vm))
	}
	return found{news: enough}
}

// trip takes in that the node's guard let go of the VM's packets, which tells no rate any
// more: the agent holds none from the round on in which packets were lost.
func (f *follow) trip(now time.Time, t *model.Trip, told time.Time, vm VM) found {
	if !t.Time.After(f.tripped) {
		return found{}
	}
	f.tripped = t.Time
	if age := told.Sub(t.Time); f.window == 0 || f.flooded || age < 0 || age > fresh {
		return found{}
	}
	return hurtBy(now, f.window, signTrip, f.toBlame(f.window, vm))
}

// follows notes the round's window, and whether it is of a flood. It is false for a round
// that does not tell the window.
func (f *follow) follows(now time.Time, r *round) bool {
	if !r.told {
		f.silent++
		if f.window > 0 && f.silent < silentRounds {
			return false
		}
	} else {
		f.silent = 0
	}
	if f.flooded && !r.flooded {
		f.settled = now.Add(settle)
	}
	f.flooded = r.flooded
	if f.started && r.window == f.window {
		return true
	}
	if f.started {
		f.since, f.settled = now, now.Add(settle)
	}
	f.started, f.window = true, r.window
	f.throughput.change(now, r.window)
	return true
}

// loses tells whether more packets were lost than the VM may lose.
func (f *follow) loses(s *sums, vm VM) bool {
	return s.lost >= certainDrops && s.lostShare() > buffering.MostDrops(vm.MaxDrops)
}

// toBlame tells whether it was a window that cost packets: nothing else disturbs the VM, and
// it was seen that a shorter one, or none, does not.
func (f *follow) toBlame(window time.Duration, vm VM) bool {
	return !vm.Disturbed && f.trials.seenBelow(window)
}

// suspect keeps a VM from a window that its throughput fell with.
func suspect(now time.Time, is judgement, vm VM) found {
	of := hurtBy(now, is.window, signThroughput, false)
	if is.verdict == toBlame && !vm.Disturbed {
		of.suspected = &suspicion{window: is.window, since: is.since, at: now}
	}
	return of
}

func hurtBy(now time.Time, window time.Duration, sign string, ofProfile bool) found {
	remembered := remembered
	if !ofProfile {
		remembered = doubted
	}
	return found{news: true, ofProfile: ofProfile, hurt: &model.Hurt{Window: window, Until: now.Add(remembered), Why: sign}}
}

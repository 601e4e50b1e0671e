package trials

import (
	"fmt"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/verify"
)

// Trial runs a whole trial on as many nodes as there are truths. Equal seeds make equal
// trials.
func (w *World) Trial(plan verify.Plan, seed uint64, truths ...Truth) (*verify.Trial, error) {
	trial := &verify.Trial{Plan: plan, Units: len(truths), Over: plan.Pairs}
	for i, truth := range truths {
		name := fmt.Sprintf("node-%d", i)
		schedule, err := verify.Draw(verify.Timing{
			Lever: v1alpha1.LeverAffinity, Seed: verify.Seed(name, v1alpha1.LeverAffinity, int(seed)),
			Start: time.Unix(0, 0), Block: plan.Block, WashOut: verify.Settling(v1alpha1.LeverAffinity),
		}, plan.Pairs)
		if err != nil {
			return nil, err
		}
		trial.Outcomes = append(trial.Outcomes, w.Node(name, &schedule, truth, seed<<16+uint64(i))...)
	}
	return trial, nil
}

// Tally counts verdicts by what the truth is.
type Tally struct {
	// Trials of which the interval Covered the effect, and the estimate was Above it.
	Trials, Covered, Above int
	// Decisions of the trials.
	Adopted, Rejected, Undecided int
	// Pairs of blocks on each node, of all trials.
	Pairs int
}

// Add counts a verdict on a lever with an effect.
func (t *Tally) Add(v verify.Verdict, effect float64) {
	t.Trials++
	t.Pairs += v.Pairs
	if v.Low <= effect && effect <= v.High {
		t.Covered++
	}
	if v.Log > effect {
		t.Above++
	}
	switch v.Decision {
	case verify.Adopted:
		t.Adopted++
	case verify.Rejected:
		t.Rejected++
	case verify.Undecided:
		t.Undecided++
	}
}

// CoveredShare is that of trials whose interval covered the effect.
func (t *Tally) CoveredShare() float64 { return float64(t.Covered) / float64(t.Trials) }

// String is the tally in one line.
func (t *Tally) String() string {
	percent := func(n int) float64 { return 100 * float64(n) / float64(t.Trials) }
	return fmt.Sprintf("covered %.1f %%, above %.1f %%, adopted %.1f %%, rejected %.1f %%, undecided %.1f %%, %.1f pairs",
		percent(t.Covered), percent(t.Above), percent(t.Adopted), percent(t.Rejected), percent(t.Undecided), float64(t.Pairs)/float64(t.Trials))
}

package verify

import "time"

// Decision about a lever.
type Decision string

// The decisions of a trial.
const (
	// Adopted: the lever saves energy and the work is not inferior.
	Adopted Decision = "Adopted"
	// Rejected: it does not, or it hurts. It is not tried again before the cool-down.
	Rejected Decision = "Rejected"
	// Undecided: more blocks are needed, or would have been.
	Undecided Decision = "Undecided"
)

// Why a decision was made, in a word.
type Why string

// The reasons for decisions.
const (
	// WhySaves: joules for the same work fell.
	WhySaves Why = "Saves"
	// WhyCosts: they rose.
	WhyCosts Why = "CostsEnergy"
	// WhyTooLittle: they fell by less than is worth it, if at all.
	WhyTooLittle Why = "SavesTooLittle"
	// WhyWorkLess: less work was done.
	WhyWorkLess Why = "WorkInferior"
	// WhyGuarded: guards ended the lever too often.
	WhyGuarded Why = "GuardsTripped"
	// WhyTooFew: too few pairs count for a first look.
	WhyTooFew Why = "TooFewPairs"
	// WhyUnclear: the interval is too wide yet.
	WhyUnclear Why = "NotYetClear"
	// WhyWorkUnclear: it saves, but the interval of the work is too wide yet.
	WhyWorkUnclear Why = "WorkNotYetClear"
	// WhyImplausible: the effect is larger than any lever's.
	WhyImplausible Why = "Implausible"
	// WhyMissing: blocks with the lever on are missing more often than without.
	WhyMissing Why = "OnBlocksMissing"
	// WhyInvalidPlan: the plan cannot be followed.
	WhyInvalidPlan Why = "InvalidPlan"
)

// Verdict on a lever by one trial.
type Verdict struct {
	Decision Decision
	Why      Why
	// Message says the same in words, with figures.
	Message string
	// Effect over the trial's units as it was seen, and that of each unit, for Pool. A
	// trial that stopped early stopped because it saw much: Log is the estimate that is as
	// often too large as too small, and Low and High cover the truth with the plan's
	// confidence although the trial stopped where it did. Log is 0 and Low and High are
	// infinite while nothing is known.
	Effect         Effect
	Units          []UnitEffect
	Log, Low, High float64
	// Work is the effect on the logarithm of the work.
	Work Effect
	// Pairs of blocks on each unit at the look that judged, and Final: there is none after
	// it.
	Pairs int
	Final bool
	// CoolDown for which a rejected lever is not tried again.
	CoolDown time.Duration
	// Needed is how much longer an undecided trial would take, by the spread that was
	// seen: it may be more than the plan has left. 0: not known.
	Needed time.Duration
}

// UnitEffect is a lever's effect on one unit.
type UnitEffect struct {
	Unit string
	Effect
}

const firstCoolDown = 24 * time.Hour

// CoolDown for which a lever is not tried again that was rejected as often before: it
// doubles each time, up to the age from which what was seen proves nothing.
func CoolDown(rejections int) time.Duration {
	wait := firstCoolDown
	for range min(max(rejections, 0), 16) {
		wait = min(2*wait, longestProof)
	}
	return wait
}

package verify

import "time"

// longestProof is the age from which what was seen of a lever proves nothing any more.
const longestProof = 30 * 24 * time.Hour

// Again says why a lever is to be tried anew, in a word.
type Again string

// The reasons for another trial.
const (
	// AgainClass: the units are no longer of the class that the verdict is on.
	AgainClass Again = "ClassChanged"
	// AgainAge: what was seen is too old.
	AgainAge Again = "TooOld"
	// AgainHeldBack: the hold-back shows another effect.
	AgainHeldBack Again = "HoldBackDiffers"
	// AgainCooled: a rejected lever's cool-down is over.
	AgainCooled Again = "CoolDownOver"
)

// Standing is a verdict that a lever stands under.
type Standing struct {
	Decision Decision
	// Class that it is on, and Effect that it found.
	Class  Class
	Effect Effect
	// Seen is when its last block ended, of the trial or of a hold-back since.
	Seen time.Time
	// CoolDown of a rejection.
	CoolDown time.Duration
}

// Retrial says whether a lever that stands under a verdict is to be tried anew on units of
// a class, by what a hold-back has shown since, and why. A lever that no trial adopted or
// rejected is not tried anew: its trial goes on.
func Retrial(s *Standing, class Class, held Effect, now time.Time) (why Again, again bool) {
	if s.Decision != Adopted && s.Decision != Rejected {
		return "", false
	}
	age := now.Sub(s.Seen)
	switch {
	case s.Class != class:
		return AgainClass, true
	case s.Decision == Rejected && age >= min(s.CoolDown, longestProof):
		return AgainCooled, true
	case s.Decision == Rejected:
		return "", false
	case KnownPool(s.Effect, 0).Contradicts(held):
		return AgainHeldBack, true
	case age >= longestProof:
		return AgainAge, true
	}
	return "", false
}

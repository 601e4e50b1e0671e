package v1alpha1

// Reasons of Events of an EnergyPolicy about what experiments showed, beside LeverAdopted and
// TrialUndecided.
const (
	// ReasonTrialStarted: a lever is to be switched on and off on some nodes or groups, to
	// see what it saves.
	ReasonTrialStarted = "TrialStarted"
	// ReasonTrialEnded: a trial was ended for a cause that is not the lever's.
	ReasonTrialEnded = "TrialEnded"
	// ReasonLeverRetried: a verdict no longer stands, and the lever is tried anew.
	ReasonLeverRetried = "LeverRetried"
)

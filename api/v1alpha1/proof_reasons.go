package v1alpha1

// Reasons of Events of an EnergyPolicy about what experiments showed, beside LeverAdopted and
// TrialUndecided.
const (
	// ReasonTrialStarted: a lever is to be switched on and off on some nodes or groups, to
	// see what it saves.
	ReasonTrialStarted = "TrialStarted"
	// ReasonLeverRetried: a verdict no longer stands, and the lever is tried anew.
	ReasonLeverRetried = "LeverRetried"
)

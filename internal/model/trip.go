package model

import "fmt"

// Evidence says in words what was seen.
func (t *Trip) Evidence() string {
	switch t.Symptom {
	case SymptomRunDelay:
		return fmt.Sprintf("a bound thread waited for %.0f %% of a CPU (limit %.0f %%) while a CPU idled that its container may use", t.Value, t.Limit)
	case SymptomQueueDrops:
		return fmt.Sprintf("the queue that holds packets dropped %.0f of a million (limit %.0f)", t.Value, t.Limit)
	case SymptomRingOverrun:
		return fmt.Sprintf("of a million packets released in bunches %.0f found no room in the VM's card (limit %.0f)", t.Value, t.Limit)
	case SymptomBacklog:
		return fmt.Sprintf("%.0f bytes waited in front of the taps (limit %.0f)", t.Value, t.Limit)
	default:
		return fmt.Sprintf("%s of %.4g (limit %.4g)", t.Symptom, t.Value, t.Limit)
	}
}

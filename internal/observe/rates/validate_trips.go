package rates

import (
	"fmt"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
)

const (
	// maxTrips is more than agents tell.
	maxTrips = 1024
	// maxCoolDown is far longer than a guard keeps a lever undone.
	maxCoolDown = 30 * 24 * time.Hour
)

// validateTrips lets levers and symptoms pass that a newer agent may have.
func validateTrips(r *model.NodeRates) error {
	if len(r.Trips) > maxTrips {
		return fmt.Errorf("%w: %d trips", ErrInvalid, len(r.Trips))
	}
	for i := range r.Trips {
		t := &r.Trips[i]
		switch {
		case len(t.PodUID) > maxText || len(t.Namespace) > maxText || len(t.Name) > maxText:
			return fmt.Errorf("%w: trips[%d]: podUID, name or namespace is too long", ErrInvalid, i)
		case !model.IsWord(string(t.Lever)) || !model.IsWord(string(t.Symptom)):
			return fmt.Errorf("%w: trips[%d]: lever %.64q and symptom %.64q must be words", ErrInvalid, i, t.Lever, t.Symptom)
		case !within(t.Value, maxTotal) || !within(t.Limit, maxTotal):
			return fmt.Errorf("%w: trips[%d]: value %v, limit %v", ErrInvalid, i, t.Value, t.Limit)
		case t.Time.IsZero() || t.Time.Sub(r.Time) > maxAhead:
			return fmt.Errorf("%w: trips[%d].time %v is missing or after the round, %v", ErrInvalid, i, t.Time, r.Time)
		case t.Until.Before(t.Time) || t.Until.Sub(t.Time) > maxCoolDown:
			return fmt.Errorf("%w: trips[%d].until is %v, of a trip at %v", ErrInvalid, i, t.Until, t.Time)
		case t.Count < 1:
			return fmt.Errorf("%w: trips[%d].count is %d", ErrInvalid, i, t.Count)
		}
	}
	return nil
}

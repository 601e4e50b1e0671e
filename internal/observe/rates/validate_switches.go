package rates

import (
	"fmt"

	"github.com/joulevirt/joulevirt/internal/model"
)

// maxSwitches is how many levers an agent may have on a schedule: more than there are, for
// newer agents.
const maxSwitches = 16

// validateSwitches refuses what no agent can have done. Levers that only a newer agent has
// pass.
func validateSwitches(r *model.NodeRates) error {
	if len(r.Switches) > maxSwitches {
		return fmt.Errorf("%w: %d switches", ErrInvalid, len(r.Switches))
	}
	levers := map[model.Lever]bool{}
	for i := range r.Switches {
		s := &r.Switches[i]
		switch {
		case !model.IsWord(string(s.Lever)):
			return fmt.Errorf("%w: switches[%d].lever is %.64q, which is no word, such as %q", ErrInvalid, i, s.Lever, model.LeverAffinity)
		case levers[s.Lever]:
			return fmt.Errorf("%w: switches name lever %s twice", ErrInvalid, s.Lever)
		case s.Start.IsZero() || s.Since.IsZero():
			return fmt.Errorf("%w: switches[%d].start or since is missing", ErrInvalid, i)
		case s.Block < -1 || s.Block >= model.MostBlocks:
			return fmt.Errorf("%w: switches[%d].block is %d, want from -1 to below %d", ErrInvalid, i, s.Block, model.MostBlocks)
		case s.Since.Sub(r.Time) > maxAhead:
			return fmt.Errorf("%w: switches[%d].since %v is after the round, %v", ErrInvalid, i, s.Since, r.Time)
		}
		levers[s.Lever] = true
	}
	return nil
}

package agent

import "github.com/joulevirt/joulevirt/internal/model"

// tellOwn puts what the agent itself used into the totals: it counts against what levers
// save.
func (a *Agent) tellOwn(rates *model.NodeRates) {
	if a.opts.CPUTime != nil {
		rates.Totals.AgentSeconds = a.opts.CPUTime().Seconds()
	}
}

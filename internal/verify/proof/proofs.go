package proof

import (
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/verify"
	"github.com/joulevirt/joulevirt/internal/verify/evidence"
	"github.com/joulevirt/joulevirt/internal/verify/ledger"
)

// Proofs of one policy. Make them with New or Load. They are not safe for concurrent use.
type Proofs struct{}

// New returns proofs of a policy that nothing is known of.
func New() *Proofs { return &Proofs{} }

// Load returns proofs from what was stored. The error says what is wrong with it.
func Load([]byte) (*Proofs, error) { return New(), nil }

// Save returns the proofs as bytes to be stored, the same for the same content.
func (p *Proofs) Save() []byte { return nil }

// Rebase takes in what another manager stored meanwhile: outcomes of the same trials are
// put together, and of verdicts the later stands. Nothing changes when the stored bytes
// are wrong.
func (p *Proofs) Rebase([]byte) error { return nil }

// Take takes in a closed block. What comes twice, late, or of a schedule that is not known
// changes nothing.
func (p *Proofs) Take(Closed) {}

// Round decides: it judges trials, ends and starts them, and draws what is held back, for
// the units that the policy has now. Equal inputs decide equally. Call it each 15 to 60 s
// with all units of the policy, those that are not ready too: a unit that is missing has
// left the policy.
func (p *Proofs) Round([]Unit, Settings, time.Time) []News { return nil }

// Of tells how each lever stands on a unit as of the last round, in the order of levers'
// names, whether it has something to do there now or not. None: no round had the unit, and
// nothing new should be done there.
func (p *Proofs) Of(string) []model.Proof { return nil }

// Bookings returns blocks for the ledger whose effect is known by now, each once: those of
// a trial when it has ended, whatever its verdict, for what exploring costs is booked too;
// those of a hold-back as they come. Store the proofs and the ledger together.
func (p *Proofs) Bookings() []ledger.Block { return nil }

// Standings tell how each lever stands on each class, in the order of levers and classes.
func (p *Proofs) Standings() []Standing { return nil }

// Effect of a lever on a unit as it is known now: its own, drawn to that of its class, with
// what was imported. A unit that nothing was measured on has that of its class.
func (p *Proofs) Effect(string, model.Lever) verify.Shrunk { return verify.Shrunk{} }

// Evidence is what was measured here, without what was imported, marked with the version
// of the product.
func (p *Proofs) Evidence(string) evidence.Evidence { return evidence.Evidence{} }

// Import sets the evidence of other clusters, in place of what was imported before. Entries
// that were dropped here stay dropped while they are the same.
func (p *Proofs) Import(evidence.Evidence) {}

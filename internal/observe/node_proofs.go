package observe

import "github.com/joulevirt/joulevirt/internal/model"

// Proofs tell how levers stand on a unit of a policy, and false while that is not known.
// Package proofs has them.
type Proofs interface {
	Of(policy, unit string) ([]model.Proof, bool)
}

// prove tells how levers stand on a node whose plan acts. What is only recommended is so
// whatever is proven: whoever approves it decides.
func (o *Observer) prove(node *model.Node) {
	acts := node.Policy.Mode == model.ModeEnforce || node.Policy.Mode == model.ModeRecommend && node.Current != nil && node.Current.Apply
	if o.Proofs == nil || !acts {
		return
	}
	proofs, known := o.Proofs.Of(node.Policy.Name, node.Name)
	node.Proofs, node.ProofsAwaited = proofs, !known
}

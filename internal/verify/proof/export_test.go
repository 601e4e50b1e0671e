package proof

// SaveSecond stores as versions did whose classes told of no clocks.
func (p *Proofs) SaveSecond() []byte { return p.save(second) }

// SaveThird stores proofs in the form before the last.
func (p *Proofs) SaveThird() []byte { return p.save(third) }

package traffic

// AllocateGreedily is Allocate as large groups have it, whatever the size.
func AllocateGreedily(g Group) (Allocation, error) {
	return allocate(&g, func(p *problem, granularity Granularity) ([]float64, bool) {
		if granularity == Equal {
			return p.chooseSome()
		}
		rates, found := p.greedy()
		if !found {
			return nil, false
		}
		return p.improve(rates), true
	})
}

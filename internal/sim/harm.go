package sim

func (h *Harm) possible() bool {
	const least, most = -0.5, 10.0
	for _, harm := range []float64{h.Affinity, h.Slice, h.Shaping, h.Buffering, h.TrafficShare} {
		if !(harm >= least && harm <= most) {
			return false
		}
	}
	return true
}

// harmed is the factor by which levers change the power of the packages now.
func (h *Host) harmed() float64 {
	harm := &h.cfg.Harm
	if *harm == (Harm{}) {
		return 1
	}
	var affinity, slice, shaping, buffering, steered bool
	for _, v := range h.vms {
		for i := range v.threads {
			affinity = affinity || !v.threads[i].asked.IsEmpty()
			slice = slice || v.threads[i].asks > 0
		}
		shaping = shaping || v.shape.Ceiling > 0 || v.shape.Turns
		buffering = buffering || v.work.window > 0
		steered = steered || v.Traffic.Steered
	}
	factor := 1.0
	for _, lever := range []struct {
		acts bool
		harm float64
	}{
		{affinity, harm.Affinity}, {slice, harm.Slice}, {shaping, harm.Shaping}, {buffering, harm.Buffering}, {steered, harm.TrafficShare},
	} {
		if lever.acts {
			factor *= 1 + lever.harm
		}
	}
	return factor
}

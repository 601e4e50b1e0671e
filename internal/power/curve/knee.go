package curve

import "github.com/joulevirt/joulevirt/internal/units"

// Cause is what a knee was found by.
type Cause string

// The causes.
const (
	// CauseUse: traffic alone keeps the busiest vCPU, or the vhost workers, as busy
	// as they may be at the knee.
	CauseUse Cause = "Use"
	// CauseWait: threads of VMs with more traffic than usual wait for a CPU clearly
	// more than usual from the knee on.
	CauseWait Cause = "Wait"
	// CauseUnknown: nothing shows where the knee is; the rate is what may be
	// tried without knowing it.
	CauseUnknown Cause = "Unknown"
)

// Knee is the rate up to which a VM carries its traffic well.
type Knee struct {
	// Rate is where costs turn convex, or, when that is not known, 1.3 times the
	// highest rate that was seen to go well. 0: none was.
	Rate  units.PacketsPerSecond
	Cause Cause
}

// Known tells whether the knee was measured.
func (k Knee) Known() bool { return k.Cause == CauseUse || k.Cause == CauseWait }

const (
	// kneeUse is the use at the knee: beyond it, queueing delays grow faster
	// than the work.
	kneeUse = 0.6
	// waitRise is a clear rise of the share of time spent waiting. About 0.01 is
	// normal on a host, 0.05 is felt by applications.
	waitRise = 0.05
	// stretch is how far above the highest healthy rate a VM may be brought when
	// the knee is not known. No knee is extrapolated farther beyond what was seen.
	stretch = 1.3
	// enoughSeconds is what a band must hold before it counts: some seconds of
	// mishap are no knee.
	enoughSeconds = 30
)

// findKnee returns the knee that slopes and bands in ascending order of their
// rates show.
//
// By use, it is the rate at which what traffic causes, and nothing else, takes
// 60 % of the busiest vCPU or of the vhost workers: 60 % over the use per packet,
// if that is surely above zero and the rate near what was seen. Use per packet is
// that of changes from a VM's usual traffic, which wakes threads up already.
//
// By waiting, if it surely rises with a VM's traffic, it is where VMs with clearly
// more traffic than usual begin to wait 5 percentage points more than usual.
func findKnee(follows *slopes, bands []band) Knee {
	top, healthy := 0.0, 0.0
	for i := range bands {
		b := &bands[i]
		if b.seconds < enoughSeconds {
			continue
		}
		top = b.mean()
		if b.healthy >= b.seconds/2 {
			healthy = top
		}
	}
	knee := Knee{Rate: units.PacketsPerSecond(stretch * healthy), Cause: CauseUnknown}
	lowest := stretch * top
	for _, sign := range []int{signVCPU, signVhost} {
		use := follows.of(sign)
		if rate := kneeUse / use.perPacket; use.rises() && rate <= lowest {
			lowest, knee = rate, Knee{Rate: units.PacketsPerSecond(rate), Cause: CauseUse}
		}
	}
	if follows.of(signWait).rises() {
		if rate, found := waitKnee(bands); found && rate <= lowest {
			knee = Knee{Rate: units.PacketsPerSecond(rate), Cause: CauseWait}
		}
	}
	return knee
}

// waitKnee returns where the rise of waiting crosses its limit between the
// highest band where it does not and the next. Only what is above counts: trouble
// at a rate below one that goes well is of other causes.
func waitKnee(bands []band) (float64, bool) {
	var well, trouble *band
	for i := range bands {
		b := &bands[i]
		switch {
		case b.more < enoughSeconds:
		case b.rise() < waitRise:
			well, trouble = b, nil
		case trouble == nil:
			trouble = b
		}
	}
	if well == nil || trouble == nil {
		return 0, false
	}
	part := (waitRise - well.rise()) / (trouble.rise() - well.rise())
	return well.mean() + min(1, part)*(trouble.mean()-well.mean()), true
}

package symptoms

import (
	"fmt"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

const (
	// defaultDrops and defaultThroughput hold where the profile sets no level: one packet in
	// ten thousand may be lost, and a tenth of the throughput.
	defaultDrops      = 1e-4
	defaultThroughput = 0.9
	// nearly is the part of a limit from which on a VM is close to suffering.
	nearly = 0.8
)

// Levels are the service levels of a VM's profile.
type Levels struct {
	// MaxSteal is the share of one CPU that a vCPU may wait for one, from 0 to 1.
	MaxSteal units.Cores
	// MaxDrops is the share of packets towards the VM that may be lost. Nil: not set.
	MaxDrops *float64
	// KeepThroughput is the share of its throughput that the VM must keep. 0: not set.
	KeepThroughput float64
}

// MostDrops is the share of packets towards the VM that may be lost.
func (l Levels) MostDrops() float64 {
	if l.MaxDrops == nil {
		return defaultDrops
	}
	return *l.MaxDrops
}

// LeastThroughput is the share of its throughput that the VM must keep.
func (l Levels) LeastThroughput() float64 {
	if l.KeepThroughput == 0 {
		return defaultThroughput
	}
	return l.KeepThroughput
}

// Violation is a service level that rates were checked against.
type Violation struct {
	Sign v1alpha1.GuardSign
	// Broken is true when the level is broken, and Near when it nearly is.
	Broken, Near bool
	// Evidence in words.
	Evidence string
}

// Check compares a VM's rates, beside those of all VMs of its node, with the levels that its profile
// sets. No lever answers for the waiting of a VM that others outweigh. baseline is the traffic
// that the VM moves undisturbed, in bits per second; 0: not known. On nodes that are VMs
// themselves (nested) steal is not measured.
func (l Levels) Check(rates *model.VMRates, node *model.NodeRates, baseline float64, nested bool) []Violation {
	f := read(rates, node)
	if at := limitsFor(Sample{})[outweighed]; f[outweighed] >= at.come {
		f[steal] = 0
	}
	var out []Violation
	above := func(sign v1alpha1.GuardSign, value, limit float64, unit string) {
		out = append(out, Violation{sign, value > limit, value > nearly*limit, fmt.Sprintf("%s of %.3g %s (limit %.3g)", sign, value, unit, limit)})
	}
	most := 100 * float64(l.MaxSteal)
	if !nested {
		above(v1alpha1.GuardSteal, f[steal], most, "% of a CPU")
	}
	if l.MaxDrops != nil {
		above(v1alpha1.GuardDrops, f[drops], 1e6**l.MaxDrops, "of a million packets")
	}
	if l.KeepThroughput > 0 && !nested && baseline > 0 {
		// A VM that moves less has less to move, or waits: only the latter is harm.
		kept, limit, waits := 100*f[bits]/baseline, 100*l.KeepThroughput, f[steal] > most/2
		out = append(out, Violation{
			v1alpha1.GuardThroughput, waits && kept < limit, waits && kept < limit/nearly,
			fmt.Sprintf("%s of %.3g %% of what it moves without the lever (limit %.3g)", v1alpha1.GuardThroughput, kept, limit),
		})
	}
	return out
}

// Traffic is what a VM moves, in bits per second, both directions.
func Traffic(rates *model.VMRates) float64 { return read(rates, nil)[bits] }

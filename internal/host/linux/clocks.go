package linux

import (
	"bytes"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

const (
	// maxGovernor is the longest name that the kernel has room for.
	maxGovernor = 16
	// inKilohertz are files in kHz, as cpufreq's.
	inKilohertz = 1000
)

// clocks tells how fast a CPU may run. Without cpufreq, as in most VMs, nothing is known.
func (h *Host) clocks(cpu int) model.Clocks {
	governor := h.cpuWord(cpu, "cpufreq/scaling_governor")
	lowest, _ := readInt(h.cpuFile(cpuPath(cpu, "cpufreq/scaling_min_freq")))
	highest, ok := readInt(h.cpuFile(cpuPath(cpu, "cpufreq/scaling_max_freq")))
	if !ok || lowest < 0 || highest < max(1, lowest) || governor == "" || len(governor) > maxGovernor {
		return model.Clocks{}
	}
	return model.Clocks{
		Governor: governor, FollowLoad: followsLoad(governor, h.cpuWord(cpu, "cpufreq/scaling_driver")),
		Lowest: megahertz(lowest), Highest: megahertz(highest), Base: h.baseClock(cpu),
	}
}

// baseClock is what all cores reach at once, in whole MHz; 0 where nothing tells.
func (h *Host) baseClock(cpu int) units.Megahertz {
	if base, ok := readInt(h.cpuFile(cpuPath(cpu, "cpufreq/base_frequency"))); ok && base > 0 {
		return megahertz(base)
	}
	// The firmware's figure is in MHz.
	if base, ok := readInt(h.cpuFile(cpuPath(cpu, "acpi_cppc/nominal_freq"))); ok && base > 0 {
		return units.Megahertz(base)
	}
	return 0
}

func megahertz(kilohertz int) units.Megahertz { return units.Megahertz(kilohertz / inKilohertz) }

func (h *Host) cpuWord(cpu int, file string) string {
	content, err := readFile(h.cpuFile(cpuPath(cpu, file)))
	if err != nil {
		return ""
	}
	return string(bytes.TrimSpace(content))
}

// followsLoad tells whether a CPU that is used more runs faster. "powersave" means so where
// the processor chooses by itself, and the lowest clock elsewhere.
func followsLoad(governor, driver string) bool {
	switch governor {
	case "schedutil", "ondemand", "conservative":
		return true
	case "powersave":
		return driver == "intel_pstate" || driver == "amd-pstate-epp"
	default:
		return false
	}
}

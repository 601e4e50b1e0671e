package sim

// Physics are the constants of a host. Times are seconds, energies joules,
// powers watts.
type Physics struct {
	Net   NetCosts
	Power PowerCosts
}

// NetCosts are what a VM's traffic costs in CPU time, on the thread of the host
// that moves packets (vhost) and on the vCPUs that receive and send them.
type NetCosts struct {
	// HostRx and HostTx are the host thread's time per packet to and from the
	// VM, GuestRx and GuestTx the vCPUs'. PerByte is added to each of them.
	HostRx, HostTx, GuestRx, GuestTx, PerByte float64
	// SoftIRQ is the kernel's own time per packet.
	SoftIRQ float64
	// Latency is the time from a notification until the woken thread looks at
	// its queue: what arrives meanwhile needs no other wake-up.
	Latency float64
	// WakeUp is the CPU time of every wake-up; Cold is added after a sleep that
	// is long against ColdAfter, in part after a shorter one, for what caches
	// have lost by then.
	WakeUp, Cold, ColdAfter float64
	// Migrate is added when a vCPU wakes on another core than before. For other
	// threads, which touch less memory, it is a third.
	Migrate float64
	// Second is the share of a VM's packets that a second vCPU handles as well.
	Second float64
}

// PowerCosts are what makes the power of a package. Per core: idle, asleep and
// busy.
type PowerCosts struct {
	// Shared is the package's power without cores, and SharedAsleep while all
	// of its cores sleep deeply.
	Shared, SharedAsleep float64
	// Shallow and Deep are an idle core's power.
	Shallow, Deep float64
	// DeepAfter is how long a core idles before it sleeps deeply.
	DeepAfter float64
	// Wake is the energy of leaving a deep sleep.
	Wake float64
	// Busy is a core's power at the nominal clock, in addition to Shallow.
	Busy float64
	// Slowest and Fastest are clocks relative to nominal, of which Fastest holds
	// for one active core and falls by Droop for each other.
	Slowest, Fastest, Droop float64
	// SMT is the throughput of a thread while its sibling is busy.
	SMT float64
	// Sibling is the power that the second busy thread adds, relative to Busy.
	Sibling float64
	// Leak is leakage per kelvin and core above Room+Reference; Heat is the rise
	// per watt of the package; Thermal the time constant.
	Leak, Heat, Thermal, Room, Reference float64
	// DRAM is the memory's power at rest, DRAMPerByte the energy of traffic,
	// DRAMPerCore that of computing. Platform is all else in the machine, and
	// Supply the efficiency of its power supply.
	DRAM, DRAMPerByte, DRAMPerCore, Platform, Supply float64
}

// KVM returns the physics of the study's KVM hosts (i5-2400, vhost). KVM and
// Xen were fitted together to the study's tables, see calibration_test.go for
// what they reproduce and how well.
func KVM() *Physics {
	return &Physics{
		Net: NetCosts{
			HostRx: 2.5e-6, HostTx: 0.45e-6, GuestRx: 0.7e-6, GuestTx: 2.0e-6, PerByte: 0.2e-9,
			SoftIRQ: 0.17e-6, Latency: 60e-6,
			WakeUp: 3.9e-6, Cold: 55e-6, ColdAfter: 2e-3, Migrate: 7.4e-6, Second: 0.15,
		},
		Power: studyPower(),
	}
}

// Xen returns the physics of the study's Xen hosts: the same processor with
// another path of packets, through dom0, which is dearer at all rates. The
// study measured sending only.
func Xen() *Physics {
	return &Physics{
		Net: NetCosts{
			HostRx: 5.4e-6, HostTx: 5.4e-6, GuestRx: 5.05e-6, GuestTx: 5.05e-6, PerByte: 0.2e-9,
			SoftIRQ: 0.17e-6, Latency: 80e-6,
			WakeUp: 3.9e-6, Cold: 61e-6, ColdAfter: 2e-3, Migrate: 12.3e-6, Second: 0.9,
		},
		Power: studyPower(),
	}
}

// studyPower is that of an i5-2400: 4 cores without siblings at 3.1 GHz. Leak,
// Heat, Thermal, Droop, SMT, Sibling and the memory's are not in the study's
// data: they are of the size that is usual for such processors. It had no
// efficiency cores: theirs are made up.
func studyPower() PowerCosts {
	return PowerCosts{
		Shared: 5.15, SharedAsleep: 4.15, Shallow: 1.2, Deep: 0.3, DeepAfter: 60e-6, Wake: 6e-6,
		Busy: 14.6, Slowest: 0.85, Fastest: 1.09, Droop: 0.015,
		SMT: 0.62, Sibling: 0.25,
		Leak: 0.02, Heat: 0.5, Thermal: 45, Room: 25, Reference: 5,
		DRAM: 2, DRAMPerByte: 1.5e-9, DRAMPerCore: 0.8, Platform: 12.8, Supply: 0.72,
	}
}

// Server returns the physics of a host with larger packages: the network costs
// of KVM's, and powers of the size that is usual for server processors of so many
// cores a package. Nothing of it is in the studies' tables. A cooler is chosen for
// its package: at full load it is warmer by the same number of kelvins, whatever
// its size.
func Server(coresPerPackage int) *Physics {
	const (
		busy, shallow, shared, sharedPerCore = 3.4, 0.5, 22, 0.5
		fullLoadKelvin                       = 40
	)
	cores := float64(max(1, coresPerPackage))
	full := shared + cores*(sharedPerCore+shallow+busy)
	return &Physics{
		Net: KVM().Net,
		Power: PowerCosts{
			Shared: shared + cores*sharedPerCore, SharedAsleep: shared / 2, Shallow: shallow, Deep: 0.1, DeepAfter: 100e-6, Wake: 6e-6,
			Busy: busy, Slowest: 0.8, Fastest: 1.25, Droop: 0.25 / cores,
			SMT: 0.62, Sibling: 0.25,
			Leak: 0.006, Heat: fullLoadKelvin / full, Thermal: 45, Room: 25, Reference: 15,
			DRAM: 10, DRAMPerByte: 1.5e-9, DRAMPerCore: 0.8, Platform: 60, Supply: 0.92,
		},
	}
}

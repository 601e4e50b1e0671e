package affinity

import "slices"

// bind places a VM that is nowhere.
func (s *state) bind(v *vm, b binding) {
	v.now = b
	switch b.mode {
	case floating:
		s.spread(v.scope.anywhere, v.demand-v.other.demand, v.busy, v.press-v.other.press)
	case separated:
		s.spreadParts(v, 1)
	case pinned:
		for i, core := range b.cores {
			s.put(v.first+i, core)
		}
		s.spreadThreads(v, 1)
	}
	s.charge(v)
}

// unbind takes a VM off all cores.
func (s *state) unbind(v *vm) {
	switch v.now.mode {
	case floating:
		s.spread(v.scope.anywhere, v.other.demand-v.demand, -v.busy, v.other.press-v.press)
	case separated:
		s.spreadParts(v, -1)
	case pinned:
		s.spreadThreads(v, -1)
		for i := range v.count {
			s.take(v.first + i)
		}
	}
	v.now = binding{}
	s.charge(v)
}

// binding returns where the VM is now, to bind it there again.
func (s *state) binding(v *vm) binding {
	b := v.now
	if b.mode == pinned {
		b.cores = make([]int, v.count)
		for i := range b.cores {
			b.cores[i] = s.vcpus[v.first+i].at
		}
	}
	return b
}

// charge counts what a VM costs, as it is bound now, wherever it runs.
func (s *state) charge(v *vm) {
	price := s.priceOf(v)
	s.total += price - v.price
	v.price = price
}

func (s *state) priceOf(v *vm) float64 {
	if v.now.mode == unplaced {
		return 0
	}
	price := s.wattsOf(v)
	if v.now.mode == pinned {
		// In place of what is far away in watts: that and preferences.
		price -= s.memory(v)
		for i := range v.count {
			price += s.away(v.first+i, s.vcpus[v.first+i].at)
		}
	}
	if v.now.mode == separated && v.scope.parts[v.now.part].slow {
		price += slowCore * s.node.prices.busy * v.vcpuDemand / s.node.prices.remains(v.start.mode)
	}
	if v.unmet(v.now.mode) {
		price += s.node.prices.wish
	}
	if v.start.mode == unplaced && !v.unmet(floating) && v.now.mode != floating && v.scope.within.IsEmpty() {
		price += v.threshold
	}
	return price
}

// wattsOf predicts the power of a VM's threads, but for the cores that they wake.
func (s *state) wattsOf(v *vm) float64 {
	return v.watts*s.node.prices.remains(v.now.mode) + s.memory(v) + s.split(v)
}

// memory is what memory on other NUMA nodes costs.
func (s *state) memory(v *vm) float64 {
	p := &s.node.prices
	perCore := remoteMemory * p.busy / p.remains(v.start.mode)
	sum := 0.0
	switch v.now.mode {
	case pinned:
		for i := range v.count {
			c := &s.vcpus[v.first+i]
			sum += c.demand * v.memoryAway[s.node.cores[c.at].numa]
		}
	case separated:
		sum = v.vcpuDemand * s.node.memoryAway(v, v.scope.parts[v.now.part].reach)
	case floating:
		sum = v.vcpuDemand * s.node.memoryAway(v, v.scope.anywhere)
	}
	return perCore * sum
}

// memoryAway is the share of a VM's memory that is elsewhere, where its threads run.
func (n *node) memoryAway(v *vm, r reach) float64 {
	away := 0.0
	for i, core := range r.cores {
		away += r.shares[i] * v.memoryAway[n.cores[core].numa]
	}
	return away
}

// split is what it costs that vCPUs are in several caches.
func (s *state) split(v *vm) float64 {
	llcs := v.llcs
	switch v.now.mode {
	case separated:
		llcs = v.scope.parts[v.now.part].llcs
	case floating:
		llcs = v.scope.anywhereLLCs
	}
	if llcs < 2 {
		return 0
	}
	p := &s.node.prices
	return splitCache * p.busy * v.vcpuDemand / p.remains(v.start.mode) * (1 - 1/float64(llcs))
}

// spread adds load to the cores that it reaches.
func (s *state) spread(r reach, use, busy, press float64) {
	for i, core := range r.cores {
		s.add(core, use*r.shares[i], busy*r.shares[i], press*r.shares[i])
	}
}

// spare counts what binding anew spares on the cores that it reaches. Use is added after it,
// which judges the cores.
func (s *state) spare(r reach, use float64) {
	for i, core := range r.cores {
		s.cores[core].spared += use * r.shares[i]
	}
}

// spreadParts adds, or with sign -1 removes, a separated VM.
func (s *state) spreadParts(v *vm, sign float64) {
	part := &v.scope.parts[v.now.part]
	spares := sign * v.spares(separated)
	s.spare(part.reach, spares*(v.vcpuDemand+v.io.demand))
	s.spare(part.emulator, spares*v.emulator.demand)
	s.spread(part.reach, sign*(v.vcpuDemand+v.io.demand), sign*v.busy, sign*(v.press-v.emulator.press-v.other.press))
	s.spread(part.emulator, sign*v.emulator.demand, 0, sign*v.emulator.press)
}

// spreadThreads adds, or with sign -1 removes, the other threads of a pinned VM.
func (s *state) spreadThreads(v *vm, sign float64) {
	if v.emulator.demand <= 0 && v.io.demand <= 0 {
		return
	}
	apart := s.ioApart(v)
	emulator, io := 0.0, 0.0
	for _, core := range v.scope.all {
		if n := &s.node.cores[core]; v.perLLC[n.llc] > 0 {
			emulator += n.cpus
			if s.ioMayUse(v, core, apart) {
				io += n.cpus
			}
		}
	}
	for _, core := range v.scope.all {
		n := &s.node.cores[core]
		if v.perLLC[n.llc] == 0 {
			continue
		}
		share := sign * n.cpus / emulator
		use, press := share*v.emulator.demand, share*v.emulator.press
		if io > 0 && s.ioMayUse(v, core, apart) {
			share = sign * n.cpus / io
			use, press = use+share*v.io.demand, press+share*v.io.press
		}
		s.cores[core].spared += v.spares(pinned) * use
		s.add(core, use, 0, press)
	}
}

// ioMayUse tells whether the VM's IO threads and vhost workers run on a core of the
// caches of its vCPUs: on those that they have while all its pins stay, or else on those
// of the pool, and apart from busy vCPUs of its own.
func (s *state) ioMayUse(v *vm, core int, apart bool) bool {
	if v.keepsIO() {
		return v.currentIO.Contains(s.node.cores[core].first)
	}
	return v.scope.inConfined[core] && (!apart || !s.isBusyOn(v, core))
}

// keepsIO tells whether the CPUs of the VM's IO threads and vhost workers stay. A vCPU
// that falls idle or wakes up is no reason to change them.
func (v *vm) keepsIO() bool { return v.mayKeepIO && v.atStart == v.count }

// ioApart tells whether a core is left without the VM's busy vCPUs.
func (s *state) ioApart(v *vm) bool {
	return slices.ContainsFunc(v.scope.all, func(core int) bool {
		return v.perLLC[s.node.cores[core].llc] > 0 && v.scope.inConfined[core] && !s.isBusyOn(v, core)
	})
}

// isBusyOn tells whether the VM has a busy vCPU on a core.
func (s *state) isBusyOn(v *vm, core int) bool {
	if v.busiest < busyDemand {
		return false
	}
	for i := range v.count {
		if c := &s.vcpus[v.first+i]; c.at == core && c.demand >= busyDemand {
			return true
		}
	}
	return false
}

// setKeepsIO has the IO threads and vhost workers of a pinned VM stay where they are, or
// not, and returns what they add to the price of the cores then.
func (s *state) setKeepsIO(v *vm, keeps bool) float64 {
	s.spreadThreads(v, -1)
	without := s.total
	v.mayKeepIO = keeps
	s.spreadThreads(v, 1)
	return s.total - without
}

// move pins a vCPU of a pinned VM to another core, and returns what its VM's threads add
// to the price of the cores.
func (s *state) move(i, core int) float64 {
	v := s.vms[s.vcpus[i].vm]
	s.spreadThreads(v, -1)
	s.take(i)
	without := s.total
	s.put(i, core)
	s.spreadThreads(v, 1)
	added := s.total - without
	s.charge(v)
	return added
}

package sim

import "math"

// work is what a VM does in the current step.
type work struct {
	// rx and tx are wanted packets per second, of size bytes.
	rx, tx, size float64
	// most is the part of them that the VM's busiest thread could handle with a
	// CPU to itself, and served the part that was handled.
	most, served float64
	// wait is the part of the last step for which the thread of the network waited
	// that waits longest at a wake-up, and delay how long that is, in seconds.
	wait, delay float64
	// late is the part of received packets that is lost because the thread that
	// takes them waited for too long, spilt the part that finds the guest's ring full,
	// and backlog the bytes that wait for the thread.
	late, spilt, backlog float64
	// compute is wanted by each vCPU, as CPU time per time.
	compute, heat float64
	// window that packets towards the VM are really held for. exempt is the part of them that
	// is not held, and aligned the part of wake-ups that falls on the grid of all VMs.
	window, exempt, aligned float64
}

const (
	// An idle guest's and QEMU's timers, per second, and what each takes.
	guestTimers, qemuTimers, timerCost = 60, 4, 12e-6
	// bunch is the number of packets at which a bunch is handed over early, so
	// that it fits the guest's ring.
	bunch = 128
	// others' share of the cost of waking on another core, for threads that
	// touch little memory.
	lightMigration = 1.0 / 3
)

// want evaluates a VM's programmes for a step.
func (v *vm) want(s *stepping) {
	t, dt := s.seconds, s.dt
	w := &v.work
	w.size = float64(v.Traffic.PacketBytes)
	if w.size <= 0 {
		w.size = 1500
	}
	const bitsPerByte = 8
	rate := v.traffic.level(&v.Traffic.Programme, t, dt, &v.rng) / (bitsPerByte * w.size)
	w.rx, w.tx = float64(v.Traffic.ToVM)*rate, float64(v.Traffic.FromVM)*rate
	w.tx = v.shape.hold(w.tx*w.size, dt, s.monotonic, s.leased) / w.size
	cores := float64(v.Compute.Cores) * v.compute.level(&v.Compute.Programme, t, dt, &v.rng)
	w.compute = min(1, max(0, cores/float64(v.VCPUs)))
	w.heat = v.Compute.Heat
	if w.heat == 0 {
		w.heat = 1
	}
	v.bunch(s)
}

// bunch says for how long packets are held, and what comes of it: requests that wait for
// replies come later, and what the guest's ring has no room for is lost.
func (v *vm) bunch(s *stepping) {
	w := &v.work
	w.window = v.buffering.receive(s.leased).Seconds()
	w.exempt = v.buffering.exempt(&v.Traffic)
	if trip := v.Traffic.RoundTrip.Seconds(); trip > 0 {
		// A packet comes at any time of the window, and waits for half of it on average.
		slower := trip / (trip + w.window*(1-w.exempt)/2)
		w.rx, w.tx = w.rx*slower, w.tx*slower
	}
	ring := ringOf
	if v.Ring > 0 {
		ring = v.Ring
	}
	w.spilt = (1 - w.exempt) * overflow(w.rx*(1-w.exempt)*w.window, float64(ring))
	w.aligned = 0
	if all := w.starts(1); w.window > 0 && all > 0 {
		w.aligned = begins(w.rx*(1-w.exempt), w.window) / all
	}
}

// starts is how often a second the first packet comes, of a part of the VM's, that a
// sleeping thread is woken for.
func (w *work) starts(part float64) float64 {
	passing := w.rx * w.exempt * part
	return passing + begins(w.rx*part-passing, w.window) + w.tx*part
}

// begins is how many bunches of packets begin a second: after each comes the window, and
// then the time until the next packet.
func begins(packets, window float64) float64 { return packets / (1 + packets*window) }

// perPacket is the CPU time per second that the VM's packets take on the host
// thread and on its vCPUs together, without wake-ups.
func (w *work) perPacket(n *NetCosts) (hostTime, guestTime float64) {
	bytes := (w.rx + w.tx) * w.size * n.PerByte
	return w.rx*n.HostRx + w.tx*n.HostTx + bytes, w.rx*n.GuestRx + w.tx*n.GuestTx + bytes
}

// demands computes what each thread of a VM wants.
func (v *vm) demands(n *NetCosts, c *classes) {
	w := &v.work
	hostTime, guestTime := w.perPacket(n)
	first, second := 1.0, 0.0
	if v.VCPUs > 1 {
		first, second = 1-n.Second/2, n.Second/2
	}
	// Beyond what one CPU can do, more packets are not handled but dropped. What
	// the VM computes itself shares the vCPU's time with its packets, half and
	// half when both want more.
	room := max(0.5, 1-w.compute)
	w.most = 1
	if busiest := max(hostTime, guestTime*first/room); busiest > 1 {
		w.most = 1 / busiest
	}
	starts := w.starts(w.most)
	at := 0
	for i := range v.threads {
		t := &v.threads[i]
		t.demand, t.net, t.wakes = 0, 0, 0
		wander := c.of(t.class).wander
		switch t.role {
		case vhost:
			t.net = hostTime * w.most
			t.sleepAndWake(n, starts, wander*lightMigration)
		case vcpu:
			// The first vCPU takes the interrupts, a second one runs the
			// application, and wakes for part of the packets.
			share, mine := 0.0, 0.0
			switch at {
			case 0:
				share, mine = first, starts
			case 1:
				share, mine = second, w.starts(w.most*n.Second)
			}
			at++
			t.net = guestTime * w.most * share
			t.demand = w.compute
			t.sleepAndWake(n, mine, wander)
			idle := max(0, 1-t.demand)
			t.demand += idle * guestTimers * timerCost
			t.wakes += idle * guestTimers
		}
		if t.role == emulator {
			t.demand += qemuTimers * timerCost
			t.wakes += qemuTimers
		}
		t.demand = min(1, t.demand)
	}
}

// sleepAndWake adds the network's part to a thread's demand. The thread is a
// queue with one server that goes to sleep when it is empty and wakes latency
// after the first arrival, or plus window, when that is held: an M/G/1 queue with
// set-up time, whose busy periods begin packets*(1-busy)/(1+packets*setup) times a
// second. The mean sleep is 1/packets + setup, which is 1/starts + latency, and the
// longer it was the more the wake-up costs.
func (t *thread) sleepAndWake(n *NetCosts, starts, wander float64) {
	t.demand += t.net
	if starts <= 0 {
		return
	}
	idle := max(0, 1-t.demand)
	sleep := 1/starts + n.Latency
	t.wakes = idle / sleep
	cost := n.WakeUp + n.Cold*(1-math.Exp(-sleep/n.ColdAfter)) + n.Migrate*wander
	cost = min(cost, sleep)
	t.net += t.wakes * cost
	t.demand += t.wakes * cost
}

// serve settles how much of a VM's traffic was handled, and counts.
func (v *vm) serve(c *classes, dt float64) {
	w := &v.work
	part := 1.0
	for i := range v.threads {
		if t := &v.threads[i]; t.net > 0 && t.granted < t.full {
			part = min(part, t.granted/t.full)
		}
	}
	w.served = w.most * part
	v.queue()
	arrive := w.rx * w.served * (1 - w.late) * (1 - w.spilt)
	v.toVM.packets += arrive * dt
	v.toVM.bytes += arrive * w.size * dt
	v.toVM.drops += (w.rx - arrive) * dt
	v.shape.giveBack(w.tx * (1 - w.served) * w.size * dt)
	v.fromVM.packets += w.tx * w.served * dt
	v.fromVM.bytes += w.tx * w.served * w.size * dt
	w.wait, w.delay = 0, 0
	for i := range v.threads {
		v.threads[i].count(c, part, w, dt)
	}
}

// tapQueue is how many packets a tap keeps for the VM: more are dropped.
const tapQueue = 1000

// queue is what waits in front of the VM's tap, and what finds it full. A thread that
// gets less time than it needs leaves it full. Otherwise it fills while a woken
// thread waits for its CPU, exponentially long: then the part of time that it waits
// times exp(-tapQueue/packets that arrive meanwhile on average) is lost. What the
// thread waited is that of the step before.
func (v *vm) queue() {
	w := &v.work
	w.late, w.backlog = 0, 0
	if w.rx <= 0 {
		return
	}
	if w.served < 1-1e-6 {
		w.backlog = tapQueue * w.size
		return
	}
	const negligible = 20 // exp(-20) of the packets
	meanwhile := w.rx * w.delay
	if meanwhile > tapQueue/negligible {
		w.late = w.wait * math.Exp(-tapQueue/meanwhile)
	}
	w.backlog = w.wait * min(meanwhile, tapQueue) * w.size
}

// count books a thread's step. A thread that another one of its VM holds up
// does not use all that it was given.
func (t *thread) count(c *classes, part float64, w *work, dt float64) {
	t.last.run, t.last.heat, t.last.wakes, t.last.computed = 0, 0, 0, 0
	if t.demand <= 0 {
		return
	}
	k := c.of(t.class)
	run := min(t.granted, t.full-t.net*(1-part))
	wait := 0.0
	if short := t.full - t.granted; short > 1e-6 && run > 0.999*t.granted {
		wait = 1 - run // never without work
	} else if shorter, upTo := c.crowds(k, t.slice, run); upTo > 0 || shorter > 0 {
		// Waits in a queue with priorities, M/M/1: by slices, for a shorter one preempts.
		wait = run * (1/((1-shorter)*(1-upTo)) - 1)
		delay := upTo * t.slice
		wait = min(wait, 1-run)
		if t.net > 0 && delay > w.delay {
			w.wait, w.delay = wait, delay
		}
	}
	wakes := t.wakes * part
	t.run += run * dt
	t.wait += wait * dt
	// Whoever waits is preempted as well: a switch per slice of what runs meanwhile.
	t.switches += (wakes + wait*k.turns) * dt
	k.use += run
	k.wakes += wakes
	k.grid += wakes * w.aligned
	computed := max(0, run-t.net*part)
	if t.role != vcpu {
		computed = 0
	}
	heat := run + computed*(w.heat-1)
	k.heat += heat
	t.last.run, t.last.heat, t.last.wakes, t.last.computed = run, heat, wakes, computed*k.speed
}

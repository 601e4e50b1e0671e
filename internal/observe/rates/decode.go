package rates

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// Bounds of what an agent may report. They are far above any real node, and keep a broken or
// hostile agent from costing the manager memory or time.
const (
	// maxBody of an answer: 1024 VMs with 8 vCPUs each are about 2 MiB.
	maxBody  = 8 << 20
	maxVMs   = 1024
	maxVCPUs = 512
	maxTaps  = 64
	// maxElements of all lists together: 1024 VMs with 8 vCPUs and 2 taps each, on a node of
	// 4096 CPUs, have 15,360. maxValues are these and the fields of objects, of which a
	// VM with 8 vCPUs has about 100.
	maxElements = 1 << 14
	maxValues   = 1 << 18
	// maxDepth of lists and objects: vms[].taps[].toVM is 6, and more may be added.
	maxDepth = 16
	// maxString is above a list of every other one of units.MaxCPUs.
	maxString = 32 << 10
	// maxWeight is the most cpu.shares that the kernel takes.
	maxWeight = 262144
	// maxLimit in cores is the longest quota of the shortest period that the kernel takes.
	maxLimit = 1 << 35
	// maxNUMANodes is the largest number that Linux can be built with, and maxMemoryMiB of a
	// VM, 1 PiB, is above every machine.
	maxNUMANodes = 1024
	maxMemoryMiB = 1 << 30
	// maxText is the longest name, that of a Kubernetes object, and maxMessage the longest
	// sentence.
	maxText, maxMessage = 253, 1024
	// maxRate of anything: 10^15 bits/s is above every network.
	maxRate = 1e15
	// maxWatts is above every machine.
	maxWatts = 1e6
	// maxTotal of anything counted since an agent's start: 10^18 is 30 years of a billion a
	// second.
	maxTotal = 1e18
	// maxUse of one CPU: counters of a tick's precision may exceed 1 a little.
	maxUse = 1.5
	// maxAhead is how far a time may be ahead of its round: both are of one clock, but it can
	// be set meanwhile.
	maxAhead    = time.Minute
	maxSwitches = 16
	maxTrips    = 1024
	// maxCoolDown is far longer than a guard keeps a lever reverted.
	maxCoolDown = 30 * 24 * time.Hour
	// maxFrame is the largest packet, an IPv6 jumbogram, and maxSources every address of IPv4.
	maxFrame, maxSources = 1 << 32, 1 << 32
)

// ErrInvalid is wrapped by every error about an answer that cannot be true.
var ErrInvalid = errors.New("invalid rates")

// decode reads one answer of a node's agent, within the bounds above: what comes out is
// trusted. Unknown fields are ignored, and unknown words pass: agents may be newer than the
// manager. The error wraps ErrInvalid and names the field that is wrong.
func decode(body []byte, node string) (*model.NodeRates, error) {
	if err := bound(body); err != nil {
		return nil, err
	}
	rates := &model.NodeRates{}
	// This is what becomes encoding/json/v2: twice as fast as encoding/json.
	if err := json.Unmarshal(body, rates); err != nil {
		return nil, fmt.Errorf("%w: %.300s", ErrInvalid, err.Error())
	}
	c := check{}
	c.rates(rates, node)
	if c.err != nil {
		return nil, c.err
	}
	fit(rates)
	return rates, nil
}

// fit frees what the decoder took in advance for lists that grow: rates are kept.
func fit(rates *model.NodeRates) {
	rates.CPUs, rates.VMs = fitted(rates.CPUs), fitted(rates.VMs)
	for i := range rates.VMs {
		vm := &rates.VMs[i]
		vm.VCPUs, vm.Taps, vm.MemoryMiB = fitted(vm.VCPUs), fitted(vm.Taps), fitted(vm.MemoryMiB)
	}
}

func fitted[T any](list []T) []T {
	if len(list) == cap(list) {
		return list
	}
	return append(make([]T, 0, len(list)), list...)
}

// bound refuses a text of JSON that would decode into much more memory than its own. It reads
// no more of the grammar than it needs for that: the rest is the decoder's.
func bound(body []byte) error {
	// lists says of each list and object that is open whether it is a list.
	var lists [maxDepth]bool
	depth, elements, values := 0, 0, 0
	for i := 0; i < len(body); i++ {
		switch c := body[i]; c {
		case '"':
			from := i + 1
			for i++; i < len(body) && body[i] != '"'; i++ {
				if body[i] == '\\' {
					i++
				}
			}
			if i-from > maxString {
				return fmt.Errorf("%w: a text is longer than %d bytes", ErrInvalid, maxString)
			}
			continue
		case '[', '{':
			if depth == maxDepth {
				return fmt.Errorf("%w: more than %d lists and objects in each other", ErrInvalid, maxDepth)
			}
			lists[depth] = c == '['
			depth++
		case ']', '}':
			depth = max(0, depth-1)
			continue
		case ',':
		default:
			continue
		}
		if values++; depth > 0 && lists[depth-1] {
			elements++
		}
		if elements > maxElements || values > maxValues {
			return fmt.Errorf("%w: more than %d elements of lists, or %d values", ErrInvalid, maxElements, maxValues)
		}
	}
	return nil
}

// check remembers the first figure that is out of bounds.
type check struct {
	// at is the part of the answer that is checked, such as "vms[3].".
	at  string
	err error
}

func (c *check) fail(field string, value any) {
	if c.err == nil {
		c.err = fmt.Errorf("%w: %s%s is %.80s", ErrInvalid, c.at, field, fmt.Sprint(value))
	}
}

// within bounds numbers from 0 to most. Numbers that are not finite are outside.
func (c *check) within(field string, most float64, values ...float64) {
	for _, x := range values {
		if !(x >= 0 && x <= most) {
			c.fail(field, x)
		}
	}
}

// count bounds the length of a list or a text.
func (c *check) count(field string, length, most int) {
	if length > most {
		c.fail("the length of "+field, length)
	}
}

// word refuses what is none of the API's CamelCase words.
func (c *check) word(field, text string) {
	if !model.IsWord(text) {
		c.fail(field, text)
	}
}

// moment refuses a time that is missing, or after the round.
func (c *check) moment(field string, at, round time.Time) {
	if at.IsZero() || at.Sub(round) > maxAhead {
		c.fail(field, at)
	}
}

// unique refuses what is in a list twice.
func unique[T comparable](c *check, seen map[T]bool, field string, value T) {
	if seen[value] {
		c.fail("another "+field, value)
	}
	seen[value] = true
}

func (c *check) rates(r *model.NodeRates, node string) {
	if r.Node != node {
		c.fail("node", r.Node)
	}
	if r.Time.IsZero() {
		c.fail("time", r.Time)
	}
	c.within("intervalSeconds", time.Hour.Seconds(), r.IntervalSeconds)
	if r.IntervalSeconds == 0 {
		c.fail("intervalSeconds", 0)
	}
	c.count("cpus", len(r.CPUs), units.MaxCPUs)
	c.count("vms", len(r.VMs), maxVMs)
	c.count("switches", len(r.Switches), maxSwitches)
	c.count("trips", len(r.Trips), maxTrips)
	if c.err != nil {
		return
	}
	cpus := map[int]bool{}
	for i := range r.CPUs {
		cpu := &r.CPUs[i]
		c.within("cpus.cpu", units.MaxCPUs-1, float64(cpu.CPU))
		unique(c, cpus, "cpus.cpu", cpu.CPU)
		c.within("cpus.busyCores", maxUse, float64(cpu.BusyCores))
		c.within("cpus.stealCores", maxUse, float64(cpu.StealCores))
	}
	c.power(r)
	levers := map[v1alpha1.Lever]bool{}
	for i := range r.Switches {
		s := &r.Switches[i]
		c.at = fmt.Sprintf("switches[%d].", i)
		c.word("lever", string(s.Lever))
		unique(c, levers, "lever", s.Lever)
		c.moment("since", s.Since, r.Time)
		c.within("oneIn", model.MostOneIn, float64(s.OneIn))
	}
	for i := range r.Trips {
		c.at = fmt.Sprintf("trips[%d].", i)
		c.trip(&r.Trips[i], r.Time)
	}
	pods := map[string]bool{}
	for i := range r.VMs {
		c.at = fmt.Sprintf("vms[%d].", i)
		unique(c, pods, "podUID", r.VMs[i].PodUID)
		c.vm(&r.VMs[i])
	}
}

// power lets only the figures pass that an agent makes itself: those of a Prometheus server
// are the manager's business.
func (c *check) power(r *model.NodeRates) {
	c.count("powerMessage", len(r.PowerMessage), maxMessage)
	if p := r.Power; p != nil {
		c.at = "power."
		c.word("source", string(p.Source))
		if p.Source == v1alpha1.PowerPrometheus {
			c.fail("source", p.Source)
		}
		c.word("scope", string(p.Scope))
		c.within("watts", maxWatts, float64(p.Watts))
		c.moment("time", p.Time, r.Time)
		c.within("intervalSeconds", time.Hour.Seconds(), p.IntervalSeconds)
	}
	if t := r.Totals; t != nil {
		c.at = "totals"
		if t.Since.IsZero() {
			c.fail(".since", t.Since)
		}
		c.within("", maxTotal, t.Seconds, t.BusyCoreSeconds, t.AwakeCoreSeconds, t.WakeUps, float64(t.Joules), t.MeteredSeconds, t.Bytes, t.SentBytes, t.SentPackets, t.AgentSeconds)
	}
}

func (c *check) trip(t *model.Trip, round time.Time) {
	c.names(t.PodUID, t.Namespace, t.Name)
	c.word("lever", string(t.Lever))
	c.word("symptom", string(t.Symptom))
	c.within("value", maxTotal, t.Value)
	c.within("limit", maxTotal, t.Limit)
	c.moment("time", t.Time, round)
	if t.Until.Before(t.Time) || t.Until.Sub(t.Time) > maxCoolDown {
		c.fail("until", t.Until)
	}
	if t.Count < 1 {
		c.fail("count", t.Count)
	}
}

func (c *check) names(podUID, namespace, name string) {
	c.count("podUID", len(podUID), maxText)
	c.count("namespace", len(namespace), maxText)
	c.count("name", len(name), maxText)
}

func (c *check) vm(vm *model.VMRates) {
	c.names(vm.PodUID, vm.Namespace, vm.Name)
	if vm.PodUID == "" {
		c.fail("podUID", `""`)
	}
	c.count("vcpus", len(vm.VCPUs), maxVCPUs)
	c.count("taps", len(vm.Taps), maxTaps)
	c.count("memoryMiB", len(vm.MemoryMiB), maxNUMANodes)
	if c.err != nil {
		return
	}
	for _, threads := range []*model.ThreadRates{&vm.Emulator, &vm.IOThreads, &vm.Vhost, &vm.Other} {
		c.within("threads", units.MaxCPUs, float64(threads.RunCores), float64(threads.WaitCores))
		c.within("switchesPerSecond", maxRate, float64(threads.SwitchesPerSecond))
	}
	indexes := map[int]bool{}
	for i := range vm.VCPUs {
		vcpu := &vm.VCPUs[i]
		c.within("vcpus.vcpu", math.MaxInt16, float64(vcpu.Index))
		unique(c, indexes, "vcpus.vcpu", vcpu.Index)
		c.within("vcpus.runCores", maxUse, float64(vcpu.RunCores))
		c.within("vcpus.waitCores", units.MaxCPUs, float64(vcpu.WaitCores))
		c.within("vcpus.switchesPerSecond", maxRate, float64(vcpu.SwitchesPerSecond))
	}
	c.within("weight", maxWeight, vm.Weight)
	c.within("writtenBytesPerSecond", maxRate, float64(vm.WrittenBytesPerSecond))
	if l := vm.Limit; l != nil {
		c.within("limit.cores", maxLimit, float64(l.Cores))
		c.within("limit.throttledShare", 1, l.ThrottledShare)
		c.within("limit.waitCores", units.MaxCPUs, float64(l.WaitCores))
	}
	for _, mib := range vm.MemoryMiB {
		c.within("memoryMiB", maxMemoryMiB, float64(mib))
	}
	if vm.Watts != nil {
		c.within("watts", maxWatts, float64(*vm.Watts))
	}
	if s := vm.Sent; s != nil {
		c.within("sent.bitsPerSecond", maxRate, float64(s.BitsPerSecond))
		c.within("sent.seconds", time.Hour.Seconds(), s.Seconds)
	}
	for i := range vm.Taps {
		tap := &vm.Taps[i]
		if tap.BacklogBytes != nil {
			c.within("taps.backlogBytes", maxRate, float64(*tap.BacklogBytes))
		}
		for _, way := range []*model.TrafficRates{&tap.ToVM, &tap.FromVM} {
			c.within("taps", maxRate, float64(way.BitsPerSecond), float64(way.PacketsPerSecond), float64(way.DropsPerSecond))
		}
	}
	if vm.Buffering != nil {
		c.buffering(vm.Buffering)
	}
}

// buffering refuses windows that do not exist: learned costs have them as their key, so that
// made-up ones would fill the memory.
func (c *check) buffering(b *model.BufferingRates) {
	c.within("buffering.windowMicroseconds", float64(model.LongestWindow.Microseconds()), float64(b.WindowMicroseconds))
	if w := time.Duration(b.WindowMicroseconds) * time.Microsecond; w != 0 && !model.IsWindow(w) {
		c.fail("buffering.windowMicroseconds", b.WindowMicroseconds)
	}
	c.within("buffering.activeShare", 1, b.ActiveShare)
	c.within("buffering", maxRate, float64(b.PassedPerSecond), float64(b.HeldPerSecond))
	if b.DropsPerSecond != nil {
		c.within("buffering.dropsPerSecond", maxRate, float64(*b.DropsPerSecond))
	}
	if g := b.GuestTools; g != nil {
		// All that fits a guest's declaration: no guest can have the rates of its whole node
		// refused.
		c.within("buffering.guestTools", math.MaxUint32, float64(g.ToleratedMicroseconds), float64(g.TransmitMicroseconds))
	}
	if f := b.Flood; f != nil {
		c.within("buffering.flood", maxRate, float64(f.SegmentsPerSecond), float64(f.UsualPerSecond), f.TalkShare)
		c.within("buffering.flood.meanBytes", maxFrame, f.MeanBytes)
		c.within("buffering.flood.synShare", 1, f.SYNShare)
		c.within("buffering.flood.sources", maxSources, float64(f.Sources))
	}
}

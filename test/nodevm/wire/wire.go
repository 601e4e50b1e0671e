// Package wire is what a test and the programs in the node VM and in its guest say to one
// another: the arguments and answers of net/rpc in JSON. Services are "Machine", which both
// have, "Node" and "Guest".
package wire

import (
	"encoding/json"
	"time"
)

// None is no argument, or no answer.
type None struct{}

// Program is one to be run. Name is what it is called from then on; Output its file.
type Program struct {
	Name, Path string
	Args       []string
}

// Signal for a program that runs. With Wait the answer comes when it has ended.
type Signal struct {
	Name   string
	Signal int
	Wait   bool
}

// File is one to be written, with the folders above it.
type File struct {
	Path, Content string
}

// Load is a steady stream of UDP datagrams.
type Load struct {
	// Run tells one stream from others.
	Run uint32
	// Address is host:port.
	Address string
	// Flows are sent to in turn, each from a port of its own.
	Flows     int
	PerSecond float64
	Packets   int
	// Bytes of each datagram: at least load.HeaderBytes.
	Bytes int
}

// Sent is what became of a Load.
type Sent struct {
	// Packets of each flow that the kernel took.
	Packets []uint64
	Errors  uint64
	Seconds float64
	// Late packets had not left when the next one was due, so that the two went in a bunch.
	Late uint64
}

// Tally is what came of a run.
type Tally struct {
	// Distinct packets of each flow, and what was wrong with all of them: packets that
	// came after later ones of their flow, and those that came twice.
	Distinct              []uint64
	Reordered, Duplicated uint64
}

// Ping asks an echo of UDP again and again.
type Ping struct {
	Address string
	Count   int
	Gap     time.Duration
}

// Pinged has the quantiles of the round trips that were answered.
type Pinged struct {
	Lost               int
	P25, P50, P95, P99 time.Duration
}

// Flood is a stream of TCP SYNs of random sources.
type Flood struct {
	// Address of the victim, host:port, and its MAC.
	Address, MAC string
	PerSecond    float64
	Packets      int
}

// Stream is one TCP transfer to an address, for a time.
type Stream struct {
	Address string
	// Time for which what is sent counts, after a time to settle.
	Time, Settle time.Duration
	// BytesPerSecond that the sender keeps to, in packets of one segment each. 0: as many
	// as there can be.
	BytesPerSecond int
}

// Streamed is what the receiver of a Stream acknowledged once the sender had settled.
type Streamed struct {
	Bytes   uint64
	Seconds float64
	// Retransmits of the sender, in all of the time.
	Retransmits uint64
}

// Thread is what one thread, or all of one name, used.
type Thread struct {
	Seconds  float64 // of CPU time
	Switches uint64
}

// Counters of a machine since its start.
type Counters struct {
	At time.Duration // its monotonic clock
	// Interrupts of the network card's queues: "input", "output".
	Interrupts map[string]uint64
	Softirqs   map[string]uint64
	Switches   uint64
	// Busy CPU time in seconds.
	Busy float64
	// Kicks of the network card's transmit queues.
	Kicks uint64
	// KVM are counters of the hypervisor, and Threads those of its process by name;
	// "vhost" is the kernel's worker.
	KVM     map[string]uint64
	Threads map[string]Thread
}

// Boot says how a node's guest is started.
type Boot struct {
	// Namespace, Name and PodUID are what the agent is to find it by.
	Namespace, Name, PodUID string
	MemoryMiB               int
}

// Booted says how long that took.
type Booted struct{ Seconds float64 }

// Question is a call for the guest, passed on by the node.
type Question struct {
	Method string
	Params json.RawMessage
	Within time.Duration
}

// GuestState reports how a guest is.
type GuestState struct {
	Running bool
	// Panicked is the line of its console that says so.
	Panicked string
	// Console is the end of it.
	Console string
}

// Device is what is on the VM's tap, as text that is equal when the device is.
type Device struct {
	Queues, Filters []string
	// RxFrames of its interrupt coalescing.
	RxFrames uint32
	// Pins in the BPF file system.
	Pins []string
}

// Decided is what became of packets towards the VM on the tap so far: those that left at once
// and those that were held.
type Decided struct{ Passed, Held uint64 }

// GuestSilent starts the error of a call that the guest did not answer.
const GuestSilent = "the guest is silent: "

// Addresses of the network that the guest is in, and its other end.
const (
	GuestAddress, GuestMAC   = "10.77.0.2", "02:00:00:00:0a:02"
	SenderAddress, SenderMAC = "10.77.0.1", "02:00:00:00:0a:01"
	NetworkBits              = "/24"
)

// Ports of the guest and of the other end.
const (
	EchoPort  = 7
	SinkPort  = 9
	DrainPort = 5001
)

// Tap is the VM's in its pod's network namespace.
const Tap = "tap0"

// Hold has the packets of the VM's tap held, as model.Buffering says. The zero value has
// none held, and takes from the tap all that it takes.
type Hold struct {
	Window, FloodWindow time.Duration
	OnPackets           float64
	// FloodPackets is the rate of a flood; 0: the product's.
	FloodPackets uint32
}

package linux

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"
)

// Bytes that decide whether a packet may have to wait.
const (
	// smallPacket is the size from which on packets wait, with their Ethernet
	// header. Acknowledgements, keep-alives, probes and handshakes are smaller.
	smallPacket = 256
	// flowSlots is how many flows are told apart. Two that share a slot keep
	// their order with one another too.
	flowSlots = 1 << 16
)

// classifier sorts packets into the classes pass and turn. One set of maps
// serves all devices.
type classifier struct {
	// until holds one number: the time of CLOCK_MONOTONIC, in nanoseconds, from
	// which on nothing waits.
	until *ebpf.Map
	// flows holds when each last sent a packet that had to wait.
	flows *ebpf.Map
	// programs by how long they remember a flow.
	programs map[time.Duration]*ebpf.Program
}

func newClassifier() (*classifier, error) {
	until, err := ebpf.NewMap(&ebpf.MapSpec{Name: "jv_until", Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1})
	if err != nil {
		return nil, fmt.Errorf("eBPF map: %w", err)
	}
	flows, err := ebpf.NewMap(&ebpf.MapSpec{Name: "jv_flows", Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: flowSlots})
	if err != nil {
		until.Close()
		return nil, fmt.Errorf("eBPF map: %w", err)
	}
	return &classifier{until: until, flows: flows, programs: map[time.Duration]*ebpf.Program{}}, nil
}

// close lets go of the programs. Devices keep those that they have.
func (c *classifier) close() error {
	failures := []error{c.until.Close(), c.flows.Close()}
	for _, program := range c.programs {
		failures = append(failures, program.Close())
	}
	return errors.Join(failures...)
}

// keep lets packets wait until a time of CLOCK_MONOTONIC.
func (c *classifier) keep(until time.Duration) error {
	if err := c.until.Put(uint32(0), uint64(until)); err != nil {
		return fmt.Errorf("eBPF map: %w", err)
	}
	return nil
}

// program for turns of a period. A flow is remembered for at least a period,
// which is longer than a packet of it waits; powers of two keep the programs
// few.
func (c *classifier) program(period time.Duration) (*ebpf.Program, error) {
	memory := time.Duration(1) << bits.Len64(uint64(max(period, time.Second)))
	if known, found := c.programs[memory]; found {
		return known, nil
	}
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "jv_turn", Type: ebpf.SchedCLS, License: "Apache-2.0",
		Instructions: c.classify(memory, skbClass),
	})
	if err != nil {
		return nil, fmt.Errorf("eBPF program: %w", err)
	}
	c.programs[memory] = program
	return program, nil
}

// Fields of struct __sk_buff.
const (
	skbLen, skbMark, skbProtocol, skbPriority = 0, 8, 16, 32
	skbScratch, skbClass, skbTstamp           = 48, 72, 152
)

// Places on the program's stack.
const (
	onKey, onHeader, onTransport, onByte = -4, -32, -40, -48
)

// classify is the program. It writes the class to a field of the packet and lets
// it on:
//
//   - past the time until, or not of IP: pass
//   - from smallPacket on: turn, and the flow is remembered
//   - smaller and of TCP without data, or of neither TCP nor UDP: pass
//   - smaller with data: turn when the flow is remembered, pass when not. What
//     passed a waiting packet of its own flow would look like a loss to the
//     receiver, and be sent again.
func (c *classifier) classify(memory time.Duration, field int16) asm.Instructions {
	const ok, shot = 0, 2
	return slices.Concat(c.dismiss(), headers(), size(),
		flowIn(c.flows.FD(), flowSlots, "small"), asm.Instructions{
			asm.LoadMem(asm.R2, asm.R0, 0, asm.DWord),
			asm.JEq.Imm(asm.R2, 0, "pass"),
			asm.Mov.Reg(asm.R3, asm.R8),
			asm.Sub.Reg(asm.R3, asm.R2),
			asm.LoadImm(asm.R4, int64(memory), asm.DWord),
			asm.JGE.Reg(asm.R3, asm.R4, "pass"),
			asm.Ja.Label("turn"),
		},
		flowIn(c.flows.FD(), flowSlots, "large"), asm.Instructions{
			asm.StoreMem(asm.R0, 0, asm.R8, asm.DWord),
			asm.Mov.Imm(asm.R2, turnClass).WithSymbol("turn"),
			asm.Ja.Label("set"),
			asm.Mov.Imm(asm.R2, passClass).WithSymbol("pass"),
			asm.StoreMem(asm.R6, field, asm.R2, asm.Word).WithSymbol("set"),
			asm.Mov.Imm(asm.R0, ok),
			asm.Return(),
			asm.Mov.Imm(asm.R0, shot).WithSymbol("drop"),
			asm.Return(),
		})
}

// dismiss drops kicks and passes what comes too late to wait. It leaves the
// packet in R6 and the time in R8.
func (c *classifier) dismiss() asm.Instructions {
	return slices.Concat(
		asm.Instructions{
			asm.Mov.Reg(asm.R6, asm.R1),
			asm.LoadMem(asm.R2, asm.R6, skbProtocol, asm.Word),
			asm.LoadMem(asm.R3, asm.R6, skbMark, asm.Word),
			asm.JNE.Imm(asm.R3, kickMark, "sort"),
			asm.JEq.Imm(asm.R2, networkOrder(kickProto), "drop"),
			asm.StoreImm(asm.RFP, onKey, 0, asm.Word).WithSymbol("sort"),
		},
		lookUp(c.until.FD(), "pass"), asm.Instructions{
			asm.LoadMem(asm.R7, asm.R0, 0, asm.DWord),
			asm.FnKtimeGetNs.Call(),
			asm.Mov.Reg(asm.R8, asm.R0),
			asm.JGE.Reg(asm.R8, asm.R7, "pass"),
		})
}

// headers passes what is not of IP. It leaves the protocol that IP carries in
// R7, how much of it in R9, and where it begins on the stack.
func headers() asm.Instructions {
	return slices.Concat(
		asm.Instructions{
			asm.LoadMem(asm.R2, asm.R6, skbProtocol, asm.Word),
			asm.JEq.Imm(asm.R2, networkOrder(unix.ETH_P_IP), "ipv4"),
			asm.JNE.Imm(asm.R2, networkOrder(unix.ETH_P_IPV6), "pass"),
			asm.Mov.Imm(asm.R2, 0),
		},
		loadHeader(onHeader, 8), asm.Instructions{
			asm.LoadMem(asm.R7, asm.RFP, onHeader+6, asm.Byte),
			asm.LoadMem(asm.R9, asm.RFP, onHeader+4, asm.Half),
			asm.HostTo(asm.BE, asm.R9, asm.Half),
			asm.Mov.Imm(asm.R2, 40),
			asm.StoreMem(asm.RFP, onTransport, asm.R2, asm.DWord),
			asm.Ja.Label("size"),
			asm.Mov.Imm(asm.R2, 0).WithSymbol("ipv4"),
		},
		loadHeader(onHeader, 20), asm.Instructions{
			asm.LoadMem(asm.R7, asm.RFP, onHeader+9, asm.Byte),
			asm.LoadMem(asm.R9, asm.RFP, onHeader+2, asm.Half),
			asm.HostTo(asm.BE, asm.R9, asm.Half),
			asm.LoadMem(asm.R2, asm.RFP, onHeader, asm.Byte),
			asm.And.Imm(asm.R2, 0xf),
			asm.LSh.Imm(asm.R2, 2),
			asm.Sub.Reg(asm.R9, asm.R2),
			asm.StoreMem(asm.RFP, onTransport, asm.R2, asm.DWord),
		})
}

// size tells large packets from small ones, and passes those of the small ones
// that carry no data of TCP or UDP.
func size() asm.Instructions {
	return slices.Concat(
		asm.Instructions{
			asm.LoadMem(asm.R2, asm.R6, skbLen, asm.Word).WithSymbol("size"),
			asm.JGE.Imm(asm.R2, smallPacket, "large"),
			asm.JEq.Imm(asm.R7, unix.IPPROTO_UDP, "small"),
			asm.JNE.Imm(asm.R7, unix.IPPROTO_TCP, "pass"),
			asm.LoadMem(asm.R2, asm.RFP, onTransport, asm.DWord),
			asm.Add.Imm(asm.R2, 12),
		},
		loadHeader(onByte, 1), asm.Instructions{
			asm.LoadMem(asm.R2, asm.RFP, onByte, asm.Byte),
			asm.RSh.Imm(asm.R2, 4),
			asm.LSh.Imm(asm.R2, 2),
			asm.JSLE.Reg(asm.R9, asm.R2, "pass"),
		})
}

// lookUp finds the key on the stack, in R0.
func lookUp(fd int, absent string) asm.Instructions {
	return asm.Instructions{
		asm.LoadMapPtr(asm.R1, fd),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, onKey),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, absent),
	}
}

// flowIn finds the slot of the packet's flow in a map of so many, in R0.
func flowIn(fd int, slots int32, symbol string) asm.Instructions {
	program := asm.Instructions{
		asm.Mov.Reg(asm.R1, asm.R6).WithSymbol(symbol),
		asm.FnGetHashRecalc.Call(),
		asm.And.Imm(asm.R0, slots-1),
		asm.StoreMem(asm.RFP, onKey, asm.R0, asm.Word),
	}
	return append(program, lookUp(fd, "pass")...)
}

// networkOrder is a number as the kernel shows it that has it in network order.
func networkOrder(number uint16) int32 {
	var b [2]byte
	binary.BigEndian.PutUint16(b[:], number)
	return int32(binary.NativeEndian.Uint16(b[:]))
}

// loadHeader copies bytes to the stack, from R2 bytes behind the start of the
// network header.
func loadHeader(to, length int32) asm.Instructions {
	const fromNetworkHeader = 1
	return asm.Instructions{
		asm.Mov.Reg(asm.R1, asm.R6),
		asm.Mov.Reg(asm.R3, asm.RFP),
		asm.Add.Imm(asm.R3, to),
		asm.Mov.Imm(asm.R4, length),
		asm.Mov.Imm(asm.R5, fromNetworkHeader),
		asm.FnSkbLoadBytesRelative.Call(),
		asm.JNE.Imm(asm.R0, 0, "pass"),
	}
}

package linux

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/joulevirt/joulevirt/internal/model"
)

const (
	// stampedFlows is how many flows of one device are told apart. Two that share
	// a slot keep their order with one another too.
	stampedFlows = 1 << 14
	// drained is how long after its last packet left a flow keeps its order: fq
	// sends at once what may leave, but not in no time.
	drained = time.Second
	// ownStamp is the latest that a stamp of somebody else's may lie ahead: a
	// local TCP paces by stamps. What is later is of another clock.
	ownStamp = time.Second
	// firstInLine is the priority of packets that fq sends before all others,
	// whatever their flow waits for: TC_PRIO_CONTROL.
	firstInLine = 7
)

// stamper stamps what leaves by one device with the time at which it may, in
// CLOCK_MONOTONIC. The turns are in its program; the maps outlive a change of
// turns.
type stamper struct {
	// queue holds two numbers: until when the trickle is spoken for, and the turn
	// before which that is so.
	queue *ebpf.Map
	// flows holds when the last packet of each leaves.
	flows   *ebpf.Map
	program *ebpf.Program
	shaping model.Shaping
}

func newStamper() (*stamper, error) {
	queue, err := ebpf.NewMap(&ebpf.MapSpec{Name: "jv_queue", Type: ebpf.Array, KeySize: 4, ValueSize: 16, MaxEntries: 1})
	if err != nil {
		return nil, fmt.Errorf("eBPF map: %w", err)
	}
	flows, err := ebpf.NewMap(&ebpf.MapSpec{Name: "jv_leave", Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: stampedFlows})
	if err != nil {
		queue.Close()
		return nil, fmt.Errorf("eBPF map: %w", err)
	}
	return &stamper{queue: queue, flows: flows}, nil
}

// close lets go of program and maps. A device keeps those that it has.
func (s *stamper) close() error {
	failures := []error{s.queue.Close(), s.flows.Close()}
	if s.program != nil {
		failures = append(failures, s.program.Close())
	}
	return errors.Join(failures...)
}

// load makes the program for turns, which replaces the one before once the
// device has it. Nothing waits from the time on that the map until holds.
func (s *stamper) load(turn model.Turn, until *ebpf.Map) (*ebpf.Program, error) {
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "jv_stamp", Type: ebpf.SchedCLS, License: "Apache-2.0",
		Instructions: s.stamp(turn, until.FD()),
	})
	if err != nil {
		return nil, fmt.Errorf("eBPF program: %w", err)
	}
	return program, nil
}

// stamp is the program. Like the classifier it lets small packets pass, unless
// larger ones of their flow wait or have just left. Of the others,
//
//   - past the time until each passes, and what waits leaves by itself
//   - in a turn each leaves at once
//   - between turns each leaves when the trickle has made up for those before,
//     at the next turn at the latest
//   - none leaves before one of its own flow
//
// What would wait for longer than the trickle needs for heldBytes is dropped.
// Two CPUs that stamp at the same time may count the trickle of one packet
// only; the order within flows does not hang on it.
func (s *stamper) stamp(turn model.Turn, until int) asm.Instructions {
	const next, drop = -1, 2
	return slices.Concat(
		asm.Instructions{
			asm.Mov.Reg(asm.R6, asm.R1),
			asm.FnKtimeGetNs.Call(),
			asm.Mov.Reg(asm.R8, asm.R0),
		},
		headers(), size(),
		flowIn(s.flows.FD(), stampedFlows, "small"), asm.Instructions{
			asm.Mov.Reg(asm.R7, asm.R0),
			asm.LoadMem(asm.R2, asm.R7, 0, asm.DWord),
			asm.LoadImm(asm.R3, int64(drained), asm.DWord),
			asm.Add.Reg(asm.R2, asm.R3),
			asm.JLE.Reg(asm.R2, asm.R8, "pass"),
			asm.Ja.Label("turn"),
		},
		flowIn(s.flows.FD(), stampedFlows, "large"), asm.Instructions{
			asm.Mov.Reg(asm.R7, asm.R0),
			asm.Mov.Reg(asm.R9, asm.R8).WithSymbol("turn"),
			asm.StoreImm(asm.RFP, onKey, 0, asm.Word),
		},
		lookUp(until, "leave"), asm.Instructions{
			asm.LoadMem(asm.R2, asm.R0, 0, asm.DWord),
			asm.JGE.Reg(asm.R8, asm.R2, "pass"),
		},
		lookUp(s.queue.FD(), "leave"), nextTurn(turn), trickle(turn), leave(),
		asm.Instructions{
			asm.Mov.Imm(asm.R0, next).WithSymbol("next"),
			asm.Return(),
			asm.Mov.Imm(asm.R1, firstInLine).WithSymbol("pass"),
			asm.StoreMem(asm.R6, skbPriority, asm.R1, asm.Word),
			asm.Ja.Label("next"),
			asm.Mov.Imm(asm.R0, drop).WithSymbol("drop"),
			asm.Return(),
		})
}

// nextTurn leaves the time in R3 at which the next turn begins, unless it is
// one now. R8 is the time.
func nextTurn(turn model.Turn) asm.Instructions {
	return asm.Instructions{
		asm.LoadImm(asm.R2, int64(turn.Period-turn.Offset), asm.DWord),
		asm.Add.Reg(asm.R2, asm.R8),
		asm.LoadImm(asm.R3, int64(turn.Period), asm.DWord),
		asm.Mod.Reg(asm.R2, asm.R3),
		asm.LoadImm(asm.R4, int64(turn.Length), asm.DWord),
		asm.JLT.Reg(asm.R2, asm.R4, "leave"),
		asm.Sub.Reg(asm.R3, asm.R2),
		asm.Add.Reg(asm.R3, asm.R8),
	}
}

// trickle leaves in R9 when the packet leaves, and counts it. The queue is in
// R0, the time in R8, and the next turn in R3.
func trickle(turn model.Turn) asm.Instructions {
	const spokenFor, before = 0, 8
	const bitNanoseconds = bitsPerByte * int64(time.Second)
	return asm.Instructions{
		asm.LoadMem(asm.R4, asm.R0, spokenFor, asm.DWord),
		asm.LoadMem(asm.R5, asm.R0, before, asm.DWord),
		asm.JNE.Reg(asm.R5, asm.R3, "afresh"),
		asm.JGT.Reg(asm.R4, asm.R8, "queued"),
		asm.Mov.Reg(asm.R4, asm.R8).WithSymbol("afresh"),
		asm.Mov.Reg(asm.R5, asm.R4).WithSymbol("queued"),
		asm.Sub.Reg(asm.R5, asm.R8),
		asm.LoadImm(asm.R1, int64(heldBytes)*bitNanoseconds/int64(turn.Trickle), asm.DWord),
		asm.JGT.Reg(asm.R5, asm.R1, "drop"),
		asm.StoreMem(asm.R0, before, asm.R3, asm.DWord),
		asm.Mov.Reg(asm.R9, asm.R4),
		asm.JLE.Reg(asm.R9, asm.R3, "count"),
		asm.Mov.Reg(asm.R9, asm.R3),
		asm.LoadMem(asm.R1, asm.R6, skbLen, asm.Word).WithSymbol("count"),
		asm.LoadImm(asm.R2, bitNanoseconds, asm.DWord),
		asm.Mul.Reg(asm.R1, asm.R2),
		asm.LoadImm(asm.R2, int64(turn.Trickle), asm.DWord),
		asm.Div.Reg(asm.R1, asm.R2),
		asm.Add.Reg(asm.R4, asm.R1),
		asm.StoreMem(asm.R0, spokenFor, asm.R4, asm.DWord),
	}
}

// leave stamps the packet with R9, or what is later: the last of its flow, whose
// slot is in R7, and a stamp that it has.
func leave() asm.Instructions {
	return asm.Instructions{
		asm.LoadMem(asm.R2, asm.R7, 0, asm.DWord).WithSymbol("leave"),
		asm.JGE.Reg(asm.R9, asm.R2, "stamped"),
		asm.Mov.Reg(asm.R9, asm.R2),
		asm.LoadMem(asm.R2, asm.R6, skbTstamp, asm.DWord).WithSymbol("stamped"),
		asm.JLE.Reg(asm.R2, asm.R9, "stamp"),
		asm.Mov.Reg(asm.R3, asm.R2),
		asm.Sub.Reg(asm.R3, asm.R8),
		asm.LoadImm(asm.R4, int64(ownStamp), asm.DWord),
		asm.JGT.Reg(asm.R3, asm.R4, "stamp"),
		asm.Mov.Reg(asm.R9, asm.R2),
		asm.StoreMem(asm.R7, 0, asm.R9, asm.DWord).WithSymbol("stamp"),
		asm.StoreMem(asm.R6, skbTstamp, asm.R9, asm.DWord),
	}
}

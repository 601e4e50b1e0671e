package linux

import (
	"encoding/binary"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// A kick is a packet that is dropped as soon as it is sorted: sending it makes
// the kernel look at the queue. No VM can mark packets.
const (
	kickMark  = 0x4a566b69
	kickProto = 0x88b5 // the first local experimental EtherType
)

// kicker sends kicks from an eBPF program: a packet socket would do, but takes
// another capability, and ten milliseconds to close.
type kicker struct{ program *ebpf.Program }

func newKicker() (*kicker, error) {
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "jv_kick", Type: ebpf.SchedCLS, License: "Apache-2.0",
		Instructions: asm.Instructions{
			asm.LoadImm(asm.R2, kickMark, asm.DWord),
			asm.StoreMem(asm.R1, skbMark, asm.R2, asm.Word),
			asm.LoadMem(asm.R2, asm.R1, skbScratch, asm.Word),
			asm.Mov.Imm(asm.R3, 0), // to send, not to receive
			asm.FnCloneRedirect.Call(),
			asm.Mov.Imm(asm.R0, 0),
			asm.Return(),
		},
	})
	if err != nil {
		return nil, fmt.Errorf("eBPF program: %w", err)
	}
	return &kicker{program}, nil
}

func (k *kicker) close() error { return k.program.Close() }

// kick makes the kernel look at the queue of a device of this thread's network
// namespace: a changed tbf is not looked at before the next packet, or until
// the old rate would have let one out.
func (k *kicker) kick(device int) error {
	frame, fields := make([]byte, 60), make([]byte, skbScratch+4)
	const addresses = 12 // of Ethernet; any do
	binary.BigEndian.PutUint16(frame[addresses:], kickProto)
	binary.NativeEndian.PutUint32(fields[skbScratch:], uint32(device))
	if _, err := k.program.Run(&ebpf.RunOptions{Data: frame, Context: fields}); err != nil {
		return fmt.Errorf("look at the queue: %w", err)
	}
	return nil
}

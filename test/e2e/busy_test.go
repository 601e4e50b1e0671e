package e2e

import (
	"context"
	"fmt"
	"testing"
)

// apart fails when two vCPUs may run on one CPU only, and that is the same.
func apart(ctx context.Context, pair []*machine) error {
	var bound []string
	for _, m := range pair {
		masks, err := m.vcpuMasks(ctx)
		if err != nil {
			return err
		}
		bound = append(bound, masks...)
	}
	if len(bound) != len(pair) {
		return fmt.Errorf("%d VMs have the vCPUs %q", len(pair), bound)
	}
	if oneCPU := len(bound[0]) == 1; oneCPU && bound[0] == bound[1] {
		return fmt.Errorf("both vCPUs may only run on CPU %s", bound[0])
	}
	return nil
}

// TestBusyVMsAreKeptApart: VMs that idle may be bound to one core, so that others
// sleep; when both become busy they are taken apart, and no later plan brings them
// together again. Whether they are then bound to a core each, or to none, is up to what
// else the cores have to do.
func TestBusyVMsAreKeptApart(t *testing.T) {
	f := newFixture(t)
	allCPUs(t)
	var pair []*machine
	for _, name := range []string{"busy-a", "busy-b"} {
		pair = append(pair, f.startVM(f.newVM(name, 1)))
		f.profile(name)
	}
	f.enforce()
	for _, m := range pair {
		f.eventually("an idle vCPU is bound to one CPU", m.pinned)
	}
	t.Logf("while both idle: %v", apart(t.Context(), pair))

	for _, m := range pair {
		if err := m.sandbox.GuestBurn(t.Context(), 1, burnSeconds); err != nil {
			t.Fatal(err)
		}
	}
	f.eventually("the agent has seen both vCPUs busy", func(ctx context.Context) error {
		for _, m := range pair {
			rates, err := f.ratesOf(ctx, m)
			if err != nil {
				return err
			}
			const busy = 0.5
			if len(rates.VCPUs) != 1 || rates.VCPUs[0].Demand() < busy {
				return fmt.Errorf("VM %s: vCPUs %+v", m.vmi.Name, rates.VCPUs)
			}
		}
		return nil
	})
	f.eventually("they are apart", func(ctx context.Context) error { return apart(ctx, pair) })
	const looks = 20
	for look := range looks {
		f.rounds(t.Context(), 1)
		if err := apart(t.Context(), pair); err != nil {
			t.Errorf("look %d of %d: %v", look+1, looks, err)
		}
	}
}

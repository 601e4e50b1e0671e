package simulated

import (
	"slices"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/test/sim"
)

// learning is long enough for the manager to have tried all windows.
const learning = 30 * time.Minute

// buffered steers a machine with lever Buffering alone, measures it, and returns the windows that
// each VM was planned to have, by turns: none twice in a row. At the end all taps have to be as
// they were.
func buffered(t *testing.T, m machine) (n *Managed, did measured, windows [][]time.Duration) {
	t.Helper()
	t.Cleanup(func() {
		for _, process := range must[[]host.Process](t)(n.Host.Processes()) {
			for _, tap := range must[[]host.Device](t)(n.Host.Taps(process.ID)) {
				if tap.Owner != host.QueueDefault || tap.Complete {
					t.Errorf("simulated %s is left with tap %+v", m.name, tap)
				}
			}
		}
	})
	n = manage(t, m, EnforcePolicy(v1alpha1.LeverBuffering), throughput)
	windows = make([][]time.Duration, len(m.vms))
	for range int(learning / pull) {
		if err := n.Steer(pull); err != nil {
			t.Fatal(err)
		}
		for i, vm := range m.named() {
			planned, _ := n.Plan.VM(vm.PodUID)
			window := planned.Buffering.Window
			if seen := windows[i]; len(seen) == 0 || seen[len(seen)-1] != window {
				windows[i] = append(seen, window)
			}
		}
	}
	return n, steer(t, n, m, 0, measuring), windows
}

// TestBufferingSavesStepByStep: on hosts with high rates and budgets windows become
// longer one by one, energy falls, and the plan stays.
func TestBufferingSavesStepByStep(t *testing.T) {
	t.Parallel()
	// One VM that receives, as in the published study, and a host of the size that runs VMs, which
	// send as well.
	one := study("KVM", 1, 0)
	one.vms = []sim.VM{{VCPUs: 4, Traffic: sim.Traffic{ToVM: 940 * mbit}}}
	server := study("server", 8, 0)
	for i := range server.vms {
		server.vms[i] = sim.VM{VCPUs: 2, Traffic: sim.Traffic{
			Programme: sim.Programme{Pattern: sim.Diurnal, Swing: 0.3},
			ToVM:      units.BitsPerSecond(100+30*i) * mbit, FromVM: units.BitsPerSecond(20+5*i) * mbit, PacketBytes: 700,
		}}
	}
	for _, m := range []machine{one, server} {
		plain := alone(t, m, nil)
		n, held, windows := buffered(t, m)
		platform := 1 - float64(held.platform/plain.platform)
		t.Logf("simulated %s: %v; buffered %v, %.1f %% and %.1f %% less; windows %v, %d changes of the plan",
			m.name, plain, held, 100*held.saved(plain), 100*platform, windows, n.Changes)
		if m.name == "KVM" {
			t.Logf("figure buffering_sim_saving_pct %.4g %%", 100*held.saved(plain))
		}
		for vm, windows := range windows {
			for i := 2; i < len(windows); i++ {
				if windows[i] != 2*windows[i-1] {
					t.Errorf("simulated %s: windows %v of VM %d are no steps", m.name, windows, vm)
				}
			}
			if last := windows[len(windows)-1]; last < model.FloodWindow {
				t.Errorf("simulated %s: windows %v of VM %d end early", m.name, windows, vm)
			}
		}
		if held.saved(plain) < 0.1 || platform < 0.05 || held.served < 0.999 {
			t.Errorf("simulated %s: %v, buffered %v", m.name, plain, held)
		}
	}
}

// TestAWindowThatHurtsIsLeft for a shorter one: where a ring is small, packets are lost, and
// where each request waits for a reply, throughput falls.
func TestAWindowThatHurtsIsLeft(t *testing.T) {
	t.Parallel()
	// 50,000 packets/s of 200 bytes arrive, and a tenth of them leaves.
	const rate = 50_000 * 200 * 8
	vm := sim.VM{VCPUs: 2, Traffic: sim.Traffic{ToVM: rate, FromVM: rate / 10, PacketBytes: 200}}
	ring, waiting := vm, vm
	ring.Ring = 40 // of 50 packets in 1 ms
	waiting.Traffic.RoundTrip = time.Millisecond
	for name, vm := range map[string]sim.VM{"small ring": ring, "requests that wait": waiting} {
		t.Run(name, func(t *testing.T) {
			m := study("KVM", 1, 0)
			m.name, m.vms = name, []sim.VM{vm}
			_, did, windows := buffered(t, m)
			got := windows[0]
			t.Logf("simulated %s: windows %v, %v", name, got, did)
			if end := got[len(got)-1]; slices.Max(got) <= end || end == 0 {
				t.Errorf("windows %v, want a shorter one in the end", got)
			}
			if did.served < 0.999 {
				t.Errorf("%.4f of the packets are handled in the end", did.served)
			}
		})
	}
}

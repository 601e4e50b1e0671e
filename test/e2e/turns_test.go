package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
)

const (
	// senderRate is what each VM wants to send, in bit/s.
	senderRate = 4e6
	// senderSeconds outlasts every test.
	senderSeconds = 1800
	// maxDelay of the senders' profile.
	maxDelay = 20 * time.Second
	// turnPeriods are watched.
	turnPeriods = 4
)

// arrival is some bytes that came at once.
type arrival struct {
	at    time.Duration // of CLOCK_MONOTONIC, as turns are
	bytes int
}

// receiver takes what one VM sends over its only connection.
type receiver struct {
	mu       sync.Mutex
	arrivals []arrival
	err      error
	closed   chan struct{}
}

func monotonic() time.Duration {
	var now unix.Timespec
	// CLOCK_MONOTONIC cannot fail on Linux.
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now)
	return time.Duration(now.Nano())
}

// receive has a VM send to this machine until the test's end.
func (f *fixture) receive(m *machine) *receiver {
	f.Helper()
	// The guest reaches this machine at the address that this machine reaches
	// the guest from.
	probe, err := net.Dial("tcp4", net.JoinHostPort(m.sandbox.IP(), "80"))
	if err != nil {
		f.Fatal(err)
	}
	own := probe.LocalAddr().(*net.TCPAddr).IP
	_ = probe.Close() // it told what was asked
	listener, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: own})
	if err != nil {
		f.Fatal(err)
	}
	defer listener.Close()
	if err := m.sandbox.GuestSend(f.Context(), listener.Addr().String(), senderRate, senderSeconds); err != nil {
		f.Fatal(err)
	}
	conn, err := listener.Accept()
	if err != nil {
		f.Fatal(err)
	}
	r := &receiver{closed: make(chan struct{})}
	go r.read(conn)
	f.Cleanup(func() { _ = conn.Close(); <-r.closed })
	return r
}

func (r *receiver) read(conn net.Conn) {
	defer close(r.closed)
	buffer := make([]byte, 256<<10)
	for {
		n, err := conn.Read(buffer)
		r.mu.Lock()
		if n > 0 {
			r.arrivals = append(r.arrivals, arrival{monotonic(), n})
		}
		if err != nil {
			if !errors.Is(err, net.ErrClosed) {
				r.err = err
			}
			r.mu.Unlock()
			return
		}
		r.mu.Unlock()
	}
}

// snapshot returns what came so far, and how the connection ended: nil while it
// has not.
func (r *receiver) snapshot() ([]arrival, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.arrivals), r.err
}

// between returns the bytes that came from a time to another.
func between(arrivals []arrival, from, to time.Duration) (sum int) {
	for _, a := range arrivals {
		if a.at >= from && a.at < to {
			sum += a.bytes
		}
	}
	return sum
}

// longestWait returns how late the latest byte of a span came, by the steady
// rate at which the VM sends: bytes are due in order.
func longestWait(arrivals []arrival, from time.Duration) time.Duration {
	var sum int
	var early, late time.Duration
	for i, a := range arrivals {
		sum += a.bytes
		due := time.Duration(float64(sum) * 8 / senderRate * float64(time.Second))
		lag := a.at - due
		if i == 0 || lag < early {
			early = lag // the earliest byte tells when the transfer began
		}
		if a.at >= from {
			late = max(late, lag)
		}
	}
	return late - early
}

// turns returns the turns of VMs as the plan has them, when each of the VMs has
// one in force.
func (f *fixture) turns(ctx context.Context, names ...string) (map[string]v1alpha1.TurnAction, error) {
	plan, err := f.plan(ctx)
	if err != nil {
		return nil, err
	}
	inForce := map[types.UID]bool{}
	for _, vm := range plan.Status.VMs {
		if vm.Lever == v1alpha1.LeverShaping && vm.State == v1alpha1.LeverInForce {
			inForce[vm.PodUID] = true
		}
	}
	out := map[string]v1alpha1.TurnAction{}
	for _, vm := range plan.Spec.VMs {
		if vm.Namespace == f.namespace && vm.Shaping != nil && vm.Shaping.Turn != nil && inForce[vm.PodUID] {
			out[vm.Name] = *vm.Shaping.Turn
		}
	}
	for _, name := range names {
		if _, has := out[name]; !has {
			return nil, fmt.Errorf("VM %s has no turn in force: %+v, applied %+v", name, plan.Spec.VMs, plan.Status.VMs)
		}
	}
	return out, nil
}

// inTurn returns the share of a span's bytes that came during a VM's turns.
func inTurn(arrivals []arrival, turn v1alpha1.TurnAction, from, to time.Duration) float64 {
	period := time.Duration(turn.PeriodMilliseconds) * time.Millisecond
	offset := time.Duration(turn.OffsetMilliseconds) * time.Millisecond
	length := time.Duration(turn.LengthMilliseconds) * time.Millisecond
	all, within := 0, 0
	for _, a := range arrivals {
		if a.at < from || a.at >= to {
			continue
		}
		all += a.bytes
		// What is sent at the very end of a turn arrives a moment later.
		const onItsWay = 50 * time.Millisecond
		if (a.at-offset)%period < length+onItsWay {
			within += a.bytes
		}
	}
	return float64(within) / float64(max(all, 1))
}

// probeUntil asks VMs in turn, which small packets do, for some periods. If probes
// were held too, one at least would be late in each hold of each VM, which lasts
// about half of a period.
func (f *fixture) probeUntil(end, period time.Duration, machines []*machine) {
	f.Helper()
	patience := period / 4
	holds := int((end-monotonic())/period) * len(machines)
	asked, late := 0, 0
	for monotonic() < end {
		for _, m := range machines {
			ctx, cancel := context.WithTimeout(f.Context(), patience)
			asked++
			if m.sandbox.GuestAnswers(ctx) != nil {
				late++
			}
			cancel()
		}
	}
	f.Logf("%d probes, %d of them late", asked, late)
	if asked == 0 || 3*late > holds {
		f.Errorf("%d of %d probes had no answer within %v, in %d holds", late, asked, patience, holds)
	}
}

// TestDeferrableVMsTakeTurns: two VMs that send all the time take turns, nothing
// is lost but time, and that is bounded; without a policy nothing is held. That this
// machine's kernel cannot hold packets of taps is told, and keeps nothing else from acting.
func TestDeferrableVMsTakeTurns(t *testing.T) {
	f := newFixture(t)
	names := []string{"backup-a", "backup-b"}
	machines, receivers := map[string]*machine{}, map[string]*receiver{}
	taps := map[string]string{}
	for _, name := range names {
		vm := f.newVM(name, 1)
		vm.Spec.Template.ObjectMeta.Labels["role"] = "backup"
		machines[name] = f.startVM(vm)
		receivers[name] = f.receive(machines[name])
		var err error
		if taps[name], err = machines[name].tapQueues(); err != nil {
			t.Fatal(err)
		}
	}
	profile := &v1alpha1.VMNetworkProfile{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "backup"},
		Spec: v1alpha1.VMNetworkProfileSpec{
			Selector:     metav1.LabelSelector{MatchLabels: map[string]string{"role": "backup"}},
			TrafficClass: v1alpha1.TrafficDeferrable, MaxDelay: &metav1.Duration{Duration: maxDelay},
			LatencyBudget: &metav1.Duration{Duration: 2 * time.Millisecond},
		},
	}
	f.create(profile)
	policy := f.enforceLevers(v1alpha1.LeverShaping, v1alpha1.LeverBuffering)
	var turns map[string]v1alpha1.TurnAction
	f.eventually("both VMs take turns", func(ctx context.Context) (err error) {
		turns, err = f.turns(ctx, names...)
		return err
	})
	f.bufferingBlocked(profile, len(names))

	period := time.Duration(turns[names[0]].PeriodMilliseconds) * time.Millisecond
	// Whole periods, and not the first: a VM that was held just before has sent
	// less than its mean.
	from := monotonic() + 2*period
	to := from + turnPeriods*period
	f.probeUntil(to, period, slices.Collect(maps.Values(machines)))
	after, err := f.turns(t.Context(), names...)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if after[name] != turns[name] {
			t.Errorf("the turn of VM %s changed from %+v to %+v without a cause", name, turns[name], after[name])
		}
		arrivals, err := receivers[name].snapshot()
		if err != nil {
			t.Fatalf("the connection of VM %s ended: %v", name, err)
		}
		share := inTurn(arrivals, turns[name], from, to)
		mean := float64(between(arrivals, from, to)) * 8 / (to - from).Seconds()
		wait := longestWait(arrivals, from)
		t.Logf("VM %s: turn %+v, %.1f %% of the bytes came in it, mean %.2f Mbit/s, longest wait %v", name, turns[name], 100*share, mean/1e6, wait)
		if share < 0.8 {
			t.Errorf("VM %s: %.1f %% of the bytes came in its turns: %+v", name, 100*share, turns[name])
		}
		if mean < 0.95*senderRate || mean > 1.05*senderRate {
			t.Errorf("VM %s sent %.2f Mbit/s on average, want %.2f within 5 %%", name, mean/1e6, senderRate/1e6)
		}
		if wait > maxDelay {
			t.Errorf("VM %s: a byte waited %v, maxDelay is %v", name, wait, maxDelay)
		}
	}

	f.delete(policy)
	f.eventually("nothing is shaped any more", func(context.Context) error {
		for name, m := range machines {
			if shaped, err := m.shaped(); err != nil || shaped {
				return fmt.Errorf("VM %s is shaped: %t, %w", name, shaped, err)
			}
		}
		return nil
	})
	for name, m := range machines {
		if is, err := m.tapQueues(); err != nil || is != taps[name] {
			t.Errorf("VM %s: the taps' queues were\n%sand are\n%s%v", name, taps[name], is, err)
		}
	}
	for name, r := range receivers {
		if _, err := r.snapshot(); err != nil && !errors.Is(err, io.EOF) {
			t.Errorf("the connection of VM %s ended: %v", name, err)
		}
	}
}

// shaped tells whether the pod's uplink has a qdisc that is not the kernel's own.
func (m *machine) shaped() (bool, error) {
	namespace, err := netns.GetFromPid(m.sandbox.QEMUPID())
	if err != nil {
		return false, err
	}
	defer namespace.Close()
	handle, err := netlink.NewHandleAt(namespace)
	if err != nil {
		return false, err
	}
	defer handle.Close()
	link, err := handle.LinkByName("eth0")
	if err != nil {
		return false, err
	}
	qdiscs, err := handle.QdiscList(link)
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(qdiscs, func(q netlink.Qdisc) bool { return q.Attrs().Handle != netlink.HANDLE_NONE }), nil
}

package dataplane

import (
	"context"
	"fmt"
	"testing"
	"time"

	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/test/cluster/handler"
	"github.com/joulevirt/joulevirt/test/dataplane/load"
	"github.com/joulevirt/joulevirt/test/dataplane/world"
)

// serving waits until new requests are answered by exactly the names.
func (s suite) serving(t *testing.T, url string, names []string) {
	t.Helper()
	err := s.WaitFor(t.Context(), world.Timeout, fmt.Sprintf("%s is served by %v", url, names), func(ctx context.Context) error {
		return answeredBy(ctx, s.Clients(4, url), names)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// answeredBy is satisfied when some requests are answered by exactly the names.
func answeredBy(ctx context.Context, clients load.Options, names []string) error {
	counts, err := load.Burst(ctx, clients, 60*len(names))
	if err != nil {
		return err
	}
	for _, name := range names {
		if counts.Answers[name] == 0 {
			return fmt.Errorf("%s does not answer: %s", name, counts)
		}
	}
	if len(counts.Answers) != len(names) {
		return fmt.Errorf("others answer: %s", counts)
	}
	return counts.NoFailures()
}

func (s suite) testEqualSplit(t *testing.T) {
	url := s.service(t, "equal", group, s.names...)
	counts, err := load.Burst(t.Context(), s.Clients(16, url), 5000)
	if err != nil {
		t.Fatal(err)
	}
	t.Log(counts)
	if err := counts.NoFailures(); err != nil {
		t.Error(err)
	}
	if worst := counts.Error(equal(s.names)); worst > 3 {
		t.Errorf("the split is %.1f points from equal: %s", worst, counts)
	}
}

func (s suite) testStandby(t *testing.T) {
	url := s.service(t, "standby", group, s.names...)
	kept := load.Start(paced(s.Clients(20, url), true))
	defer kept.Stop()
	if _, err := kept.Window(t.Context(), 100); err != nil {
		t.Fatal(err)
	}
	hurried := s.Clients(8, url)
	hurried.PerSecond = 1000
	fresh := load.Start(hurried)
	defer fresh.Stop()
	standby, active := s.names[:2], s.names[2:]
	for _, name := range standby {
		s.label(t, name, v1alpha1.ServingStandby)
	}
	s.serving(t, url, active)
	moved, err := fresh.Window(t.Context(), 3000)
	if err != nil {
		t.Fatal(err)
	}
	t.Log("new connections:", moved)
	if worst := moved.Error(equal(active)); worst > 5 {
		t.Errorf("new connections are %.1f points from the active VMs' equal shares: %s", worst, moved)
	}
	stayed, err := kept.Window(t.Context(), 200)
	if err != nil {
		t.Fatal(err)
	}
	t.Log("established connections:", stayed)
	if stayed.Answers[standby[0]]+stayed.Answers[standby[1]] == 0 {
		t.Errorf("established connections moved: %s", stayed)
	}
	for _, name := range standby {
		s.label(t, name, v1alpha1.ServingActive)
	}
	s.serving(t, url, s.names)
	for _, l := range []*load.Load{kept, fresh} {
		if err := l.Stop().NoFailures(); err != nil {
			t.Error(err)
		}
	}
}

func (s suite) testRates(t *testing.T) {
	url := s.service(t, "rates", group, s.names...)
	const answer = 20_000
	// Rates are of the time from here on, however long a busy machine takes over the first.
	begin := time.Now()
	_, err := s.Fleet.Rates(begin)
	if err != nil {
		t.Fatal(err)
	}
	counts, err := load.Burst(t.Context(), paced(s.Clients(8, fmt.Sprintf("%s?bytes=%d", url, answer)), false), 500)
	if err != nil {
		t.Fatal(err)
	}
	end := time.Now()
	rates, err := s.Fleet.Rates(end)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for node, all := range rates {
		for _, vm := range all {
			if vm.Namespace != s.namespace {
				continue
			}
			seen[vm.Name] = true
			payload := float64(8*answer*counts.Answers[vm.Name]) / end.Sub(begin).Seconds()
			if sent := float64(vm.Taps[0].FromVM.BitsPerSecond); sent < payload*0.98 || sent > payload*1.3 {
				t.Errorf("VM %s on node %s sent %.0f bit/s, want its answers' %.0f and some overhead", vm.Name, node, sent, payload)
			}
			if vm.Taps[0].ToVM.BitsPerSecond <= 0 || vm.PodUID == "" {
				t.Errorf("rates of VM %s: %+v", vm.Name, vm)
			}
		}
	}
	if len(seen) != vms || len(rates) != len(s.Nodes) {
		t.Errorf("rates of VMs %v on %d nodes, want all %d on %d", seen, len(rates), vms, len(s.Nodes))
	}
}

func (s suite) testNotReady(t *testing.T) {
	url := s.service(t, "unready", group, s.names...)
	clients := load.Start(paced(s.Clients(8, url), false))
	defer clients.Stop()
	s.fault(t, s.names[0], handler.VMFault{NotReady: true})
	s.serving(t, url, s.names[1:])
	s.fault(t, s.names[0], handler.VMFault{})
	s.serving(t, url, s.names)
	if err := clients.Stop().NoFailures(); err != nil {
		t.Errorf("the VM still serves, and yet: %v", err)
	}
}

func (s suite) testHang(t *testing.T) {
	url := s.service(t, "hanging", group, s.names...)
	member := s.Fleet.Member(s.key(s.names[0]))
	member.Hang(true)
	defer member.Hang(false)
	impatient := s.Clients(8, url)
	impatient.Timeout = time.Second
	counts, err := load.Burst(t.Context(), impatient, 100)
	if err != nil {
		t.Fatal(err)
	}
	if counts.Failures == 0 || counts.Answers[s.names[0]] != 0 {
		t.Errorf("VM %s hangs: %s", s.names[0], counts)
	}
	member.Hang(false)
	s.serving(t, url, s.names)
}

func (s suite) testLifecycle(t *testing.T) {
	url := s.service(t, "lifecycle", group, s.names...)
	name := s.key(s.names[1])
	before := s.Fleet.Member(name)
	target := s.Nodes[0]
	if before.Node == target {
		target = s.Nodes[1]
	}
	if err := s.Migrate(t.Context(), name, target); err != nil {
		t.Fatal(err)
	}
	s.serving(t, url, s.names)
	if after := s.Fleet.Member(name); after.IP() == before.IP() || after.Node != target {
		t.Errorf("after the migration the VM is at %s on node %s, before at %s on node %s", after.IP(), after.Node, before.IP(), before.Node)
	}
	var vmi kubevirtv1.VirtualMachineInstance
	if err := s.Client().Get(t.Context(), name, &vmi); err != nil {
		t.Fatal(err)
	}
	s.Fleet.Member(name).Crash()
	if err := s.WaitReplaced(t.Context(), &vmi); err != nil {
		t.Fatal(err)
	}
	s.serving(t, url, s.names)
}

// paced are clients that leave a small machine time for the rest.
func paced(o load.Options, keepAlive bool) load.Options {
	o.KeepAlive, o.PerSecond = keepAlive, 400
	return o
}

func (s suite) label(t *testing.T, name, serving string) {
	t.Helper()
	if err := s.Label(t.Context(), s.key(name), v1alpha1.LabelServing, serving); err != nil {
		t.Fatal(err)
	}
}

// fault is set until the test ends or it is set again.
func (s suite) fault(t *testing.T, name string, fault handler.VMFault) {
	t.Helper()
	if err := s.Handler().SetVMFault(t.Context(), s.key(name), fault); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Handler().SetVMFault(context.WithoutCancel(t.Context()), s.key(name), handler.VMFault{}); err != nil {
			t.Error(err)
		}
	})
}

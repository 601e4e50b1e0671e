package agent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/agent/discover"
	"github.com/joulevirt/joulevirt/internal/agent/journal"
	"github.com/joulevirt/joulevirt/internal/agent/publish"
	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/host/linux"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/power"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/test/agenttest"
	"github.com/joulevirt/joulevirt/test/hosttest"
)

func TestMain(m *testing.M) { hosttest.Main(m) }

// cluster says what a test wants, and takes the statuses.
type cluster struct {
	changes chan struct{}

	mu        sync.Mutex
	synced    bool
	inventory discover.Inventory
	listed    func() // called by Inventory after it has its answer
	plan      *v1alpha1.NodePlan
	renewed   time.Time
	status    v1alpha1.NodePlanStatus
}

func (c *cluster) Synced() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.synced
}

func (c *cluster) Changes() <-chan struct{} { return c.changes }

func (c *cluster) Inventory(context.Context) (*discover.Inventory, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	inventory := c.inventory
	if c.listed != nil {
		c.listed()
	}
	return &inventory, nil
}

func (c *cluster) Plan(context.Context) (*v1alpha1.NodePlan, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.plan, nil
}

func (c *cluster) LeaseRenewed(context.Context) (time.Time, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.renewed, nil
}

func (c *cluster) ReadPlan(ctx context.Context) (*v1alpha1.NodePlan, error) { return c.Plan(ctx) }

func (c *cluster) Offer(_ *v1alpha1.NodePlan, status v1alpha1.NodePlanStatus) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.status = status
}

// change makes a change that the cluster would signal.
func (c *cluster) change(do func()) {
	c.mu.Lock()
	do()
	c.mu.Unlock()
	select {
	case c.changes <- struct{}{}:
	default:
	}
}

func noPrior(model.Topology) power.NodePrior { return power.NodePrior{} }

// bench is an agent on a real VM's process, without a cluster.
type bench struct {
	*testing.T
	cluster    *cluster
	board      *publish.Board
	host       *linux.Host
	dir        string
	journal    *journal.Journal
	pod        *hosttest.Pod
	vm         *hosttest.VM
	vcpu       host.TaskID
	one, other units.CPUSet
	staleAfter time.Duration
	interval   time.Duration
	cancel     context.CancelFunc
	mortal     *mortal // nil: agents are not killed in their writes
}

func newBench(t *testing.T) *bench {
	b := &bench{T: t, dir: t.TempDir(), board: &publish.Board{}, staleAfter: time.Hour, interval: 20 * time.Millisecond}
	b.one, b.other = hosttest.TwoCPUs(t)
	b.pod = hosttest.NewPod(t, b.both().String())
	b.vm = hosttest.StartVM(t, "shop", "web")
	b.vcpu = b.vm.Thread("CPU 0/TCG")
	b.pod.Add(b.vm)
	uid := b.pod.UID
	b.cluster = &cluster{
		changes: make(chan struct{}, 1), synced: true, renewed: time.Now(),
		plan: &v1alpha1.NodePlan{
			ObjectMeta: metav1.ObjectMeta{Name: "node1", UID: "plan", Generation: 1},
			Spec: v1alpha1.NodePlanSpec{Revision: "r1", Apply: true, VMs: []v1alpha1.VMPlan{{
				VMReference: v1alpha1.VMReference{Namespace: "shop", Name: "web", PodUID: types.UID(uid)},
				Affinity:    &v1alpha1.AffinityAction{VCPUs: []v1alpha1.VCPUPin{{CPUs: b.one.String()}}},
			}}},
		},
	}
	agenttest.AddVM(&b.cluster.inventory, uid, "shop", "web")
	return b
}

func (b *bench) both() units.CPUSet { return b.one.Union(b.other) }

// start runs an agent and returns what ends it, by SIGTERM so to say.
func (b *bench) start() (stop func()) {
	b.Helper()
	end := b.run()
	return func() {
		if err := end(); err != nil {
			b.Error(err)
		}
	}
}

// run is start for an agent that may end with an error.
func (b *bench) run() (end func() error) {
	b.Helper()
	b.open()
	j := b.journal
	var seen host.Host = b.host
	if b.mortal != nil {
		b.mortal.Host = b.host
		seen = b.mortal
	}
	a, err := New(Options{
		Node: "node1", Interval: b.interval, StaleAfter: b.staleAfter,
		Host: seen, Cluster: b.cluster, Statuses: b.cluster,
		Prior: noPrior, Board: b.board, Clock: clock.RealClock{}, Log: logr.Discard(),
	}, j)
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	b.cancel = cancel
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	return sync.OnceValue(func() error {
		cancel()
		return errors.Join(<-ended, j.Close())
	})
}

func (b *bench) want(what string, cpus units.CPUSet) {
	b.Helper()
	hosttest.Eventually(b, what, func() bool {
		got, err := b.host.Affinity(b.vcpu)
		if err != nil {
			b.Fatal(err)
		}
		return got.Equal(cpus)
	})
}

func (b *bench) wantApplied(status metav1.ConditionStatus, reason string) {
	b.Helper()
	hosttest.Eventually(b, "condition Applied "+reason, func() bool {
		b.cluster.mu.Lock()
		defer b.cluster.mu.Unlock()
		c := meta.FindStatusCondition(b.cluster.status.Conditions, v1alpha1.ConditionApplied)
		return c != nil && c.Status == status && c.Reason == reason
	})
}

func (b *bench) rounds(n uint64) {
	b.Helper()
	var first uint64
	if s := b.board.Latest(); s != nil {
		first = s.Rounds
	}
	hosttest.Eventually(b, "rounds of samples", func() bool {
		s := b.board.Latest()
		return s != nil && s.Rounds >= first+n
	})
}

func (b *bench) write(name string, content []byte) {
	b.Helper()
	if err := os.WriteFile(filepath.Join(b.dir, name), content, 0o600); err != nil {
		b.Fatal(err)
	}
}

// open has the node and its journal.
func (b *bench) open() {
	b.Helper()
	var err error
	b.host, err = linux.New(linux.Options{ProcRoot: "/proc", SysRoot: "/sys"})
	if err != nil {
		b.Fatal(err)
	}
	facts, err := b.host.Facts()
	if err != nil {
		b.Fatal(err)
	}
	b.journal, err = journal.Open(b.dir, facts.BootID)
	if err != nil {
		b.Fatal(err)
	}
}

// crash ends an agent so that the node and the disk are as after kill -9: what
// it reverted is undone.
func (b *bench) crash(stop func()) {
	b.Helper()
	path := filepath.Join(b.dir, "journal.json")
	content, err := os.ReadFile(path)
	if err != nil {
		b.Fatal(err)
	}
	stop()
	b.write("journal.json", content)
	b.bind(b.one)
}

// bind binds the vCPU as anybody may.
func (b *bench) bind(cpus units.CPUSet) {
	b.Helper()
	mask := unix.NewCPUSet(units.MaxCPUs)
	for _, cpu := range cpus.CPUs() {
		mask.Set(cpu)
	}
	if err := unix.SchedSetaffinityDynamic(b.vcpu.TID, mask); err != nil {
		b.Fatal(err)
	}
}

func TestPlanIsFollowedAndUndoneAtTheEnd(t *testing.T) {
	b := newBench(t)
	stop := b.start()
	defer stop()
	b.want("the pin", b.one)
	b.wantApplied(metav1.ConditionTrue, v1alpha1.ReasonApplied)
	b.rounds(2)
	if s := b.board.Latest(); len(s.Rates.VMs) != 1 || s.InForce[v1alpha1.LeverAffinity] != 1 || !s.Rates.VMs[0].VCPUs[0].CPUs.Equal(b.one) {
		t.Errorf("state %+v with rates %+v", s, s.Rates)
	}
	b.cluster.change(func() { b.cluster.plan = nil })
	b.want("the pin to go with the plan", b.both())
	b.cluster.change(func() {
		b.cluster.plan = &v1alpha1.NodePlan{Spec: v1alpha1.NodePlanSpec{Apply: true, VMs: []v1alpha1.VMPlan{{
			VMReference: v1alpha1.VMReference{PodUID: types.UID(b.pod.UID)},
			Affinity:    &v1alpha1.AffinityAction{VCPUs: []v1alpha1.VCPUPin{{CPUs: b.other.String()}}},
		}}}}
	})
	b.want("the pin of another plan", b.other)
	stop()
	b.want("the pin to go with the agent", b.both())
	b.wantApplied(metav1.ConditionFalse, reasonAgentEnded)
}

func TestNothingIsDoneBeforeTheClusterIsKnown(t *testing.T) {
	b := newBench(t)
	crashed := b.start()
	b.want("the pin", b.one)
	b.crash(crashed)

	inventory := b.cluster.inventory
	b.cluster.change(func() {
		b.cluster.synced = false
		b.cluster.inventory = discover.Inventory{}
		// The objects come right after the agent listed them.
		lists := 0
		b.cluster.listed = func() {
			if lists++; lists == 3 {
				b.cluster.synced, b.cluster.inventory = true, inventory
			}
		}
	})
	stop := b.start()
	defer stop()
	b.rounds(6)
	if s := b.board.Latest(); s.Changes[v1alpha1.LeverAffinity] != 0 {
		t.Errorf("adopting the pins took %d writes", s.Changes[v1alpha1.LeverAffinity])
	}
	b.want("the pin to stay", b.one)
}

// An agent that ends before it knows the plan leaves no status of one that was killed.
func TestAnAgentThatEndsAtOnceSaysSo(t *testing.T) {
	b := newBench(t)
	crashed := b.start()
	b.want("the pin", b.one)
	b.wantApplied(metav1.ConditionTrue, v1alpha1.ReasonApplied)
	b.crash(crashed)
	b.cluster.change(func() {
		b.cluster.plan = b.cluster.plan.DeepCopy()
		b.cluster.plan.Status = v1alpha1.NodePlanStatus{VMsInForce: 1}
		b.cluster.synced, b.cluster.status = false, v1alpha1.NodePlanStatus{}
	})
	stop := b.start()
	stop()
	b.want("the pin to go with the agent", b.both())
	b.wantApplied(metav1.ConditionFalse, reasonAgentEnded)
	if status := b.cluster.status; status.VMsInForce != 0 {
		t.Errorf("status %+v", status)
	}
}

func TestAStaleManagerMeansUndo(t *testing.T) {
	b := newBench(t)
	stop := b.start()
	defer stop()
	b.want("the pin", b.one)
	b.cluster.change(func() { b.cluster.renewed = time.Now().Add(-2 * time.Hour) })
	b.want("the pin to go", b.both())
	b.wantApplied(metav1.ConditionFalse, reasonManagerStale)
	b.cluster.change(func() { b.cluster.renewed = time.Now() })
	b.want("the pin to come back", b.one)
	b.wantApplied(metav1.ConditionTrue, v1alpha1.ReasonApplied)
}

func TestACorruptJournalDoesNotKeepPins(t *testing.T) {
	b := newBench(t)
	crashed := b.start()
	b.want("the pin", b.one)
	b.crash(crashed)
	b.write("journal.json", []byte(`{"version":1,"entr`))
	b.cluster.change(func() { b.cluster.plan = nil })
	stop := b.start()
	defer stop()
	b.want("the pin to go", b.both())
}

func TestIsStale(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for name, test := range map[string]struct {
		seen, renewed time.Duration // before now; renewed 0: never, seen is the agent's start
		want          bool
	}{
		"fresh":                        {time.Second, time.Minute, false},
		"old":                          {16 * time.Minute, 16 * time.Minute, true},
		"old, agent just begun":        {time.Second, 16 * time.Minute, true},
		"never, agent just begun":      {time.Second, 0, false},
		"never, agent long begun":      {16 * time.Minute, 0, true},
		"from the future, just seen":   {time.Second, -time.Hour, false},
		"from the future, and no more": {16 * time.Minute, -time.Hour, true},
		"the node's clock was set on":  {time.Second, time.Hour, true},
	} {
		renewed := time.Time{}
		if test.renewed != 0 {
			renewed = now.Add(-test.renewed)
		}
		if got := isStale(now, now.Add(-test.seen), renewed, 15*time.Minute); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestJitter(t *testing.T) {
	for random, want := range map[float64]time.Duration{0: 12 * time.Minute, 0.5: 15 * time.Minute, 1: 18 * time.Minute} {
		if got := Jitter(15*time.Minute, random).Round(time.Second); got != want {
			t.Errorf("Jitter at %v = %v, want %v", random, got, want)
		}
	}
}

package accelerated

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/joulevirt/joulevirt/internal/agent"
	"github.com/joulevirt/joulevirt/internal/agent/journal"
	"github.com/joulevirt/joulevirt/internal/agent/publish"
	"github.com/joulevirt/joulevirt/internal/agent/watch"
	"github.com/joulevirt/joulevirt/internal/kube"
	"github.com/joulevirt/joulevirt/internal/power/prior"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/test/sim"
)

// The simulated hosts are of the size of the published study, with its traffic.
const (
	cores, vCPUs = 4, 1
	total        = 900e6 // bit/s of all VMs
	// swing of each VM's traffic, and the longest period.
	swing         = 0.4
	longestPeriod = 3 * time.Hour
	// busy is what a VM that computes takes, in CPUs.
	busy = 0.1
)

type nodeOptions struct {
	name   string
	seed   uint64
	clock  *clocktesting.FakeClock
	config *rest.Config
	dir    string
	pods   []corev1.Pod
	// swings is true when each VM's traffic goes up and down by itself. Otherwise it has
	// none yet.
	swings bool
	// mixed is true when one VM in three computes instead.
	mixed bool
	meter sim.Meter
}

// node is a simulated node with its agent.
type node struct {
	name string
	pods []corev1.Pod
	// twin is the same host without an agent. Both had drawn as much at the start.
	host, twin *sim.Host
	drawn      units.Joules
	board      *publish.Board
	// idle has an element when the agent has made a round and waits for the next.
	idle   chan struct{}
	synced func() bool
	end    context.CancelFunc
	group  *errgroup.Group
	log    *journal.Journal
}

func newNode(o nodeOptions) (*node, error) {
	n := &node{name: o.name, pods: o.pods, board: &publish.Board{}, idle: make(chan struct{}, 1)}
	var err error
	if n.host, err = newHost(&o); err != nil {
		return nil, err
	}
	if n.twin, err = newHost(&o); err != nil {
		return nil, err
	}
	n.drawn = n.host.PlatformJoules()
	return n, n.start(o)
}

// newHost makes a host with its VMs. Equal options make equal hosts.
func newHost(o *nodeOptions) (*sim.Host, error) {
	h, err := sim.NewHost(sim.Config{
		Name: o.name, Seed: o.seed, Start: o.clock.Now(), Shape: sim.Shape{CoresPerPackage: cores}, Physics: sim.KVM(),
		CPUModel: "of the study", Meter: o.meter, ShallowSleep: o.meter.Absent,
	})
	if err != nil {
		return nil, err
	}
	random := rand.New(rand.NewPCG(o.seed, 0))
	for i := range o.pods {
		pod := &o.pods[i]
		vm := sim.VM{
			PodUID: string(pod.UID), Namespace: pod.Namespace, Name: pod.Labels[kubevirtv1.VirtualMachineInstanceIDLabel], VCPUs: vCPUs,
		}
		switch {
		case o.mixed && i%3 == 2:
			vm.Compute = sim.Compute{Programme: programme(random), Cores: busy}
		case o.swings:
			vm.Traffic = sim.Traffic{Programme: programme(random), FromVM: units.BitsPerSecond(total / float64(len(o.pods)))}
		}
		if _, err := h.AddVM(vm); err != nil {
			return nil, err
		}
	}
	return h, nil
}

// programme goes up and down, in a time of its own.
func programme(random *rand.Rand) sim.Programme {
	return sim.Programme{Pattern: sim.Diurnal, Period: longestPeriod/2 + time.Duration(random.Int64N(int64(longestPeriod/2))), Swing: swing}
}

// start runs the agent as cmd/agent does, but for what it asks of a real host.
func (n *node) start(o nodeOptions) error {
	facts, err := n.host.Facts()
	if err != nil {
		return err
	}
	priors, err := prior.Default()
	if err != nil {
		return err
	}
	client, err := kube.NewClient(o.config)
	if err != nil {
		return err
	}
	watched, err := watch.New(client, n.name, "joulevirt-system")
	if err != nil {
		return err
	}
	n.synced = watched.Synced
	if n.log, err = journal.Open(o.dir, facts.BootID); err != nil {
		return err
	}
	writer := publish.NewWriter(client, n.name)
	statuses := publish.NewPlanStatuses(writer, o.clock, logr.Discard())
	loop, err := agent.New(agent.Options{
		Node: n.name, Interval: time.Second, StaleAfter: time.Hour, Host: n.host,
		Cluster: &stepped{Cluster: watched, node: n, clock: o.clock}, Statuses: statuses,
		Prior: priors.Node, Board: n.board, Clock: o.clock, Log: logr.Discard(),
	}, n.log)
	if err != nil {
		return errors.Join(err, n.log.Close())
	}
	findings := publish.Findings{RatesAddress: n.name + ":443", Facts: facts}
	ctx, end := context.WithCancel(context.Background())
	n.end = end
	n.group, ctx = errgroup.WithContext(ctx)
	n.group.Go(func() error { return watched.Run(ctx) })
	n.group.Go(func() error { return loop.Run(ctx) })
	n.group.Go(func() error { return statuses.Run(ctx) })
	n.group.Go(func() error { return publish.RunReporter(ctx, writer, o.clock, n.board, findings, logr.Discard()) })
	<-n.idle
	return nil
}

// waitSynced waits until the agent's watches have seen what there is.
func (n *node) waitSynced(ctx context.Context) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !n.synced() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for the watches of simulated node %s: %w", n.name, ctx.Err())
		}
	}
	return nil
}

// err is why the agent's last round failed: nothing fails on a simulated node.
func (n *node) err() error {
	if state := n.board.Latest(); state != nil && state.RoundError != nil {
		return fmt.Errorf("simulated node %s: %w", n.name, state.RoundError)
	}
	return nil
}

func (n *node) stop() error {
	if n.end == nil {
		return nil
	}
	n.end()
	return errors.Join(n.group.Wait(), n.log.Close())
}

// stepped is the API server as an agent sees it, but that the agent says when it waits,
// and that the manager's Lease, which is by the wall's clock, is always new.
type stepped struct {
	*watch.Cluster
	node  *node
	clock *clocktesting.FakeClock
}

// Changes implements agent.Cluster. The agent asks for it when it begins to wait.
func (s *stepped) Changes() <-chan struct{} {
	s.node.idle <- struct{}{}
	return nil
}

// LeaseRenewed implements agent.Cluster.
func (s *stepped) LeaseRenewed(context.Context) (time.Time, error) { return s.clock.Now(), nil }

// clients answer for the agents, without a connection.
type clients map[string]*node

func clientsOf(nodes []*node) clients {
	out := clients{}
	for _, n := range nodes {
		out[n.name] = n
	}
	return out
}

// For implements rates.Clients.
func (c clients) For(node string) *http.Client { return &http.Client{Transport: c[node]} }

// Forget implements rates.Clients.
func (clients) Forget(string) {}

// RoundTrip answers with the agent's newest rates.
func (n *node) RoundTrip(r *http.Request) (*http.Response, error) {
	if n == nil {
		return nil, errors.New("there is no such simulated node")
	}
	state := n.board.Latest()
	if state == nil {
		return nil, fmt.Errorf("simulated node %s has no rates yet", n.name)
	}
	body, err := json.Marshal(state.Rates)
	if err != nil {
		return nil, err
	}
	return &http.Response{
		StatusCode: http.StatusOK, ProtoMajor: 1, ProtoMinor: 1, Request: r,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)),
	}, nil
}

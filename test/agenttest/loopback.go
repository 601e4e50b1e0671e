// Package agenttest has what agents of simulated hosts need beside their host.
package agenttest

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/agent/discover"
)

// Loopback is the API server as far as one agent knows it: an agent.Cluster and an
// agent.Statuses. Its manager renews the Lease all the time.
type Loopback struct {
	clock     clock.PassiveClock
	inventory *discover.Inventory
	plan      *v1alpha1.NodePlan
	status    v1alpha1.NodePlanStatus
	idle      chan struct{}
}

// NewLoopback returns one without VMs and without a plan.
func NewLoopback(c clock.PassiveClock) *Loopback {
	return &Loopback{clock: c, inventory: &discover.Inventory{}, idle: make(chan struct{}, 1)}
}

// WaitIdle returns when the agent has made a round and waits for the next. Only then may
// anything be changed, and its status be read.
func (l *Loopback) WaitIdle() { <-l.idle }

// Follow replaces the plan's spec.
func (l *Loopback) Follow(spec v1alpha1.NodePlanSpec) {
	next := &v1alpha1.NodePlan{ObjectMeta: metav1.ObjectMeta{Name: "simulated", UID: "plan", Generation: 1}, Spec: spec}
	if l.plan != nil {
		next.Generation = l.plan.Generation + 1
	}
	l.plan = next
}

// Runs replaces what runs on the node.
func (l *Loopback) Runs(inventory *discover.Inventory) { l.inventory = inventory }

// Latest plan, as the agent gets it. Nil: none was to be followed.
func (l *Loopback) Latest() *v1alpha1.NodePlan { return l.plan }

// Status that the agent offered last.
func (l *Loopback) Status() v1alpha1.NodePlanStatus { return l.status }

// Synced implements agent.Cluster.
func (*Loopback) Synced() bool { return true }

// Changes implements agent.Cluster. The agent asks for it when it begins to wait.
func (l *Loopback) Changes() <-chan struct{} {
	l.idle <- struct{}{}
	return nil
}

// Inventory implements agent.Cluster.
func (l *Loopback) Inventory(context.Context) (*discover.Inventory, error) { return l.inventory, nil }

// Plan implements agent.Cluster.
func (l *Loopback) Plan(context.Context) (*v1alpha1.NodePlan, error) { return l.plan, nil }

// LeaseRenewed implements agent.Cluster.
func (l *Loopback) LeaseRenewed(context.Context) (time.Time, error) { return l.clock.Now(), nil }

// Offer implements agent.Statuses.
func (l *Loopback) Offer(_ *v1alpha1.NodePlan, status v1alpha1.NodePlanStatus) { l.status = status }

// ReadPlan implements agent.Statuses.
func (l *Loopback) ReadPlan(context.Context) (*v1alpha1.NodePlan, error) { return l.plan, nil }

// AddVM lets an inventory have a VM whose launcher pod this is.
func AddVM(inventory *discover.Inventory, podUID, namespace, name string) {
	if inventory.Pods == nil {
		inventory.Pods, inventory.VMIs = map[string]discover.Pod{}, map[string]discover.VMI{}
	}
	uid := "vmi-" + podUID
	inventory.Pods[podUID] = discover.Pod{UID: podUID, Namespace: namespace, CreatedBy: uid}
	inventory.VMIs[uid] = discover.VMI{UID: uid, Namespace: namespace, Name: name}
}

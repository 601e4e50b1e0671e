// Package watch is the agent's view of the cluster: the launcher pods and VMIs
// of its own node, its own NodePlan, and the manager's Lease. It watches
// nothing else, and stores of each object only what the agent needs.
package watch

import (
	"context"
	"fmt"
	"reflect"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"golang.org/x/sync/errgroup"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/agent/discover"
	"github.com/joulevirt/joulevirt/internal/kube"
)

// Cluster is what the API server has of one node.
type Cluster struct {
	informers *informers
	node      string
	// changes holds at most one signal.
	changes chan struct{}
	synced  atomic.Bool
	// changed counts the changes of the inventory, and inventory is as of known of them.
	changed   atomic.Uint64
	known     uint64
	inventory *discover.Inventory
}

// New prepares the watches of a node. namespace is where the manager's Lease
// is. Nothing is asked of the API server before Run.
func New(client *kube.Client, node, namespace string) (*Cluster, error) {
	watches, err := newInformers(client, node, namespace)
	if err != nil {
		return nil, fmt.Errorf("watches of node %s: %w", node, err)
	}
	return &Cluster{informers: watches, node: node, changes: make(chan struct{}, 1)}, nil
}

// Run watches until the context ends.
func (c *Cluster) Run(ctx context.Context) error {
	var group errgroup.Group
	var synced []cache.InformerSynced
	for _, watch := range []struct {
		informer cache.SharedInformer
		handler  cache.ResourceEventHandler
	}{
		{c.informers.pods, c.inventoryHandler()},
		{c.informers.vmis, c.inventoryHandler()},
		{c.informers.plans, c.planHandler()},
		// The Lease is read in each round: its renewals signal nothing.
		{c.informers.leases, cache.ResourceEventHandlerFuncs{}},
	} {
		if _, err := watch.informer.AddEventHandler(watch.handler); err != nil {
			return fmt.Errorf("watches of node %s: %w", c.node, err)
		}
		synced = append(synced, watch.informer.HasSynced)
		group.Go(func() error {
			watch.informer.RunWithContext(ctx)
			return nil
		})
	}
	if cache.WaitForCacheSync(ctx.Done(), synced...) {
		c.synced.Store(true)
		c.signal()
	}
	return group.Wait()
}

func (c *Cluster) signal() {
	select {
	case c.changes <- struct{}{}:
	default: // a signal that nobody has taken yet stands for this one too
	}
}

func (c *Cluster) inventoryHandler() cache.ResourceEventHandler {
	change := func() {
		c.changed.Add(1)
		c.signal()
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { change() },
		DeleteFunc: func(any) { change() },
		UpdateFunc: func(before, after any) {
			if !reflect.DeepEqual(valueOf(before), valueOf(after)) {
				change()
			}
		},
	}
}

// valueOf is what the inventory holds of an object.
func valueOf(object any) any {
	switch o := object.(type) {
	case *metav1.PartialObjectMetadata:
		return podOf(o)
	case *kube.VMI:
		return vmiOf(o)
	default:
		return nil
	}
}

// planHandler signals changes of the spec. The agent writes the status itself.
func (c *Cluster) planHandler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { c.signal() },
		DeleteFunc: func(any) { c.signal() },
		UpdateFunc: func(before, after any) {
			was, ok := before.(*v1alpha1.NodePlan)
			is, also := after.(*v1alpha1.NodePlan)
			if !ok || !also || was.UID != is.UID || was.Generation != is.Generation {
				c.signal()
			}
		},
	}
}

// Synced reports whether the cluster's objects are known. Before that, nothing
// can be said about what is absent.
func (c *Cluster) Synced() bool { return c.synced.Load() }

// Changes signals that the plan, or the VMs that it is about, changed.
func (c *Cluster) Changes() <-chan struct{} { return c.changes }

// Inventory returns the VMs of the node as the cluster has them; none before they are known.
// It is for one goroutine.
func (c *Cluster) Inventory(context.Context) (*discover.Inventory, error) {
	if !c.synced.Load() {
		return &discover.Inventory{}, nil
	}
	// Asked before the objects are read: what changes meanwhile has them read again.
	changed := c.changed.Load()
	if c.inventory != nil && changed == c.known {
		return c.inventory, nil
	}
	pods, vmis := c.informers.pods.GetStore().List(), c.informers.vmis.GetStore().List()
	inventory := &discover.Inventory{
		Pods: make(map[string]discover.Pod, len(pods)),
		VMIs: make(map[string]discover.VMI, len(vmis)),
	}
	for _, object := range pods {
		pod := podOf(object.(*metav1.PartialObjectMetadata))
		inventory.Pods[pod.UID] = pod
	}
	for _, object := range vmis {
		vmi := vmiOf(object.(*kube.VMI))
		inventory.VMIs[vmi.UID] = vmi
	}
	c.inventory, c.known = inventory, changed
	return inventory, nil
}

// Plan returns the node's plan, which is not to be changed; nil when there is
// none.
func (c *Cluster) Plan(context.Context) (*v1alpha1.NodePlan, error) {
	for _, plan := range c.informers.plans.GetStore().List() {
		return plan.(*v1alpha1.NodePlan), nil
	}
	return nil, nil
}

// LeaseRenewed returns when the manager last renewed its Lease; the zero time
// when it is not known to have done so.
func (c *Cluster) LeaseRenewed(context.Context) (time.Time, error) {
	for _, object := range c.informers.leases.GetStore().List() {
		if renewed := object.(*coordinationv1.Lease).Spec.RenewTime; renewed != nil {
			return renewed.Time, nil
		}
	}
	return time.Time{}, nil
}

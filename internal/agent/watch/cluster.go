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
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/agent/discover"
)

// Cluster is what the API server has of one node.
type Cluster struct {
	cache     cache.Cache
	node      string
	namespace string
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
func New(config *rest.Config, node, namespace string) (*Cluster, error) {
	scheme, err := NewScheme()
	if err != nil {
		return nil, err
	}
	readOnly := true
	watches, err := cache.New(config, cache.Options{
		Scheme: scheme, Mapper: NewMapper(),
		ByObject:                    byObject(node, namespace),
		DefaultTransform:            cache.TransformStripManagedFields(),
		ReaderFailOnMissingInformer: true,
		// The objects are read every second and never changed.
		DefaultUnsafeDisableDeepCopy: &readOnly,
	})
	if err != nil {
		return nil, fmt.Errorf("watches of node %s: %w", node, err)
	}
	return &Cluster{cache: watches, node: node, namespace: namespace, changes: make(chan struct{}, 1)}, nil
}

// Run watches until the context ends.
func (c *Cluster) Run(ctx context.Context) error {
	handlers := map[client.Object]toolscache.ResourceEventHandler{
		&corev1.Pod{}:                        c.inventoryHandler(),
		&kubevirtv1.VirtualMachineInstance{}: c.inventoryHandler(),
		&v1alpha1.NodePlan{}:                 c.planHandler(),
		// The Lease is read in each round: its renewals signal nothing.
		&coordinationv1.Lease{}: toolscache.ResourceEventHandlerFuncs{},
	}
	for object, handler := range handlers {
		informer, err := c.cache.GetInformer(ctx, object, cache.BlockUntilSynced(false))
		if err != nil {
			return fmt.Errorf("watch %T: %w", object, err)
		}
		if _, err := informer.AddEventHandler(handler); err != nil {
			return fmt.Errorf("watch %T: %w", object, err)
		}
	}
	go func() {
		if c.cache.WaitForCacheSync(ctx) {
			c.synced.Store(true)
			c.signal()
		}
	}()
	if err := c.cache.Start(ctx); err != nil {
		return fmt.Errorf("watches of node %s: %w", c.node, err)
	}
	return nil
}

func (c *Cluster) signal() {
	select {
	case c.changes <- struct{}{}:
	default: // a signal that nobody has taken yet stands for this one too
	}
}

func (c *Cluster) inventoryHandler() toolscache.ResourceEventHandler {
	change := func() {
		c.changed.Add(1)
		c.signal()
	}
	return toolscache.ResourceEventHandlerFuncs{
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
	case *corev1.Pod:
		return podOf(o)
	case *kubevirtv1.VirtualMachineInstance:
		return vmiOf(o)
	default:
		return nil
	}
}

// planHandler signals changes of the spec. The agent writes the status itself.
func (c *Cluster) planHandler() toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerFuncs{
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
func (c *Cluster) Inventory(ctx context.Context) (*discover.Inventory, error) {
	if !c.synced.Load() {
		return &discover.Inventory{}, nil
	}
	// Asked before the objects are read: what changes meanwhile has them read again.
	changed := c.changed.Load()
	if c.inventory != nil && changed == c.known {
		return c.inventory, nil
	}
	var pods corev1.PodList
	if err := c.cache.List(ctx, &pods); err != nil {
		return nil, fmt.Errorf("launcher pods of node %s: %w", c.node, err)
	}
	var vmis kubevirtv1.VirtualMachineInstanceList
	if err := c.cache.List(ctx, &vmis); err != nil {
		return nil, fmt.Errorf("VMIs of node %s: %w", c.node, err)
	}
	inventory := &discover.Inventory{
		Pods: make(map[string]discover.Pod, len(pods.Items)),
		VMIs: make(map[string]discover.VMI, len(vmis.Items)),
	}
	for i := range pods.Items {
		pod := podOf(&pods.Items[i])
		inventory.Pods[pod.UID] = pod
	}
	for i := range vmis.Items {
		vmi := vmiOf(&vmis.Items[i])
		inventory.VMIs[vmi.UID] = vmi
	}
	c.inventory, c.known = inventory, changed
	return inventory, nil
}

// Plan returns the node's plan, which is not to be changed; nil when there is
// none.
func (c *Cluster) Plan(ctx context.Context) (*v1alpha1.NodePlan, error) {
	var plan v1alpha1.NodePlan
	err := c.cache.Get(ctx, client.ObjectKey{Name: c.node}, &plan)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("NodePlan %s: %w", c.node, err)
	}
	return &plan, nil
}

// LeaseRenewed returns when the manager last renewed its Lease; the zero time
// when it is not known to have done so.
func (c *Cluster) LeaseRenewed(ctx context.Context) (time.Time, error) {
	var lease coordinationv1.Lease
	err := c.cache.Get(ctx, client.ObjectKey{Namespace: c.namespace, Name: ManagerLease}, &lease)
	if apierrors.IsNotFound(err) {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("manager's Lease %s/%s: %w", c.namespace, ManagerLease, err)
	}
	if lease.Spec.RenewTime == nil {
		return time.Time{}, nil
	}
	return lease.Spec.RenewTime.Time, nil
}

package handler

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	kubevirtv1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	crhandler "sigs.k8s.io/controller-runtime/pkg/handler"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// serviceAccount is who may write the status of VMIs: KubeVirt's webhook lets
// nobody else.
const serviceAccount = "system:serviceaccount:kubevirt:kubevirt-handler"

// createdByIndex finds the launcher pods of a VMI by its UID.
const createdByIndex = "created-by"

// workers is how many VMIs, and how many pods, are worked on at once.
const workers = 16

// Options are the handler's settings.
type Options struct {
	// RealNodes are the nodes that are machines, by name; all other nodes are
	// simulated.
	RealNodes map[string]Runtime
	// Log may be zero: nothing is logged, but for what controller-runtime's
	// cache says to its global logger, which is the process's to set.
	Log logr.Logger
}

// Handler plays virt-handler on all nodes and the kubelet on real ones.
type Handler struct {
	manager manager.Manager
	// asHandler writes as virt-handler's service account, asNode as an
	// administrator: it does what a kubelet would. Both read from the cache.
	asHandler, asNode client.Client
	faults            *faults
	sandboxes         *sandboxes
	ready             chan struct{}
	wake              chan event.GenericEvent // VMIs to look at again
	wakePod           chan event.GenericEvent // pods of real nodes, likewise
	log               logr.Logger
}

// New returns a Handler for the cluster that an administrator's config reaches.
func New(config *rest.Config, options Options) (*Handler, error) {
	log := options.Log
	if log.GetSink() == nil {
		// Not logr.Discard: for controller-runtime that means "use the default".
		log = logr.New(ctrllog.NullLogSink{})
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, kubevirtv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("register API types: %w", err)
		}
	}
	mgr, err := ctrl.NewManager(config, manager.Options{
		Scheme:                  scheme,
		Logger:                  log,
		Metrics:                 metricsserver.Options{BindAddress: "0"},
		GracefulShutdownTimeout: ptr.To(30 * time.Second),
		Controller:              ctrlConfig(),
	})
	if err != nil {
		return nil, fmt.Errorf("virt-handler's stand-in: %w", err)
	}
	asHandler, err := impersonating(config, mgr)
	if err != nil {
		return nil, fmt.Errorf("client of %s: %w", serviceAccount, err)
	}
	h := &Handler{
		manager: mgr, asHandler: asHandler, asNode: mgr.GetClient(),
		faults: newFaults(), sandboxes: newSandboxes(options.RealNodes),
		ready: make(chan struct{}), wake: make(chan event.GenericEvent, 1024), wakePod: make(chan event.GenericEvent, 1024),
		log: log,
	}
	return h, h.setup()
}

// impersonating returns a client that acts as virt-handler and shares the
// manager's cache.
func impersonating(config *rest.Config, mgr manager.Manager) (client.Client, error) {
	config = rest.CopyConfig(config)
	config.Impersonate = rest.ImpersonationConfig{
		UserName: serviceAccount,
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:kubevirt", "system:authenticated"},
	}
	return client.New(config, client.Options{
		Scheme: mgr.GetScheme(),
		Mapper: mgr.GetRESTMapper(),
		Cache:  &client.CacheOptions{Reader: mgr.GetCache()},
	})
}

func (h *Handler) setup() error {
	err := h.manager.GetFieldIndexer().IndexField(context.Background(), &corev1.Pod{}, createdByIndex,
		func(pod client.Object) []string { return []string{pod.GetLabels()[kubevirtv1.CreatedByLabel]} })
	if err != nil {
		return fmt.Errorf("index launcher pods: %w", err)
	}
	options := controller.Options{MaxConcurrentReconciles: workers}
	err = builder.ControllerManagedBy(h.manager).Named("handler-vmi").WithOptions(options).
		For(&kubevirtv1.VirtualMachineInstance{}).
		WatchesRawSource(source.Channel(h.wake, &crhandler.EnqueueRequestForObject{})).
		Complete(reconcilerFunc(h.reconcileVMI))
	if err != nil {
		return fmt.Errorf("watch VMIs: %w", err)
	}
	err = builder.ControllerManagedBy(h.manager).Named("handler-pod").WithOptions(options).
		For(&corev1.Pod{}, builder.WithPredicates(h.onRealNode())).
		WatchesRawSource(source.Channel(h.wakePod, &crhandler.EnqueueRequestForObject{})).
		Complete(reconcilerFunc(h.reconcilePod))
	if err != nil {
		return fmt.Errorf("watch pods: %w", err)
	}
	err = builder.ControllerManagedBy(h.manager).Named("handler-heartbeat").
		For(&corev1.Node{}).
		Complete(reconcilerFunc(h.reconcileNode))
	if err != nil {
		return fmt.Errorf("watch nodes: %w", err)
	}
	return h.manager.Add(manager.RunnableFunc(func(context.Context) error {
		close(h.ready) // runnables of this kind start after the caches are filled
		return nil
	}))
}

// Run works until ctx ends, then stops the pods of real nodes.
func (h *Handler) Run(ctx context.Context) error {
	err := h.manager.Start(ctx)
	// The caller's ctx has ended; what it started must end nevertheless.
	if stopErr := h.sandboxes.stopAll(context.WithoutCancel(ctx)); stopErr != nil {
		return fmt.Errorf("stop the pods of real nodes: %w", stopErr)
	}
	if err != nil {
		return fmt.Errorf("virt-handler's stand-in: %w", err)
	}
	return nil
}

// Ready is closed when the handler works.
func (h *Handler) Ready() <-chan struct{} { return h.ready }

// wakeVMI makes the handler look at a VMI again.
func (h *Handler) wakeVMI(key types.NamespacedName) {
	vmi := &kubevirtv1.VirtualMachineInstance{}
	vmi.Namespace, vmi.Name = key.Namespace, key.Name
	h.wake <- event.GenericEvent{Object: vmi}
}

// launcherPods returns the launcher pods of a VMI.
func (h *Handler) launcherPods(ctx context.Context, vmi *kubevirtv1.VirtualMachineInstance) ([]corev1.Pod, error) {
	var pods corev1.PodList
	err := h.asNode.List(ctx, &pods, client.InNamespace(vmi.Namespace), client.MatchingFields{createdByIndex: string(vmi.UID)})
	if err != nil {
		return nil, fmt.Errorf("list the launcher pods of VMI %s/%s: %w", vmi.Namespace, vmi.Name, err)
	}
	return pods.Items, nil
}

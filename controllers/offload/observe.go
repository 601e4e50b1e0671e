package offload

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/energy"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe"
	"github.com/joulevirt/joulevirt/internal/planner"
	"github.com/joulevirt/joulevirt/internal/routing"
	"github.com/joulevirt/joulevirt/internal/routing/pods"
	"github.com/joulevirt/joulevirt/internal/routing/service"
)

// seen is what is known of a HybridWorkload.
type seen struct {
	owner *v1alpha1.HybridWorkload
	// service and template are nil when they do not exist.
	service  *corev1.Service
	template *corev1.PodTemplate
	// refusal is why no VM has a gateway. Nil: they may.
	refusal *routing.Refusal
	// shares is true when VMs may have shares: the path is SharedMemory, and what it needs is installed.
	shares bool
	// vms in the order of their names: first those that are selected and run, or wait for their shares,
	// then those that have still to leave their gateways.
	vms      []vmFacts
	selected int
	members  []routing.Member
	// labelled is true when all selected VMs and their pods have the label that the Service selects.
	labelled bool
	// strays are gateways whose launcher pods are gone.
	strays []gateway
	// withdrawn are the gateways that the guard took from VMs, and those that are remembered.
	withdrawn []model.Withdrawal
	// nodes that run the VMs, and where the power of each is known from.
	nodes   []planner.GroupNode
	choices []energy.Choice
	// proof is how the lever stands by trials. Nil: that is not known yet.
	proof *model.Proof
	// at is when it was observed.
	at time.Time
}

// isWanted returns whether some VM may have a gateway.
func (s *seen) isWanted() bool {
	return s.refusal == nil && slices.ContainsFunc(s.vms[:s.selected], func(vm vmFacts) bool { return !vm.permission.Undo && vm.share.refusal == nil })
}

// holds returns whether there are gateways, or VMs that they answer for.
func (s *seen) holds() bool {
	return slices.ContainsFunc(s.vms, func(vm vmFacts) bool {
		return len(vm.gateways) > 0 || vm.pod != nil && pods.MarkOf(vm.pod).Profile == Holder(s.owner.Name)
	})
}

// isAttached returns whether the Service selects by the label, which all have. One that was adopted
// is so only as long as its owner agrees.
func (s *seen) isAttached() bool {
	adopted, agrees := s.service.Labels[v1alpha1.LabelAdopted] != "", s.service.Annotations[v1alpha1.AnnotationAdopt] == "true"
	return s.labelled && s.service.Spec.Selector[v1alpha1.LabelServing] == v1alpha1.ServingActive && (agrees || !adopted)
}

// group is the HybridWorkload as what steers Services knows groups.
func (s *seen) group() routing.Group {
	return routing.Group{
		Profile: types.NamespacedName{Namespace: s.owner.Namespace, Name: Holder(s.owner.Name)}, UID: s.owner.UID,
		Target: v1alpha1.TrafficGroup{Kind: v1alpha1.GroupService, Name: s.owner.Spec.ServiceName}, Members: s.members,
	}
}

// withdrawal of a VM's gateway that is remembered. Nil: nothing is.
func (s *seen) withdrawal(vm *vmFacts) *model.Withdrawal {
	at := slices.IndexFunc(s.withdrawn, func(w model.Withdrawal) bool { return vm.pod != nil && w.PodUID == string(vm.pod.UID) })
	if at < 0 {
		return nil
	}
	return &s.withdrawn[at]
}

func (r *Reconciler) observe(ctx context.Context, owner *v1alpha1.HybridWorkload) (*seen, error) {
	s := &seen{owner: owner, at: r.Clock.Now(), withdrawn: r.Guard.withdrawals(owner), service: &corev1.Service{}, template: &corev1.PodTemplate{}}
	key := types.NamespacedName{Namespace: owner.Namespace, Name: owner.Spec.ServiceName}
	err := r.Client.Get(ctx, key, s.service)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("get Service %s: %w", key, err)
	}
	if apierrors.IsNotFound(err) {
		s.service = nil
	}
	err = r.Live.Get(ctx, types.NamespacedName{Namespace: r.Namespace, Name: v1alpha1.GatewayTemplate}, s.template)
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		s.template, err = nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("get PodTemplate %s/%s: %w", r.Namespace, v1alpha1.GatewayTemplate, err)
	}
	if err := r.observeShares(ctx, s); err != nil {
		return nil, err
	}
	if err := r.vms(ctx, s); err != nil {
		return nil, err
	}
	if s.refusal, err = r.refusal(ctx, s); err != nil {
		return nil, err
	}
	return s, r.addGateways(ctx, s)
}

// refusal returns why no VM of a HybridWorkload may have a gateway.
func (r *Reconciler) refusal(ctx context.Context, s *seen) (*routing.Refusal, error) {
	refuse := func(reason, format string, args ...any) *routing.Refusal {
		return &routing.Refusal{Reason: reason, Message: fmt.Sprintf(format, args...)}
	}
	name := s.owner.Spec.ServiceName
	switch {
	case s.service == nil:
		return refuse(v1alpha1.ReasonGroupNotFound, "Service %s does not exist: create it, or correct spec.serviceName", name), nil
	case s.template == nil:
		return refuse(v1alpha1.ReasonOffloadNotInstalled, "PodTemplate %s/%s is not there for the manager to read: apply config/offload, or set offload.enabled of the chart", r.Namespace, v1alpha1.GatewayTemplate), nil
	case probePortOf(s.template) == 0:
		return refuse(v1alpha1.ReasonOffloadNotInstalled, "the container of PodTemplate %s/%s has no port named %s: apply config/offload as it is shipped", r.Namespace, v1alpha1.GatewayTemplate, probePort), nil
	case isShared(s.owner) && !s.shares:
		return refuse(v1alpha1.ReasonShareNotInstalled, "StorageClass %s is not there for the manager to read: apply config/shared-memory, or set offload.sharedMemory.enabled of the chart", v1alpha1.ShareName), nil
	}
	if by, err := r.takenBy(ctx, s.owner); err != nil || by != "" {
		return refuse(v1alpha1.ReasonServiceTaken, "Service %s is steered for %s: let one of the two have it", name, by), err
	}
	var unsupported *routing.Refusal
	if errors.As(service.Check(s.service, false), &unsupported) {
		return unsupported, nil
	}
	if problem := checkPort(s.service, s.owner.Spec.Port, probePortOf(s.template)); problem != "" {
		return refuse(v1alpha1.ReasonServicePort, "%s", problem), nil
	}
	for key := range s.service.Spec.Selector {
		if key == virtv1.AppLabel || key == virtv1.CreatedByLabel || key == v1alpha1.LabelGateway {
			return refuse(v1alpha1.ReasonSelectorMismatch, "spec.selector of Service %s has label %s, which a gateway may not have: select the VMs by labels of your own", name, key), nil
		}
	}
	if len(s.service.Spec.Selector) == 0 {
		return refuse(v1alpha1.ReasonSelectorMismatch, "spec.selector of Service %s is empty: select the VMs by their labels", name), nil
	}
	problem, err := r.checkSelectors(ctx, s)
	if err != nil || problem == "" {
		return nil, err
	}
	return refuse(v1alpha1.ReasonSelectedElsewhere, "%s", problem), nil
}

// checkPort returns why a gateway cannot serve the Service's port. Empty: it can.
func checkPort(s *corev1.Service, number, probe int32) string {
	port := servicePort(s, number)
	switch {
	case port == nil:
		return fmt.Sprintf("spec.ports of Service %s has no port %d: correct spec.port", s.Name, number)
	case len(s.Spec.Ports) > 1:
		return fmt.Sprintf("spec.ports of Service %s has other ports than %d, which a gateway does not serve: make a Service of its own for them", s.Name, number)
	case port.Protocol != corev1.ProtocolTCP && port.Protocol != "":
		return fmt.Sprintf("port %d of Service %s has protocol %s, and a gateway serves TCP", number, s.Name, port.Protocol)
	case port.TargetPort.IntVal == 0:
		return fmt.Sprintf("targetPort of port %d of Service %s is a name: set it to the number that the VMs listen on", number, s.Name)
	case port.TargetPort.IntVal == probe:
		return fmt.Sprintf("targetPort %d of Service %s is the gateway's own for probes: let the VMs listen on another", probe, s.Name)
	}
	return ""
}

// takenBy names who else steers the Service: a profile's group, or an older HybridWorkload.
func (r *Reconciler) takenBy(ctx context.Context, owner *v1alpha1.HybridWorkload) (string, error) {
	var profiles v1alpha1.VMNetworkProfileList
	if err := r.Client.List(ctx, &profiles, client.InNamespace(owner.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return "", fmt.Errorf("list VMNetworkProfiles: %w", err)
	}
	for i := range profiles.Items {
		p := &profiles.Items[i]
		if g := p.Spec.Group; g != nil && g.Kind == v1alpha1.GroupService && g.Name == owner.Spec.ServiceName && p.DeletionTimestamp.IsZero() {
			return "spec.group of VMNetworkProfile " + p.Name, nil
		}
	}
	var others v1alpha1.HybridWorkloadList
	if err := r.Client.List(ctx, &others, client.InNamespace(owner.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return "", fmt.Errorf("list HybridWorkloads: %w", err)
	}
	for i := range others.Items {
		o := &others.Items[i]
		before := cmp.Or(o.CreationTimestamp.Compare(owner.CreationTimestamp.Time), strings.Compare(o.Name, owner.Name)) < 0
		if o.Spec.ServiceName == owner.Spec.ServiceName && before && o.DeletionTimestamp.IsZero() {
			return "the older HybridWorkload " + o.Name, nil
		}
	}
	return "", nil
}

// checkSelectors returns what selects gateways or VMs that should not. What others select is read
// once in a while.
func (r *Reconciler) checkSelectors(ctx context.Context, s *seen) (string, error) {
	key := client.ObjectKeyFromObject(s.owner)
	r.mu.Lock()
	known := r.checks[key]
	r.mu.Unlock()
	if r.Clock.Since(known.at) < review/2 {
		return known.problem, nil
	}
	foreign, err := foreignSelectors(ctx, r.Live, s.owner.Namespace)
	if err != nil {
		return "", err
	}
	var services corev1.ServiceList
	if err := r.Client.List(ctx, &services, client.InNamespace(s.owner.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return "", fmt.Errorf("list Services: %w", err)
	}
	known = check{at: r.Clock.Now()}
	for i := range s.vms {
		if pod := s.vms[i].pod; pod != nil && known.problem == "" {
			known.problem = selectedElsewhere(foreign, services.Items, s.service.Name, gatewayLabels(s.service, pod), pod.Labels)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.checks[key] = known
	return known.problem, nil
}

// vms reads the VMs that are selected and run, and those that a gateway still answers for.
func (r *Reconciler) vms(ctx context.Context, s *seen) error {
	selector, err := metav1.LabelSelectorAsSelector(&s.owner.Spec.Selector)
	if err != nil {
		return fmt.Errorf("read spec.selector: %w", err)
	}
	var vmis virtv1.VirtualMachineInstanceList
	if err := r.Client.List(ctx, &vmis, client.InNamespace(s.owner.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list VMIs: %w", err)
	}
	slices.SortFunc(vmis.Items, func(x, y virtv1.VirtualMachineInstance) int { return strings.Compare(x.Name, y.Name) })
	launchers, of, err := r.launchers(ctx, s.owner.Namespace)
	if err != nil {
		return err
	}
	s.labelled = true
	taken := map[types.UID]bool{}
	for i := range vmis.Items {
		vmi := &vmis.Items[i]
		if vmi.IsFinal() || !selector.Matches(labels.Set(vmi.Labels)) {
			continue
		}
		s.members = append(s.members, memberOf(vmi, of[vmi.UID]))
		s.labelled = s.labelled && vmi.Labels[v1alpha1.LabelServing] != "" && !slices.ContainsFunc(of[vmi.UID], func(pod *corev1.Pod) bool {
			return pods.MarkOf(pod).Serving == "" && !pods.IsEnding(pod)
		})
		vm := vmFacts{name: vmi.Name, node: vmi.Status.NodeName}
		if vm.share, err = r.share(ctx, s, vmi); err != nil {
			return err
		}
		if !observe.IsRunning(vmi) || vmi.Status.NodeName == "" {
			if vm.share.refusal != nil {
				s.vms = append(s.vms, vm)
			}
			continue
		}
		for _, pod := range of[vmi.UID] {
			if vmi.Status.ActivePods[pod.UID] == vm.node && !pods.IsEnding(pod) {
				vm.pod, taken[pod.UID] = pod, true
			}
		}
		node, err := r.node(ctx, s, vm.node)
		if err != nil {
			return err
		}
		vm.permission = planner.PermitVM(node, vmi.Name, observe.OptOut(vmi), v1alpha1.LeverOffload)
		if w := s.withdrawal(&vm); w != nil && w.Lasts(r.Clock.Now()) && !vm.permission.Undo {
			vm.permission = planner.Permission{Undo: true, Reason: v1alpha1.ReasonGuardWithdrawn, Message: w.Words()}
		}
		s.vms = append(s.vms, vm)
	}
	s.selected = len(s.vms)
	for i := range launchers {
		if pod := &launchers[i]; !taken[pod.UID] && pods.MarkOf(pod).Profile == Holder(s.owner.Name) && !pods.IsEnding(pod) {
			s.vms = append(s.vms, formerVM(pod))
		}
	}
	return nil
}

// node reads a node that runs VMs, once.
func (r *Reconciler) node(ctx context.Context, s *seen, name string) (*planner.GroupNode, error) {
	at := slices.IndexFunc(s.nodes, func(n planner.GroupNode) bool { return n.Name == name })
	if at < 0 {
		node, choice, err := r.Observer.Node(ctx, name, s.owner.Namespace)
		if err != nil {
			return nil, err
		}
		at, s.nodes, s.choices = len(s.nodes), append(s.nodes, node), append(s.choices, choice)
	}
	return &s.nodes[at], nil
}

// launchers reads the launcher pods of a namespace, also by the UIDs of their VMs.
func (r *Reconciler) launchers(ctx context.Context, namespace string) ([]corev1.Pod, map[types.UID][]*corev1.Pod, error) {
	var list corev1.PodList
	err := r.Client.List(ctx, &list, client.InNamespace(namespace), client.MatchingLabels{virtv1.AppLabel: observe.Launcher}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, nil, fmt.Errorf("list launcher pods: %w", err)
	}
	of := map[types.UID][]*corev1.Pod{}
	for i := range list.Items {
		if owner := metav1.GetControllerOfNoCopy(&list.Items[i]); owner != nil {
			of[owner.UID] = append(of[owner.UID], &list.Items[i])
		}
	}
	return list.Items, of, nil
}

// formerVM is a VM that moved away from its pod, or is not selected any more.
func formerVM(pod *corev1.Pod) vmFacts {
	vm := vmFacts{name: pods.VM(pod), pod: pod}
	vm.permission.Undo, vm.permission.Reason = true, v1alpha1.ReasonGatewayEnding
	return vm
}

func memberOf(vmi *virtv1.VirtualMachineInstance, launchers []*corev1.Pod) routing.Member {
	_, labelled := vmi.Labels[v1alpha1.LabelServing]
	m := routing.Member{Name: vmi.Name, UID: vmi.UID, Labelled: labelled, Starting: !observe.IsRunning(vmi)}
	for _, pod := range launchers {
		m.Pods = append(m.Pods, routing.Pod{Name: pod.Name, UID: pod.UID})
	}
	return m
}

// gateways reads the gateways of a namespace whose controlling owner is a HybridWorkload for which
// wanted is true.
func (r *Reconciler) gateways(ctx context.Context, namespace string, wanted func(*metav1.OwnerReference) bool) ([]gateway, error) {
	var list corev1.PodList
	if err := r.Gateways.List(ctx, &list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list gateways of namespace %s: %w", namespace, err)
	}
	var out []gateway
	for i := range list.Items {
		pod := &list.Items[i]
		if owner := metav1.GetControllerOfNoCopy(pod); owner != nil && owner.Kind == "HybridWorkload" && wanted(owner) {
			out = append(out, gateway{Pod: pod})
		}
	}
	return out, nil
}

// addGateways adds the gateways to the VMs, and what serves now.
func (r *Reconciler) addGateways(ctx context.Context, s *seen) error {
	gateways, err := r.gateways(ctx, s.owner.Namespace, func(owner *metav1.OwnerReference) bool { return owner.UID == s.owner.UID })
	if err != nil {
		return err
	}
	serving := map[types.UID]bool{}
	if s.service != nil {
		if serving, err = endpoints(ctx, r.Client, client.ObjectKeyFromObject(s.service)); err != nil {
			return err
		}
	}
	at := map[types.UID]*vmFacts{}
	for i := range s.vms {
		vm := &s.vms[i]
		if vm.pod == nil {
			continue
		}
		at[vm.pod.UID], vm.endpoint = vm, serving[vm.pod.UID]
		if s.service != nil && len(s.service.Spec.Selector) > 0 {
			active := labels.Merge(vm.pod.Labels, labels.Set{v1alpha1.LabelServing: v1alpha1.ServingActive})
			vm.selected = labels.SelectorFromSet(s.service.Spec.Selector).Matches(active)
		}
		if s.refusal == nil && vm.share.refusal == nil {
			vm.wanted = gatewayPod(s.template, s.owner, s.service, vm).Name
		}
	}
	for _, g := range gateways {
		g.endpoint = serving[g.UID]
		switch vm := at[g.of()]; {
		case vm != nil:
			vm.gateways = append(vm.gateways, g)
		case !g.isEnding():
			s.strays = append(s.strays, g)
		}
	}
	return nil
}

// endpoints returns the pods that a Service spreads new connections to.
func endpoints(ctx context.Context, reader client.Reader, key types.NamespacedName) (map[types.UID]bool, error) {
	all, err := service.ReadyEndpoints(ctx, reader, key)
	serving := map[types.UID]bool{}
	for _, endpoint := range all {
		if endpoint.TargetRef != nil {
			serving[endpoint.TargetRef.UID] = true
		}
	}
	return serving, err
}

package controllers_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/routing"
)

// offloadScene has VMs behind a Service, whose owner agrees that gateways answer for them.
type offloadScene struct {
	*scene
	vmis   []*virtv1.VirtualMachineInstance
	hybrid *v1alpha1.HybridWorkload
	// alone counts how often the Service was seen without a ready endpoint.
	alone atomic.Int64
	// address of the gateways.
	address string
}

// gatewayPages show the metrics of gateways, by the addresses of their pods.
type gatewayPages struct {
	server *httptest.Server
	mu     sync.Mutex
	// asked counts requests for a page, and errors are on it: with each request there are more of one that
	// fails.
	asked, errors map[string]int
	failing       map[string]bool
}

func newGatewayPages() *gatewayPages {
	p := &gatewayPages{asked: map[string]int{}, errors: map[string]int{}, failing: map[string]bool{}}
	p.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		defer p.mu.Unlock()
		address, _, _ := strings.Cut(r.Host, ":")
		if p.failing[address] {
			p.errors[address] += 10
		}
		p.asked[address]++
		fmt.Fprintf(w, "# TYPE joulevirt_gateway_errors_total counter\njoulevirt_gateway_errors_total %d\n", p.errors[address])
	}))
	return p
}

func (p *gatewayPages) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, network, p.server.Listener.Addr().String())
}

func (p *gatewayPages) fail(address string, fails bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failing[address] = fails
}

func (p *gatewayPages) count(address string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked[address]
}

func newOffloadScene(t *testing.T, name string) *offloadScene {
	s := &offloadScene{scene: newScene(t, name, 1), address: "10.200.0.1"}
	s.vmis = s.vms("web", 2, s.nodes[0])
	s.endpoints(&corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Annotations: map[string]string{v1alpha1.AnnotationAdopt: "true"}},
		Spec:       corev1.ServiceSpec{Selector: map[string]string{"app": "web"}},
	})
	s.eventually("both VMs serve", func(ctx context.Context) error { return s.serve(ctx, s.vmis[0].Name, s.vmis[1].Name) })
	s.hybrid = &v1alpha1.HybridWorkload{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "web"},
		Spec: v1alpha1.HybridWorkloadSpec{
			Selector:    metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			ServiceName: "web", Port: 80, Memory: v1alpha1.GatewayMemory{Min: resource.MustParse("16Mi"), Max: resource.MustParse("256Mi")},
			TargetResponseTime: &metav1.Duration{Duration: 50 * time.Millisecond},
		},
	}
	s.must(suite.client.Create(t.Context(), s.hybrid))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		ticker := time.NewTicker(10 * time.Millisecond)
		defer ticker.Stop()
		for ctx.Err() == nil {
			if names, err := s.endpointNames(ctx); err == nil && len(names) == 0 {
				s.alone.Add(1)
			}
			<-ticker.C
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
	return s
}

func (s *offloadScene) offloadPolicy() *v1alpha1.EnergyPolicy {
	s.Helper()
	return s.policy("offload", v1alpha1.ModeEnforce, func(spec *v1alpha1.EnergyPolicySpec) {
		spec.Levers, spec.Energy.AllowModelled = []v1alpha1.Lever{v1alpha1.LeverOffload}, true
	})
}

// endpointNames are the ready endpoints of the Service: VMs by their names, gateways as gateway/VM.
func (s *offloadScene) endpointNames(ctx context.Context) ([]string, error) {
	var slice discoveryv1.EndpointSlice
	if err := suite.client.Get(ctx, types.NamespacedName{Namespace: s.name, Name: "web"}, &slice); err != nil {
		return nil, err
	}
	var names []string
	for _, e := range slice.Endpoints {
		if name, isLauncher := strings.CutPrefix(e.TargetRef.Name, "virt-launcher-"); ptr.Deref(e.Conditions.Ready, false) && isLauncher {
			names = append(names, name)
		} else if ptr.Deref(e.Conditions.Ready, false) {
			vm, _, _ := strings.Cut(e.TargetRef.Name, "-gateway-")
			names = append(names, "gateway/"+vm)
		}
	}
	slices.Sort(names)
	return names, nil
}

func (s *offloadScene) serve(ctx context.Context, want ...string) error {
	names, err := s.endpointNames(ctx)
	if err == nil && !slices.Equal(names, want) {
		err = fmt.Errorf("endpoints are %v", names)
	}
	return err
}

func (s *offloadScene) serves(want ...string) {
	s.Helper()
	s.eventually(fmt.Sprint(want, " serve"), func(ctx context.Context) error { return s.serve(ctx, want...) })
}

// gateways waits for so many gateways of the scene, in the order of their names.
func (s *offloadScene) gateways(count int) []corev1.Pod {
	s.Helper()
	var list corev1.PodList
	s.eventually(fmt.Sprint(count, " gateways"), func(ctx context.Context) error {
		err := suite.client.List(ctx, &list, client.InNamespace(s.name), client.HasLabels{v1alpha1.LabelGateway})
		if err == nil && len(list.Items) != count {
			err = fmt.Errorf("there are %d", len(list.Items))
		}
		return err
	})
	return list.Items
}

// become plays the kubelet: it has a pod ready, or not.
func (s *offloadScene) become(pod *corev1.Pod, ready bool) {
	s.Helper()
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	before := pod.DeepCopy()
	pod.Status.Phase, pod.Status.PodIP = corev1.PodRunning, s.address
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: status}}
	s.must(client.IgnoreNotFound(suite.client.Status().Patch(s.Context(), pod, client.MergeFrom(before))))
}

// gatewaysServe has each gateway's pod become ready, also one that replaces another meanwhile, until
// the Service leads to those of both VMs.
func (s *offloadScene) gatewaysServe() {
	s.Helper()
	s.eventually("gateways serve for both VMs", func(ctx context.Context) error {
		var list corev1.PodList
		if err := suite.client.List(ctx, &list, client.InNamespace(s.name), client.HasLabels{v1alpha1.LabelGateway}); err != nil {
			return err
		}
		for i := range list.Items {
			if !routing.IsReady(&list.Items[i]) && list.Items[i].DeletionTimestamp == nil {
				s.become(&list.Items[i], true)
			}
		}
		return s.serve(ctx, "gateway/"+s.vmis[0].Name, "gateway/"+s.vmis[1].Name)
	})
}

// ready waits until the condition has a reason.
func (s *offloadScene) ready(reason string, words ...string) {
	s.Helper()
	s.eventually("condition Ready has reason "+reason, func(ctx context.Context) error {
		if err := suite.client.Get(ctx, client.ObjectKeyFromObject(s.hybrid), s.hybrid); err != nil {
			return err
		}
		is := meta.FindStatusCondition(s.hybrid.Status.Conditions, v1alpha1.ConditionReady)
		if is == nil {
			return errors.New("it is missing")
		}
		for _, word := range words {
			if !strings.Contains(is.Message, word) {
				return fmt.Errorf("%s: %q lacks %q", is.Reason, is.Message, word)
			}
		}
		if is.Reason != reason {
			return fmt.Errorf("it is %s: %s", is.Reason, is.Message)
		}
		return nil
	})
}

// never fails when clients found nobody at any time.
func (s *offloadScene) never() {
	s.Helper()
	if n := s.alone.Load(); n > 0 {
		s.Errorf("the Service had no endpoint at %d looks", n)
	}
}

// TestOffload: gateways are made where a policy allows it, take a VM's place when they are ready, and
// give it back when they are not, when the permission goes and when the VM restarts. The Service
// has an endpoint all the time.
func TestOffload(t *testing.T) {
	s := newOffloadScene(t, "offload")
	vm0, vm1 := s.vmis[0].Name, s.vmis[1].Name
	s.ready(v1alpha1.ReasonNoPolicy)
	policy := s.offloadPolicy()
	pods := s.gateways(2)
	s.shape(&pods[0], s.vmis[0])
	s.serves(vm0, vm1)
	s.become(&pods[0], true)
	s.serves("gateway/"+vm0, vm1)
	s.become(&pods[0], false)
	s.serves(vm0, vm1)
	s.become(&pods[0], true)
	s.become(&pods[1], true)
	s.serves("gateway/"+vm0, "gateway/"+vm1)
	s.ready(v1alpha1.ReasonGatewayServes)
	if st := s.hybrid.Status; st.VMs != 2 || st.ReadyGateways != 2 || len(st.Gateways) != 2 || st.Gateways[0].Pod != pods[0].Name || st.Gateways[0].Node != s.nodes[0] {
		t.Errorf("status %+v", st)
	}

	s.change(policy, func(spec *v1alpha1.EnergyPolicySpec) { spec.Mode = v1alpha1.ModeRecommend })
	s.ready(v1alpha1.ReasonNotEnforced, policy.Name, "Recommend")
	s.gateways(0)
	s.serves(vm0, vm1)
	s.change(policy, func(spec *v1alpha1.EnergyPolicySpec) { spec.Mode = v1alpha1.ModeEnforce })
	pods = s.gateways(2)
	for i := range pods {
		s.become(&pods[i], true)
	}
	s.serves("gateway/"+vm0, "gateway/"+vm1)
	s.restart(pods[0].Name)

	s.change(policy, func(spec *v1alpha1.EnergyPolicySpec) { spec.Levers = []v1alpha1.Lever{v1alpha1.LeverAffinity} })
	s.ready(v1alpha1.ReasonLeverNotAllowed, "Offload")
	s.gateways(0)
	s.serves(vm0, vm1)
	s.never()
}

// shape checks what a gateway is.
func (s *offloadScene) shape(pod *corev1.Pod, vmi *virtv1.VirtualMachineInstance) {
	s.Helper()
	launcher := s.pod(vmi.Name)
	c := &pod.Spec.Containers[0]
	for _, arg := range []string{"--upstream=" + launcher.Status.PodIP + ":80", "--listen=:80", "--memory-max=268435456", "--target-response-time=50ms", "--idle-eviction=1m0s"} {
		if !slices.Contains(c.Args, arg) {
			s.Errorf("arguments %v lack %s", c.Args, arg)
		}
	}
	store := pod.Spec.Volumes[0].EmptyDir
	if limit := c.Resources.Limits.Memory().String(); limit != "448Mi" || c.Resources.Requests.Memory().String() != limit || store == nil || store.SizeLimit.String() != "320Mi" {
		s.Errorf("resources %+v, store %+v", c.Resources, store)
	}
	field := pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchFields[0]
	if !slices.Equal(field.Values, s.nodes) || pod.Labels["app"] != "web" || pod.Labels[v1alpha1.LabelGateway] != string(launcher.UID) {
		s.Errorf("affinity %+v, labels %v", field, pod.Labels)
	}
}

// restart gives the first VM another launcher pod: its gateway goes, and another is made.
func (s *offloadScene) restart(former string) {
	s.Helper()
	vmi, old := s.vmis[0], s.pod(s.vmis[0].Name)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: old.Name, Labels: old.Labels, OwnerReferences: old.OwnerReferences}, Spec: old.Spec}
	pod.Labels[v1alpha1.LabelServing] = v1alpha1.ServingActive // as KubeVirt copies it from the VMI
	s.must(suite.client.Delete(s.Context(), old, client.GracePeriodSeconds(0)))
	s.must(suite.client.Create(s.Context(), pod))
	s.patch(vmi, fmt.Sprintf(`{"status":{"activePods":{%q:null,%q:%q}}}`, old.UID, pod.UID, s.nodes[0]))
	s.become(pod, true)
	s.serves("gateway/"+s.vmis[1].Name, vmi.Name)
	for _, g := range s.gateways(2) {
		if g.Name == former {
			s.Errorf("gateway %s outlasts its VM", former)
		}
		if g.Labels[v1alpha1.LabelGateway] == string(pod.UID) {
			s.become(&g, true)
		}
	}
	s.serves("gateway/"+vmi.Name, "gateway/"+s.vmis[1].Name)
}

func (s *offloadScene) patch(o client.Object, merge string) {
	s.Helper()
	s.must(suite.client.Patch(s.Context(), o, client.RawPatch(types.MergePatchType, []byte(merge))))
}

// TestOffloadGuard: gateways that answer with errors, or are restarted again and again, are taken from
// their VMs, each time for longer. A new manager goes on with it.
func TestOffloadGuard(t *testing.T) {
	s := newOffloadScene(t, "guarded")
	s.address = "10.200.0.9"
	vm0, vm1 := s.vmis[0].Name, s.vmis[1].Name
	s.offloadPolicy()
	serve := func() {
		t.Helper()
		s.gatewaysServe()
		s.ready(v1alpha1.ReasonGatewayServes)
	}
	serve()
	suite.gateways.fail(s.address, true)
	s.ready(v1alpha1.ReasonGuardWithdrawn, "errors that the VM did not make")
	s.gateways(0)
	s.serves(vm0, vm1)
	suite.gateways.fail(s.address, false)
	s.withdrawn(vm0, v1alpha1.GuardErrors, 1, 5*time.Minute)
	s.withdrawn(vm1, v1alpha1.GuardErrors, 1, 5*time.Minute)

	stopManager(t)
	over := s.hybrid.DeepCopy()
	for i := range over.Status.Withdrawn {
		over.Status.Withdrawn[i].Until = over.Status.Withdrawn[i].Time
	}
	s.must(suite.client.Status().Patch(t.Context(), over, client.MergeFrom(s.hybrid)))
	startManagerAgain(t)
	serve()
	before := suite.gateways.count(s.address)
	s.eventually("both gateways are observed", func(context.Context) error {
		if now := suite.gateways.count(s.address); now < before+4 {
			return fmt.Errorf("%d were asked", now-before)
		}
		return nil
	})
	for _, pod := range s.gateways(2) {
		if vm, _, _ := strings.Cut(pod.Name, "-gateway-"); vm == vm0 {
			was := pod.DeepCopy()
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "gateway", RestartCount: 3, Ready: true}}
			s.must(suite.client.Status().Patch(t.Context(), &pod, client.MergeFrom(was)))
		}
	}
	s.ready(v1alpha1.ReasonGuardWithdrawn, "VM "+vm0, "failed 3 times")
	s.gateways(1)
	s.serves("gateway/"+vm1, vm0)
	s.withdrawn(vm0, v1alpha1.GuardReadiness, 2, 10*time.Minute)
	s.never()
}

// withdrawn waits until the status has a VM's withdrawal.
func (s *offloadScene) withdrawn(vm string, sign v1alpha1.GuardSign, count int32, lasts time.Duration) {
	s.Helper()
	s.eventually("the gateway of "+vm+" is withdrawn", func(ctx context.Context) error {
		if err := suite.client.Get(ctx, client.ObjectKeyFromObject(s.hybrid), s.hybrid); err != nil {
			return err
		}
		for _, w := range s.hybrid.Status.Withdrawn {
			if w.PodUID == s.pod(vm).UID && w.Sign == sign && w.Count == count && w.Until.Sub(w.Time.Time) == lasts {
				return nil
			}
		}
		return fmt.Errorf("withdrawn are %+v", s.hybrid.Status.Withdrawn)
	})
}

// TestOffloadRefusals: VMs have no gateways while somebody else's selector would have them, or
// the Service is a group's. A HybridWorkload that goes, with or without a manager, leaves nothing.
func TestOffloadRefusals(t *testing.T) {
	s := newOffloadScene(t, "refused")
	closed := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "closed"}}
	s.must(suite.client.Create(t.Context(), closed))
	s.offloadPolicy()
	s.ready(v1alpha1.ReasonSelectedElsewhere, "NetworkPolicy closed", v1alpha1.LabelGateway)
	s.gateways(0)
	s.must(suite.client.Delete(t.Context(), closed))
	s.gatewaysServe()

	profile := s.groupProfile("web", nil)
	s.ready(v1alpha1.ReasonServiceTaken, "VMNetworkProfile web")
	s.gateways(0)
	s.must(suite.client.Delete(t.Context(), profile))
	s.gatewaysServe()

	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "web"}}
	s.patch(service, `{"spec":{"ports":[{"port":80,"targetPort":"http"}]}}`)
	s.ready(v1alpha1.ReasonServicePort, "targetPort of port 80 of Service web")
	s.gateways(0)
	s.patch(service, `{"spec":{"ports":[{"port":80,"targetPort":80}]}}`)
	s.gatewaysServe()

	stopManager(t)
	s.must(suite.client.Delete(t.Context(), s.hybrid))
	startManagerAgain(t)
	s.eventually("VMs are as before", func(ctx context.Context) error {
		if err := suite.client.Get(ctx, client.ObjectKeyFromObject(service), service); err != nil {
			return err
		}
		for _, vmi := range s.vmis {
			pod := s.pod(vmi.Name)
			if _, labelled := pod.Labels[v1alpha1.LabelServing]; labelled || pod.Annotations[v1alpha1.AnnotationProfile] != "" || !routing.IsReady(pod) {
				return fmt.Errorf("pod %s has labels %v, annotations %v", pod.Name, pod.Labels, pod.Annotations)
			}
		}
		if service.Labels[v1alpha1.LabelAdopted] != "" || len(service.Spec.Selector) != 1 {
			return fmt.Errorf("the Service has labels %v, selector %v", service.Labels, service.Spec.Selector)
		}
		return nil
	})
	s.never()
}

// TestOffloadTLS: a gateway has the Secret that the owner names. While it cannot use it, the status says why, the
// VM serves, and the guard leaves the gateway.
func TestOffloadTLS(t *testing.T) {
	s := newOffloadScene(t, "secure")
	s.address = "10.200.0.21"
	vm0, vm1 := s.vmis[0].Name, s.vmis[1].Name
	s.patch(s.hybrid, `{"spec":{"tls":{"secretName":"joulevirt-tls-web"}}}`)
	s.offloadPolicy()
	pods := s.gateways(2)
	for i := range pods {
		pod := &pods[i]
		volume, c := pod.Spec.Volumes[1].Secret, &pod.Spec.Containers[0]
		if volume == nil || volume.SecretName != "joulevirt-tls-web" || !*volume.Optional || len(volume.Items) != 3 ||
			!slices.Contains(c.Args, "--tls="+c.VolumeMounts[1].MountPath) || !c.VolumeMounts[1].ReadOnly {
			t.Errorf("volumes %+v, container %+v", pod.Spec.Volumes, c)
		}
		was := pod.DeepCopy()
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "gateway", RestartCount: 7, LastTerminationState: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{ExitCode: v1alpha1.TLSExitCode, Message: "joulevirt-gateway: TLS: tls.crt expired: renew it\n"},
		}}}
		s.must(suite.client.Status().Patch(t.Context(), pod, client.MergeFrom(was)))
	}
	s.ready(v1alpha1.ReasonGatewayTLS, "2 of 2 VMs themselves", "Secret joulevirt-tls-web of spec.tls.secretName", "tls.crt expired: renew it")
	s.serves(vm0, vm1)
	for i := range pods {
		s.become(&pods[i], true)
	}
	s.serves("gateway/"+vm0, "gateway/"+vm1)
	s.ready(v1alpha1.ReasonGatewayServes)
	s.never()
}

package controllers_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/routing"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/test/cluster"
	"github.com/joulevirt/joulevirt/test/controllertest"
)

const (
	// usual is what each VM of a group has, warmUp what it is known to carry: two of
	// six carry what all have, and a tenth more, by which a demand may be too high.
	usual  units.BitsPerSecond = 80e6
	warmUp units.BitsPerSecond = 600e6
)

// groupVMs starts VMs behind a Service, in turn on the scene's nodes, lets their
// agents tell a high rate until it is known to go well, and then a usual one.
func (s *scene) groupVMs(app string, count int) []*virtv1.VirtualMachineInstance {
	s.Helper()
	names, err := suite.cluster.SeedVMIs(s.Context(), cluster.Seed{
		Namespace: s.name, Prefix: app, Count: count, Nodes: s.nodes,
		Labels: func(int) map[string]string {
			return map[string]string{"app": app, v1alpha1.LabelServing: v1alpha1.ServingActive}
		},
	})
	s.must(err)
	var vmis []*virtv1.VirtualMachineInstance
	for _, name := range names {
		vmi := &virtv1.VirtualMachineInstance{}
		s.must(suite.client.Get(s.Context(), name, vmi))
		vmis = append(vmis, vmi)
	}
	s.endpoints(&corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: app},
		Spec:       corev1.ServiceSpec{Selector: map[string]string{"app": app, v1alpha1.LabelServing: v1alpha1.ServingActive}},
	})
	return vmis
}

// learn lets the manager see the VMs at a high rate until their limits are known,
// by the status of their profile, and then at the usual one.
func (s *scene) learn(profile *v1alpha1.VMNetworkProfile, vmis []*virtv1.VirtualMachineInstance) {
	s.Helper()
	s.traffic(warmUp, vmis...)
	policy := s.policy("learn", v1alpha1.ModeObserve, func(spec *v1alpha1.EnergyPolicySpec) { spec.Levers = nil })
	s.groupStatus(profile, "the limits are known", func(t *v1alpha1.TrafficStatus) bool {
		return limitsKnown(t, len(vmis)) && t.Reason == v1alpha1.ReasonObserveOnly
	})
	s.traffic(usual, vmis...)
	series := fmt.Sprintf(`joulevirt_group_effective_talkers{namespace=%q,profile=%q,share="Planned"} `, profile.Namespace, profile.Name)
	s.eventually("two VMs are planned to carry the usual rates", func(context.Context) error {
		metrics := controllertest.Series(s.TB, suite.manager.Metrics(), []string{"joulevirt_group_effective_talkers"})
		for line := range strings.Lines(metrics) {
			value, _ := strings.CutPrefix(strings.TrimSpace(line), series)
			if talkers, err := strconv.ParseFloat(value, 64); err == nil && talkers > 1 && talkers < 2.01 {
				return nil
			}
		}
		return fmt.Errorf("metrics are\n%s", metrics)
	})
	s.groupStatus(profile, "a saving is predicted", func(t *v1alpha1.TrafficStatus) bool { return t.Saving != nil })
	s.must(suite.client.Delete(s.Context(), policy))
}

// limitsKnown reports whether each of so many VMs has a limit of at least warmUp.
func limitsKnown(t *v1alpha1.TrafficStatus, vms int) bool {
	for _, ofNode := range t.LimitsBitsPerSecond {
		for _, limit := range ofNode {
			if limit >= int64(warmUp) {
				vms--
			}
		}
	}
	return vms == 0
}

// traffic lets the agents of the VMs' nodes tell a rate of each.
func (s *scene) traffic(rate units.BitsPerSecond, vmis ...*virtv1.VirtualMachineInstance) {
	s.Helper()
	all := units.NewCPUSet(0, 1, 2, 3, 4, 5, 6, 7)
	for _, node := range s.nodes {
		var r model.NodeRates
		for cpu := range 8 {
			r.CPUs = append(r.CPUs, model.CPURates{CPU: cpu, BusyCores: 0.1})
		}
		for _, vmi := range vmis {
			if vmi.Status.NodeName != node {
				continue
			}
			way := model.TrafficRates{BitsPerSecond: rate / 2, PacketsPerSecond: units.PacketsPerSecond(rate / 2 / 8000)}
			vm := model.VMRates{
				PodUID: string(podOf(vmi)), Namespace: vmi.Namespace, Name: vmi.Name, AllowedCPUs: all,
				Taps:  []model.TapRates{{Name: "tap0", ToVM: way, FromVM: way}},
				Vhost: model.ThreadRates{RunCores: 0.02 + 0.08*units.Cores(rate/warmUp), SwitchesPerSecond: 1000},
			}
			for i := range 2 {
				vm.VCPUs = append(vm.VCPUs, model.VCPURates{Index: i, CPUs: all, ThreadRates: model.ThreadRates{RunCores: 0.1, SwitchesPerSecond: 1000}})
			}
			r.VMs = append(r.VMs, vm)
		}
		s.must(suite.agents.SetRates(node, r))
		object := &corev1.Node{}
		s.must(suite.client.Get(s.Context(), types.NamespacedName{Name: node}, object))
		s.must(suite.agents.Report(s.Context(), suite.client, object, v1alpha1.Topology{
			CPUModel:   "test",
			CoreGroups: []v1alpha1.CoreGroup{{Cores: []string{"0,4", "1,5", "2,6", "3,7"}}},
		}, v1alpha1.PowerNone))
	}
}

// endpoints creates a Service, and plays Kubernetes' own controller that makes
// endpoints of all Services of the namespace, until the test ends.
func (s *scene) endpoints(service *corev1.Service) {
	s.Helper()
	service.Namespace, service.Spec.Ports = s.name, []corev1.ServicePort{{Port: 80}}
	s.must(suite.client.Create(s.Context(), service))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		ticker := time.NewTicker(50 * time.Millisecond)
		defer ticker.Stop()
		for {
			if err := makeEndpoints(ctx, s.name); err != nil && ctx.Err() == nil {
				s.Log("endpoints:", err)
			}
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
		}
	}()
	s.Cleanup(func() { cancel(); <-done })
}

func makeEndpoints(ctx context.Context, namespace string) error {
	var services corev1.ServiceList
	if err := suite.client.List(ctx, &services, client.InNamespace(namespace)); err != nil {
		return err
	}
	for i := range services.Items {
		if err := makeEndpointsOf(ctx, &services.Items[i]); err != nil {
			return err
		}
	}
	return nil
}

func makeEndpointsOf(ctx context.Context, service *corev1.Service) error {
	selector := client.MatchingLabelsSelector{Selector: labels.SelectorFromSet(service.Spec.Selector)}
	var pods corev1.PodList
	if err := suite.client.List(ctx, &pods, client.InNamespace(service.Namespace), selector); err != nil {
		return err
	}
	var endpoints []discoveryv1.Endpoint
	for i := range pods.Items {
		pod := &pods.Items[i]
		if pod.Status.PodIP == "" {
			continue // as Kubernetes leaves out what has no address
		}
		endpoints = append(endpoints, discoveryv1.Endpoint{
			Addresses: []string{pod.Status.PodIP}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(routing.IsReady(pod))},
			TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
		})
	}
	slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: service.Namespace, Name: service.Name, Labels: map[string]string{}}}
	maps.Copy(slice.Labels, service.Labels)
	slice.Labels[discoveryv1.LabelServiceName] = service.Name
	err := suite.client.Get(ctx, client.ObjectKeyFromObject(slice), slice)
	slice.AddressType, slice.Endpoints = discoveryv1.AddressTypeIPv4, endpoints
	if apierrors.IsNotFound(err) {
		return suite.client.Create(ctx, slice)
	}
	if err != nil {
		return err
	}
	return suite.client.Update(ctx, slice) // without a change nothing is written
}

func (s *scene) groupProfile(app string, change func(*v1alpha1.VMNetworkProfileSpec)) *v1alpha1.VMNetworkProfile {
	s.Helper()
	profile := &v1alpha1.VMNetworkProfile{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: app},
		Spec: v1alpha1.VMNetworkProfileSpec{
			Selector: metav1.LabelSelector{MatchLabels: map[string]string{"app": app}},
			Group:    &v1alpha1.TrafficGroup{Name: app},
		},
	}
	if change != nil {
		change(&profile.Spec)
	}
	s.must(suite.client.Create(s.Context(), profile))
	return profile
}

// trafficPolicy governs the scene's nodes, which have no meters.
func (s *scene) trafficPolicy(name string, mode v1alpha1.PolicyMode) *v1alpha1.EnergyPolicy {
	s.Helper()
	return s.policy(name, mode, func(spec *v1alpha1.EnergyPolicySpec) {
		spec.Levers = []v1alpha1.Lever{v1alpha1.LeverTrafficShare}
		spec.Energy.AllowModelled = true
	})
}

// groupStatus waits until what is said of a group is as wanted.
func (s *scene) groupStatus(profile *v1alpha1.VMNetworkProfile, what string, wanted func(*v1alpha1.TrafficStatus) bool) *v1alpha1.TrafficStatus {
	s.Helper()
	s.eventually("group of "+profile.Name+": "+what, func(ctx context.Context) error {
		if err := suite.client.Get(ctx, client.ObjectKeyFromObject(profile), profile); err != nil {
			return err
		}
		if profile.Status.Traffic == nil {
			return errors.New("nothing is said")
		}
		if !wanted(profile.Status.Traffic) {
			return fmt.Errorf("it is %+v", *profile.Status.Traffic)
		}
		return nil
	})
	return profile.Status.Traffic
}

// verdict waits for a state and a reason.
func (s *scene) verdict(profile *v1alpha1.VMNetworkProfile, state v1alpha1.LeverState, reason string) *v1alpha1.TrafficStatus {
	s.Helper()
	return s.groupStatus(profile, string(state)+" "+reason, func(t *v1alpha1.TrafficStatus) bool {
		return t.State == state && t.Reason == reason && t.ObservedGeneration == profile.Generation
	})
}

// serving returns the names of the VMs whose pods are active.
func (s *scene) serving(app string) []string {
	s.Helper()
	var pods corev1.PodList
	s.must(suite.client.List(s.Context(), &pods, client.InNamespace(s.name), client.MatchingLabels{"app": app}))
	var names []string
	for i := range pods.Items {
		if pods.Items[i].Labels[v1alpha1.LabelServing] == v1alpha1.ServingActive {
			names = append(names, pods.Items[i].Labels[virtv1.VirtualMachineInstanceIDLabel])
		}
	}
	slices.Sort(names)
	return names
}

func (s *scene) serves(app string, count int) {
	s.Helper()
	s.eventually(fmt.Sprintf("%d VMs of %s serve", count, app), func(context.Context) error {
		if names := s.serving(app); len(names) != count {
			return fmt.Errorf("it is %v", names)
		}
		return nil
	})
}

func (s *scene) pod(vm string) *corev1.Pod {
	s.Helper()
	pod := &corev1.Pod{}
	s.must(suite.client.Get(s.Context(), types.NamespacedName{Namespace: s.name, Name: "virt-launcher-" + vm}, pod))
	return pod
}

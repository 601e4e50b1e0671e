package offload

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/planner"
	"github.com/joulevirt/joulevirt/internal/routing"
	"github.com/joulevirt/joulevirt/internal/routing/pods"
)

const holder = "hybridworkload/web"

func podOf(name string, ready bool, mark pods.Mark) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: map[string]string{}, Annotations: map[string]string{}}}
	setMark(pod, mark)
	pod.Status.PodIP = "10.0.0.1"
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse}}
	if ready {
		pod.Status.Conditions[0].Status = corev1.ConditionTrue
	}
	return pod
}

func setMark(pod *corev1.Pod, mark pods.Mark) {
	pod.Labels[v1alpha1.LabelServing] = mark.Serving
	delete(pod.Annotations, v1alpha1.AnnotationProfile)
	if mark.Profile != "" {
		pod.Annotations[v1alpha1.AnnotationProfile] = mark.Profile
	}
}

func active() pods.Mark  { return pods.Mark{Serving: v1alpha1.ServingActive} }
func standby() pods.Mark { return pods.Mark{Serving: v1alpha1.ServingStandby, Profile: holder} }

func TestDecide(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	gw := func(name string, ready, endpoint bool) gateway {
		g := gateway{Pod: podOf(name, ready, active()), endpoint: endpoint}
		g.CreationTimestamp = metav1.NewTime(now)
		return g
	}
	failed := func(age time.Duration) gateway {
		g := gw("w", false, false)
		g.Status.Phase, g.Status.Reason, g.CreationTimestamp = corev1.PodFailed, "OutOfmemory", metav1.NewTime(now.Add(-age))
		return g
	}
	out := func(ready bool) gateway {
		g := gw("w", ready, false)
		g.Labels[v1alpha1.LabelServing] = v1alpha1.ServingStandby
		return g
	}
	pending := gw("w", false, false)
	pending.Status.Conditions = append(pending.Status.Conditions, corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "Insufficient memory"})
	refusing := gw("w", false, false)
	refusing.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "joulevirt-tls-web"}}}}
	refusing.Status.ContainerStatuses = []corev1.ContainerStatus{{LastTerminationState: corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{ExitCode: v1alpha1.TLSExitCode, Message: "before\njoulevirt-gateway: TLS: tls.crt is missing\n"},
	}}}
	for _, test := range []struct {
		name          string
		mark          pods.Mark
		notReady, out bool
		// off is true in a slot in which the VM serves itself, and place what becomes of the gateway.
		off            bool
		place          string
		permission     planner.Permission
		refusal        *routing.Refusal
		gateways       []gateway
		want           string
		create, remove bool
		reason         string
	}{
		{name: "no gateway yet", mark: active(), create: true, reason: v1alpha1.ReasonGatewayStarting},
		{name: "a gateway starts", mark: active(), gateways: []gateway{gw("w", false, false)}, reason: v1alpha1.ReasonGatewayStarting},
		{name: "a gateway finds no room", mark: active(), gateways: []gateway{pending}, reason: v1alpha1.ReasonGatewayStarting},
		{name: "a gateway cannot use its Secret", mark: active(), gateways: []gateway{refusing}, reason: v1alpha1.ReasonGatewayTLS},
		{name: "a gateway is ready, and no endpoint yet", mark: active(), gateways: []gateway{gw("w", true, false)}, reason: v1alpha1.ReasonGatewayStarting},
		{name: "a gateway is in the Service", mark: active(), gateways: []gateway{gw("w", true, true)}, want: v1alpha1.ServingStandby, reason: v1alpha1.ReasonGatewayStarting},
		{name: "a gateway serves", mark: standby(), out: true, gateways: []gateway{gw("w", true, true)}, reason: v1alpha1.ReasonGatewayServes},
		{name: "a gateway is not ready any more", mark: standby(), out: true, gateways: []gateway{gw("w", false, true)}, want: v1alpha1.ServingActive, reason: v1alpha1.ReasonGatewayStarting},
		{name: "a gateway failed", mark: standby(), out: true, gateways: []gateway{failed(0)}, want: v1alpha1.ServingActive, reason: v1alpha1.ReasonGatewayFailed},
		{name: "a gateway failed a while ago", mark: active(), gateways: []gateway{failed(retry)}, remove: true, reason: v1alpha1.ReasonGatewayFailed},
		{name: "the spec changed", mark: standby(), out: true, gateways: []gateway{gw("old", true, true)}, want: v1alpha1.ServingActive, create: true, reason: v1alpha1.ReasonGatewayStarting},
		{name: "the VM is back", mark: active(), gateways: []gateway{gw("old", true, true)}, create: true, remove: true, reason: v1alpha1.ReasonGatewayStarting},
		{name: "nothing new", mark: active(), permission: planner.Permission{Hold: true, Reason: v1alpha1.ReasonInFreeze}, reason: v1alpha1.ReasonInFreeze},
		{name: "nothing new, and it serves", mark: standby(), out: true, permission: planner.Permission{Hold: true, Reason: v1alpha1.ReasonInFreeze}, gateways: []gateway{gw("w", true, true)}, reason: v1alpha1.ReasonGatewayServes},
		{name: "forbidden", mark: standby(), out: true, permission: planner.Permission{Undo: true, Reason: v1alpha1.ReasonPaused}, gateways: []gateway{gw("w", true, true)}, want: v1alpha1.ServingActive, reason: v1alpha1.ReasonPaused},
		{name: "forbidden, and the VM is back", mark: active(), permission: planner.Permission{Undo: true, Reason: v1alpha1.ReasonPaused}, gateways: []gateway{gw("w", true, true)}, remove: true, reason: v1alpha1.ReasonPaused},
		{name: "refused", mark: active(), refusal: &routing.Refusal{Reason: v1alpha1.ReasonServiceTaken}, gateways: []gateway{gw("w", true, true)}, remove: true, reason: v1alpha1.ReasonServiceTaken},
		{name: "the VM is not ready", mark: standby(), notReady: true, out: true, gateways: []gateway{gw("w", true, true)}, want: v1alpha1.ServingActive, remove: true, reason: v1alpha1.ReasonMemberNotReady},
		{name: "a profile's group steers the VM", mark: pods.Mark{Serving: v1alpha1.ServingStandby, Profile: "shop"}, out: true, gateways: []gateway{gw("w", true, true)}, remove: true, reason: v1alpha1.ReasonServiceTaken},
		{name: "an off slot begins", mark: standby(), out: true, off: true, gateways: []gateway{gw("w", true, true)}, want: v1alpha1.ServingActive, reason: v1alpha1.ReasonGatewayStarting},
		{name: "the VM is active, and no endpoint yet", mark: active(), out: true, off: true, gateways: []gateway{gw("w", true, true)}, reason: v1alpha1.ReasonGatewayStarting},
		{name: "the VM is back in an off slot", mark: active(), off: true, gateways: []gateway{gw("w", true, true)}, place: v1alpha1.ServingStandby, reason: v1alpha1.ReasonGatewayStarting},
		{name: "in an off slot", mark: active(), off: true, gateways: []gateway{out(true)}, reason: v1alpha1.ReasonGatewayServes},
		{name: "a gateway ends in an off slot", mark: active(), off: true, gateways: []gateway{out(false)}, reason: v1alpha1.ReasonGatewayStarting},
		{name: "a first gateway in an off slot", mark: active(), off: true, create: true, reason: v1alpha1.ReasonGatewayStarting},
		{name: "an on slot begins", mark: active(), gateways: []gateway{out(true)}, place: v1alpha1.ServingActive, reason: v1alpha1.ReasonGatewayStarting},
		{name: "rejected in an off slot", mark: active(), off: true, permission: planner.Permission{Undo: true, Reason: v1alpha1.ReasonRejectedByTrial}, gateways: []gateway{out(true)}, remove: true, reason: v1alpha1.ReasonRejectedByTrial},
	} {
		t.Run(test.name, func(t *testing.T) {
			vm := vmFacts{name: "vm", wanted: "w", selected: true, endpoint: !test.out && !test.notReady, off: test.off, permission: test.permission, gateways: test.gateways}
			vm.pod = podOf("pod", !test.notReady, test.mark)
			d := decide(&vm, holder, test.refusal, now)
			mark := ""
			if d.mark != nil {
				mark = d.mark.Serving
			}
			place := ""
			if d.place != nil {
				place = d.place.Serving
			}
			if mark != test.want || place != test.place || d.create != test.create || (len(d.remove) > 0) != test.remove || d.reason != test.reason {
				t.Errorf("mark %q, %+v", mark, d)
			}
			if ready := test.reason == v1alpha1.ReasonGatewayServes; d.ready != ready {
				t.Errorf("ready: %v", d.ready)
			}
		})
	}
	vm := vmFacts{name: "vm", wanted: "w", permission: planner.Permission{}, gateways: []gateway{gw("w", true, true)}}
	if d := decide(&vm, holder, nil, now); len(d.remove) != 1 || d.reason != v1alpha1.ReasonMemberNotReady {
		t.Errorf("a VM without a pod: %+v", d)
	}
	vm = vmFacts{name: "vm", wanted: "w", pod: podOf("pod", true, active()), gateways: []gateway{pending}}
	if d := decide(&vm, holder, nil, now); !strings.Contains(d.message, "Insufficient memory") {
		t.Errorf("message %q", d.message)
	}
	vm.gateways = []gateway{refusing}
	if d := decide(&vm, holder, nil, now); d.message != "Secret joulevirt-tls-web of spec.tls.secretName: joulevirt-gateway: TLS: tls.crt is missing" {
		t.Errorf("message %q", d.message)
	}
}

// Whatever happens to gateways and permission, a VM that is ready has an endpoint, itself or its
// gateway, that is not being removed: and when nothing happens any more, things come to rest.
func TestClientsAlwaysFindSomebody(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	rested := 0
	for range 500 {
		vm := vmFacts{name: "vm", wanted: "w0", selected: true, endpoint: true, pod: podOf("pod", true, active())}
		now := time.Unix(0, 0)
		for step := range 60 {
			now = now.Add(time.Second)
			if step < 40 { // the world
				switch r.IntN(6) {
				case 0:
					vm.permission.Undo = !vm.permission.Undo
				case 1:
					vm.wanted = []string{"w0", "w1"}[r.IntN(2)]
				case 2:
					if len(vm.gateways) > 0 {
						g := &vm.gateways[r.IntN(len(vm.gateways))]
						g.Pod = podOf(g.Name, !routing.IsReady(g.Pod), pods.MarkOf(g.Pod))
						g.endpoint = g.endpoint && routing.IsReady(g.Pod)
					}
				case 3:
					vm.off = !vm.off
				}
			}
			before := serving(&vm)
			d := decide(&vm, holder, nil, now)
			if d.mark != nil {
				setMark(vm.pod, *d.mark)
				vm.endpoint = vm.endpoint && d.mark.Serving == v1alpha1.ServingActive
			}
			if d.place != nil {
				setMark(d.gateway.Pod, *d.place)
			}
			for i := range vm.gateways {
				vm.gateways[i].endpoint = vm.gateways[i].endpoint && !vm.gateways[i].isStandby()
			}
			for _, gone := range d.remove {
				for i := range vm.gateways {
					if vm.gateways[i].Name == gone.Name {
						vm.gateways = append(vm.gateways[:i:i], vm.gateways[i+1:]...)
						break
					}
				}
			}
			if before > 0 && serving(&vm) == 0 {
				t.Fatalf("step %d: nobody serves after %+v", step, d)
			}
			if d.create {
				vm.gateways = append(vm.gateways, gateway{Pod: podOf(vm.wanted, step >= 40, active())})
			}
			if step > 50 && d.mark == nil && d.place == nil && len(d.remove) == 0 && !d.create {
				rested++
			}
			// Kubernetes follows.
			vm.endpoint = vm.pod.Labels[v1alpha1.LabelServing] == v1alpha1.ServingActive
			for i := range vm.gateways {
				vm.gateways[i].endpoint = routing.IsReady(vm.gateways[i].Pod) && !vm.gateways[i].isStandby()
			}
		}
	}
	if rested != 500*9 {
		t.Errorf("%d of %d steps at rest", rested, 500*9)
	}
}

func serving(vm *vmFacts) int {
	n := 0
	if vm.endpoint {
		n++
	}
	for i := range vm.gateways {
		if vm.gateways[i].endpoint {
			n++
		}
	}
	return n
}

func TestSelectedElsewhere(t *testing.T) {
	gatewayHas := map[string]string{"app": "web", v1alpha1.LabelServing: "active", v1alpha1.LabelGateway: "uid"}
	launcherHas := map[string]string{"app": "web", "vm": "a", v1alpha1.LabelServing: "standby"}
	of := func(kind string, labels map[string]string) []selecting {
		return []selecting{{kind, "x", &metav1.LabelSelector{MatchLabels: labels}}}
	}
	except := of("ReplicaSet", map[string]string{"app": "web"})
	except[0].selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: v1alpha1.LabelGateway, Operator: metav1.LabelSelectorOpDoesNotExist}}
	services := func(selector map[string]string) []corev1.Service {
		return []corev1.Service{{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.ServiceSpec{Selector: gatewayHas}},
			{ObjectMeta: metav1.ObjectMeta{Name: "other"}, Spec: corev1.ServiceSpec{Selector: selector}}}
	}
	for _, test := range []struct {
		foreign  []selecting
		services []corev1.Service
		want     string
	}{
		{nil, services(nil), ""},
		{of("NetworkPolicy", nil), nil, "NetworkPolicy x would select the gateway"},
		{of("PodDisruptionBudget", map[string]string{"app": "web"}), nil, "PodDisruptionBudget x would"},
		{of("PodDisruptionBudget", map[string]string{"vm": "a"}), nil, ""},
		{of("NetworkPolicy", map[string]string{"vm": "a"}), nil, "NetworkPolicy x selects VMs"},
		{except, nil, ""},
		{nil, services(map[string]string{"app": "web"}), "Service other would select the gateway"},
		{nil, services(map[string]string{"vm": "a"}), ""},
		{nil, services(map[string]string{"vm": "a", v1alpha1.LabelServing: "active"}), "would lose the VM"},
	} {
		got := selectedElsewhere(test.foreign, test.services, "web", gatewayHas, launcherHas)
		if test.want == "" && got != "" || !strings.Contains(got, test.want) {
			t.Errorf("%+v, %+v: %q, want %q", test.foreign, test.services, got, test.want)
		}
	}
}

func TestCheckPort(t *testing.T) {
	port := func(number, target int, protocol corev1.Protocol) corev1.ServicePort {
		return corev1.ServicePort{Port: int32(number), TargetPort: intstr.FromInt(target), Protocol: protocol}
	}
	named := port(80, 0, corev1.ProtocolTCP)
	named.TargetPort = intstr.FromString("http")
	for _, test := range []struct {
		ports []corev1.ServicePort
		want  string
	}{
		{[]corev1.ServicePort{port(80, 8080, corev1.ProtocolTCP)}, ""},
		{[]corev1.ServicePort{port(81, 8080, corev1.ProtocolTCP)}, "no port 80"},
		{[]corev1.ServicePort{port(80, 8080, corev1.ProtocolTCP), port(81, 81, corev1.ProtocolTCP)}, "other ports than 80"},
		{[]corev1.ServicePort{port(80, 8080, corev1.ProtocolSCTP)}, "SCTP"},
		{[]corev1.ServicePort{named}, "is a name"},
		{[]corev1.ServicePort{port(80, 9465, corev1.ProtocolTCP)}, "9465"},
	} {
		service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.ServiceSpec{Ports: test.ports}}
		got := checkPort(service, 80, 9465)
		if test.want == "" && got != "" || !strings.Contains(got, test.want) {
			t.Errorf("%+v: %q, want %q", test.ports, got, test.want)
		}
	}
}

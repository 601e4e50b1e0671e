//go:build e2e

package traffic

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
)

// echoPort is the guests' for UDP.
const echoPort = 7

// udpStory shows why a Service with UDP ports is refused: when a VM leaves it, kube-proxy forgets
// the VM's flows, which go to another VM at once. TCP connections stay.
func (s *story) udpStory() {
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "echo"},
		Spec: corev1.ServiceSpec{Selector: labels, Ports: []corev1.ServicePort{
			{Name: "echo", Protocol: corev1.ProtocolUDP, Port: echoPort, TargetPort: intstr.FromInt32(echoPort)},
			{Name: "http", Port: port, TargetPort: intstr.FromInt32(port)},
		}},
	}
	s.create(service)
	s.eventually("the Service has all VMs", func(ctx context.Context) error { return s.has(ctx, service.Name, s.names) })
	profile := s.profile("echo", v1alpha1.TrafficGroup{Kind: v1alpha1.GroupService, Name: service.Name})
	s.eventually("the group is refused", func(ctx context.Context) error {
		err := suite.Client().Get(ctx, client.ObjectKeyFromObject(profile), profile)
		if status := profile.Status.Traffic; err == nil && (status == nil || status.Reason != v1alpha1.ReasonServiceUnsupported || !strings.Contains(status.Message, "allowUDP")) {
			err = fmt.Errorf("its status is %+v", status)
		}
		return err
	})
	s.remove(profile)

	flow, err := suite.network.Dial(s.Context(), "udp", net.JoinHostPort(service.Spec.ClusterIP, fmt.Sprint(echoPort)))
	if err != nil {
		s.Fatal(err)
	}
	defer flow.Close()
	var left string
	s.eventually("a VM echoes", func(ctx context.Context) (err error) {
		left, err = s.echo(ctx, flow)
		return err
	})
	connection := s.connect("http://"+service.Spec.ClusterIP+"/", left)
	s.setServing(left, v1alpha1.ServingStandby)
	s.Cleanup(func() { s.setServing(left, v1alpha1.ServingActive) })
	rest := slices.DeleteFunc(slices.Clone(s.names), func(name string) bool { return name == left })
	s.eventually("the flow has gone to another VM", func(ctx context.Context) error {
		now, err := s.echo(ctx, flow)
		if err == nil && now == left {
			err = errors.New("it is still at the VM that left")
		}
		return errors.Join(err, s.has(ctx, service.Name, rest))
	})
	if now, err := connection(); err != nil || now != left {
		s.Errorf("the TCP connection to %s leads to %q: %v", left, now, err)
	}
}

// has is satisfied when a Service leads to exactly these VMs.
func (s *story) has(ctx context.Context, service string, names []string) error {
	serving, err := s.serving(ctx, service)
	if err == nil && !slices.Equal(serving, names) {
		err = fmt.Errorf("the Service has %v", serving)
	}
	return err
}

// echo has the flow's datagram echoed, and returns the VM to which the node translates it.
func (s *story) echo(ctx context.Context, flow net.Conn) (string, error) {
	if err := flow.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return "", err
	}
	if _, err := flow.Write([]byte("echo")); err != nil {
		return "", err
	}
	if _, err := flow.Read(make([]byte, 16)); err != nil {
		return "", err
	}
	tables, err := netlink.NewHandleAt(netns.NsHandle(suite.network.FD()), unix.NETLINK_NETFILTER)
	if err != nil {
		return "", err
	}
	defer tables.Close()
	flows, err := tables.ConntrackTableList(netlink.ConntrackTable, netlink.FAMILY_V4)
	if err != nil {
		return "", err
	}
	local := flow.LocalAddr().(*net.UDPAddr).Port
	for _, f := range flows {
		if f.Forward.Protocol == unix.IPPROTO_UDP && f.Forward.DstPort == echoPort && int(f.Forward.SrcPort) == local {
			return s.vmAt(ctx, f.Reverse.SrcIP.String())
		}
	}
	return "", fmt.Errorf("the node knows no flow from port %d", local)
}

// vmAt is the VM whose pod has an address.
func (s *story) vmAt(ctx context.Context, address string) (string, error) {
	var pods corev1.PodList
	if err := suite.Client().List(ctx, &pods, client.InNamespace(s.namespace)); err != nil {
		return "", err
	}
	for i := range pods.Items {
		if pods.Items[i].Status.PodIP == address {
			return metav1.GetControllerOf(&pods.Items[i]).Name, nil
		}
	}
	return "", fmt.Errorf("no pod has address %s", address)
}

// connect connects to a VM by a Service. The function that it returns asks over this connection who
// answers.
func (s *story) connect(url, vm string) func() (string, error) {
	s.Helper()
	for range 100 * len(s.names) {
		connection := &http.Client{Timeout: answerTimeout, Transport: &http.Transport{DialContext: suite.network.Dial}}
		ask := func() (string, error) {
			response, err := connection.Get(url)
			if err != nil {
				return "", err
			}
			defer response.Body.Close()
			name, err := io.ReadAll(response.Body)
			return strings.TrimSpace(string(name)), err
		}
		if name, err := ask(); err == nil && name == vm {
			s.Cleanup(connection.CloseIdleConnections)
			return ask
		}
		connection.CloseIdleConnections()
	}
	s.Fatalf("no connection leads to %s", vm)
	return nil
}

// setServing sets the label of a VM's pod, as the manager does.
func (s *story) setServing(vm, value string) {
	s.Helper()
	ctx := context.WithoutCancel(s.Context())
	var pods corev1.PodList
	if err := suite.Client().List(ctx, &pods, client.InNamespace(s.namespace)); err != nil {
		s.Fatal(err)
	}
	for i := range pods.Items {
		if pod := &pods.Items[i]; metav1.GetControllerOf(pod).Name == vm {
			patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, v1alpha1.LabelServing, value)
			if err := suite.Client().Patch(ctx, pod, client.RawPatch(types.MergePatchType, patch)); err != nil {
				s.Fatal(err)
			}
			return
		}
	}
	s.Fatalf("VM %s has no pod", vm)
}

package stack

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/test/cluster"
	"github.com/joulevirt/joulevirt/test/internal/fetch"
	"github.com/joulevirt/joulevirt/test/internal/proc"
)

const (
	managerAccount = "joulevirt-manager"
	agentAccount   = "joulevirt-agent"
)

// Program is the manager or the agent, running.
type Program struct {
	*proc.Process
	// Metrics is where /metrics is served, host:port.
	Metrics string
	// health is the address of the program's probes, host:port.
	health string
}

// RunManager runs the manager as its Deployment says, with more arguments, and
// returns when it is ready. The product is installed.
func RunManager(ctx context.Context, c *cluster.Cluster, group *proc.Group, program string, more ...string) (*Program, error) {
	var deployment appsv1.Deployment
	key := client.ObjectKey{Namespace: Namespace, Name: managerAccount}
	if err := c.Client().Get(ctx, key, &deployment); err != nil {
		return nil, fmt.Errorf("the manager's Deployment: %w", err)
	}
	manager, err := startManager(ctx, c, group, &deployment.Spec.Template.Spec, append([]string{program}, more...))
	if err != nil {
		return nil, err
	}
	return manager, manager.waitReady(ctx)
}

// startManager starts the manager as its pod says: command is the program and more
// arguments.
func startManager(ctx context.Context, c *cluster.Cluster, group *proc.Group, pod *corev1.PodSpec, command []string) (*Program, error) {
	_, kubeconfig, err := c.ServiceAccountConfig(ctx, Namespace, pod.ServiceAccountName, "")
	if err != nil {
		return nil, err
	}
	addresses, err := freeAddresses(c, 2)
	if err != nil {
		return nil, err
	}
	health, metrics := addresses[0], addresses[1]
	args := arguments(pod, map[string]string{"POD_NAMESPACE": Namespace})
	args = append(args, "--kubeconfig="+kubeconfig, "--health-probe-bind-address="+health, "--metrics-bind-address="+metrics)
	process, err := group.Start("manager", command[0], append(args, command[1:]...)...)
	if err != nil {
		return nil, err
	}
	return &Program{Process: process, Metrics: metrics, health: health}, nil
}

// RunAgent runs the agent of a node as its DaemonSet says, with the same arguments and with no
// other capabilities, and returns when it is ready. The product is installed.
func RunAgent(ctx context.Context, c *cluster.Cluster, group *proc.Group, program, node string) (*Program, error) {
	var daemonSet appsv1.DaemonSet
	key := client.ObjectKey{Namespace: Namespace, Name: agentAccount}
	if err := c.Client().Get(ctx, key, &daemonSet); err != nil {
		return nil, fmt.Errorf("the agent's DaemonSet: %w", err)
	}
	pod := &daemonSet.Spec.Template.Spec
	_, kubeconfig, err := c.ServiceAccountConfig(ctx, Namespace, pod.ServiceAccountName, node)
	if err != nil {
		return nil, err
	}
	addresses, err := freeAddresses(c, 3)
	if err != nil {
		return nil, err
	}
	rates, health, metrics := addresses[0], addresses[1], addresses[2]
	args := arguments(pod, map[string]string{"NODE_NAME": node, "POD_IP": "127.0.0.1", "POD_NAMESPACE": Namespace})
	args = append(args, "--kubeconfig="+kubeconfig, "--state-dir="+filepath.Join(c.Dir(), "agent-state"), "--sys-root=/sys",
		"--rates-bind-address="+rates, "--advertise-address="+rates,
		"--health-probe-bind-address="+health, "--metrics-bind-address="+metrics)
	confined, err := withCapabilities(pod, program, args)
	if err != nil {
		return nil, err
	}
	process, err := group.Start("agent", "/usr/bin/setpriv", confined...)
	if err != nil {
		return nil, err
	}
	agent := &Program{Process: process, Metrics: metrics, health: health}
	return agent, agent.waitReady(ctx)
}

// freeAddresses are n of this machine, host:port.
func freeAddresses(c *cluster.Cluster, n int) ([]string, error) {
	addresses := make([]string, n)
	for i := range addresses {
		port, err := c.TakePort()
		if err != nil {
			return nil, err
		}
		addresses[i] = fmt.Sprintf("127.0.0.1:%d", port)
	}
	return addresses, nil
}

// arguments are those of a pod's only container, with $(NAME) replaced as the
// kubelet does.
func arguments(pod *corev1.PodSpec, environment map[string]string) []string {
	var replace []string
	for name, value := range environment {
		replace = append(replace, "$("+name+")", value)
	}
	replacer := strings.NewReplacer(replace...)
	var args []string
	for _, arg := range pod.Containers[0].Args {
		args = append(args, replacer.Replace(arg))
	}
	return args
}

// withCapabilities are the arguments of setpriv that run a program with the
// capabilities of a pod's only container and no more. Root gets on exec what is
// in its bounding set.
func withCapabilities(pod *corev1.PodSpec, program string, args []string) ([]string, error) {
	security := pod.Containers[0].SecurityContext
	if security == nil || security.Capabilities == nil || len(security.Capabilities.Add) == 0 {
		return nil, errors.New("the agent's DaemonSet names no capabilities")
	}
	if security.Privileged != nil && *security.Privileged {
		return nil, errors.New("the agent's DaemonSet is privileged")
	}
	bounding := "-all"
	for _, capability := range security.Capabilities.Add {
		bounding += ",+" + strings.ToLower(string(capability))
	}
	confined := []string{"--bounding-set=" + bounding, "--inh-caps=-all", "--no-new-privs", "--", program}
	return append(confined, args...), nil
}

// waitReady polls the program's readiness probe.
func (p *Program) waitReady(ctx context.Context) error {
	return p.WaitReady(ctx, func(ctx context.Context) error {
		_, err := fetch.Body(ctx, http.DefaultClient, "http://"+p.health+"/readyz")
		return err
	})
}

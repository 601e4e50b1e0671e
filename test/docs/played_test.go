package docs

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/test/cluster/stack"
)

// playKubelet says of the installed Deployment and DaemonSet what Kubernetes would where their
// pods run: manager and agents are parts of the test.
func (s *scene) playKubelet(ctx context.Context) error {
	c := s.cluster.Client()
	var deployment appsv1.Deployment
	if err := c.Get(ctx, client.ObjectKey{Namespace: stack.Namespace, Name: "joulevirt-manager"}, &deployment); err != nil {
		return fmt.Errorf("get the manager's Deployment: %w", err)
	}
	replicas := *deployment.Spec.Replicas
	deployment.Status = appsv1.DeploymentStatus{
		ObservedGeneration: deployment.Generation, Replicas: replicas, UpdatedReplicas: replicas, ReadyReplicas: replicas, AvailableReplicas: replicas,
	}
	if err := c.Status().Update(ctx, &deployment); err != nil {
		return fmt.Errorf("status of the manager's Deployment: %w", err)
	}
	var agents appsv1.DaemonSet
	if err := c.Get(ctx, client.ObjectKey{Namespace: stack.Namespace, Name: "joulevirt-agent"}, &agents); err != nil {
		return fmt.Errorf("get the agents' DaemonSet: %w", err)
	}
	const nodes = 2
	agents.Status = appsv1.DaemonSetStatus{
		ObservedGeneration: agents.Generation, DesiredNumberScheduled: nodes, CurrentNumberScheduled: nodes,
		UpdatedNumberScheduled: nodes, NumberReady: nodes, NumberAvailable: nodes,
	}
	if err := c.Status().Update(ctx, &agents); err != nil {
		return fmt.Errorf("status of the agents' DaemonSet: %w", err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: stack.Namespace, Name: agentPod, Labels: agents.Spec.Template.Labels}, Spec: agents.Spec.Template.Spec}
	pod.Spec.NodeName = node
	if err := c.Create(ctx, pod); err != nil {
		return fmt.Errorf("create the pod of an agent: %w", err)
	}
	now := metav1.NowMicro()
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: stack.Namespace, Name: "joulevirt-manager"},
		// The fleet's time is ahead of ours by hours: it is held for longer than any test lasts.
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: ptr.To("joulevirt-manager-0"), AcquireTime: &now, RenewTime: &now, LeaseDurationSeconds: ptr.To(int32((24 * time.Hour).Seconds())),
		},
	}
	if err := c.Create(ctx, lease); err != nil {
		return fmt.Errorf("create the manager's Lease: %w", err)
	}
	return nil
}

// addShop makes what pages take to be there: a VirtualMachine whose VMI is seeded, a Service of
// it, and the namespace of a Prometheus server.
func (s *scene) addShop(ctx context.Context) error {
	labels := map[string]string{"app": "web"}
	for _, object := range []client.Object{
		&corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
			Spec:       corev1.ServiceSpec{Selector: labels, Ports: []corev1.ServicePort{{Port: 80}}},
		},
		&kubevirtv1.VirtualMachine{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: vm},
			Spec: kubevirtv1.VirtualMachineSpec{
				RunStrategy: ptr.To(kubevirtv1.RunStrategyAlways),
				Template:    &kubevirtv1.VirtualMachineInstanceTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}},
			},
		},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "monitoring"}},
	} {
		if err := s.cluster.Client().Create(ctx, object); err != nil {
			return fmt.Errorf("create %T %s: %w", object, object.GetName(), err)
		}
	}
	return nil
}

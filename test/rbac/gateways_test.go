package rbac

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/test/cluster"
)

const (
	// streaming is a namespace of VM owners with gateways.
	streaming = "streaming"
	// hybridAuthor may write HybridWorkloads there, podAuthor pods too.
	hybridAuthor, podAuthor = "hybrid-author", "pod-author"
)

// testGateways shows which pods the manager may create and delete once config/offload is applied,
// and who may have it create one.
func testGateways(t *testing.T, c *cluster.Cluster) {
	if err := c.ApplyManifests(t.Context(), "../../config/offload"); err != nil {
		t.Fatal(err)
	}
	bind := func(name, kind, role string, users ...string) *rbacv1.RoleBinding {
		binding := bindRole(name, kind, role, users...)
		binding.Namespace = streaming
		return binding
	}
	for _, object := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: streaming, Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}}},
		&rbacv1.Role{
			ObjectMeta: metav1.ObjectMeta{Namespace: streaming, Name: "pods"},
			Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"create"}}},
		},
		bind("hybrids", "ClusterRole", "joulevirt-profile-editor", hybridAuthor, podAuthor),
		bind("pods", "Role", "pods", podAuthor),
	} {
		if err := joulevirtClient(t, c.RESTConfig()).Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("Authors", func(t *testing.T) { testHybridAuthors(t, c) })
	t.Run("Pods", func(t *testing.T) { testGatewayPods(t, c) })
	t.Run("Hardening", func(t *testing.T) { testGatewayHardening(t, c) })
}

func testHybridAuthors(t *testing.T, c *cluster.Cluster) {
	without, with := userClient(t, c, hybridAuthor), userClient(t, c, podAuthor)
	hybrid := &v1alpha1.HybridWorkload{
		ObjectMeta: metav1.ObjectMeta{Namespace: streaming, Name: "web"},
		Spec: v1alpha1.HybridWorkloadSpec{
			Selector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, ServiceName: "web", Port: 80,
			Memory: v1alpha1.GatewayMemory{Min: resource.MustParse("16Mi"), Max: resource.MustParse("1Gi")}, TargetResponseTime: &metav1.Duration{Duration: 1e9},
		},
	}
	err := c.WaitFor(t.Context(), policyDelay, "admission policy refuses a HybridWorkload", func(ctx context.Context) error {
		return isForbidden(without.Create(ctx, hybrid.DeepCopy(), client.DryRunAll))
	})
	if err != nil {
		t.Fatal(err)
	}
	wantForbidden(t, without.Create(t.Context(), hybrid.DeepCopy()), "create pods", `namespace "streaming"`)
	if err := with.Create(t.Context(), hybrid); err != nil {
		t.Fatalf("a HybridWorkload of somebody who may create pods: %v", err)
	}
	wantForbidden(t, mergePatch(t.Context(), without, hybrid, `{"spec":{"memory":{"max":"64Gi"}}}`), "create pods")
	if err := mergePatch(t.Context(), without, hybrid, `{"metadata":{"labels":{"a":"b"}}}`); err != nil {
		t.Errorf("a label: %v", err)
	}
	if err := mergePatch(t.Context(), with, hybrid, `{"spec":{"memory":{"max":"2Gi"}}}`); err != nil {
		t.Errorf("more memory, by somebody who may create pods: %v", err)
	}
}

// gatewayOf is a gateway as the manager makes it, from the shipped template.
func gatewayOf(t *testing.T, c *cluster.Cluster, name string) *corev1.Pod {
	t.Helper()
	template := &corev1.PodTemplate{}
	err := joulevirtClient(t, c.AsServiceAccount(namespace, manager)).Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: v1alpha1.GatewayTemplate}, template)
	if err != nil {
		t.Fatalf("the manager reads the template: %v", err)
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: streaming, Name: name, Labels: map[string]string{"app": "web", v1alpha1.LabelGateway: "uid"},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: v1alpha1.GroupVersion.String(), Kind: "HybridWorkload", Name: "web", UID: "1", Controller: ptr.To(true),
			}},
		},
		Spec: template.Template.Spec,
	}
	memory := corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("448Mi")}
	container := &pod.Spec.Containers[0]
	container.Args = []string{"--upstream=10.0.0.1:80", "--listen=:80", "--store=/var/lib/joulevirt"}
	container.Resources = corev1.ResourceRequirements{Requests: memory, Limits: memory}
	container.VolumeMounts = []corev1.VolumeMount{{Name: "store", MountPath: "/var/lib/joulevirt"}}
	pod.Spec.Volumes = []corev1.Volume{{Name: "store", VolumeSource: corev1.VolumeSource{
		EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory, SizeLimit: ptr.To(resource.MustParse("320Mi"))},
	}}}
	return pod
}

// addShare makes a gateway one of path SharedMemory.
func addShare(pod *corev1.Pod) {
	const name = v1alpha1.ShareName
	first := &pod.Spec.Containers[0]
	second := corev1.Container{
		Name: "evict", Image: first.Image, Args: []string{"evict", "--share=/share", "--store=/var/lib/joulevirt", "--idle-eviction=1m0s"},
		SecurityContext: first.SecurityContext.DeepCopy(), Resources: *first.Resources.DeepCopy(), VolumeMounts: []corev1.VolumeMount{{Name: name, MountPath: "/share"}},
	}
	first.Args = append(first.Args, "--share=/share")
	first.VolumeMounts = append(first.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: "/share", ReadOnly: true})
	pod.Spec.Containers = append(pod.Spec.Containers, second)
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: v1alpha1.SharePrefix + "web"},
	}})
	pod.Spec.SecurityContext.RunAsUser, pod.Spec.SecurityContext.RunAsGroup = ptr.To[int64](v1alpha1.ShareUser), ptr.To[int64](v1alpha1.ShareUser)
	pod.Spec.SecurityContext.SELinuxOptions = &corev1.SELinuxOptions{Level: "s0:c1,c2"}
}

// addTLS gives a gateway a certificate.
func addTLS(pod *corev1.Pod) {
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "tls", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
		SecretName: "joulevirt-tls-web", Optional: ptr.To(true), Items: []corev1.KeyToPath{{Key: "tls.crt", Path: "tls.crt"}, {Key: "tls.key", Path: "tls.key"}, {Key: "ca.crt", Path: "ca.crt"}},
	}}})
	c := &pod.Spec.Containers[0]
	c.Args = append(c.Args, "--tls=/tls")
	c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "tls", MountPath: "/tls", ReadOnly: true})
}

// tlsBreaks are what a manager that was taken over might try to read of Secrets, by a gateway that has a share and
// a certificate.
func tlsBreaks() map[string][]func(*corev1.Pod) {
	argument := func(i int, text string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Spec.Containers[i].Args = append(p.Spec.Containers[i].Args, text) }
	}
	mounts := func(change func(*corev1.VolumeMount)) func(*corev1.Pod) {
		return func(p *corev1.Pod) { change(&p.Spec.Containers[0].VolumeMounts[2]) }
	}
	return map[string][]func(*corev1.Pod){
		"its flags alone": { // nginx would send the key
			argument(0, "--share=/tls"), argument(1, "--share=/tls"), argument(0, "--listen=x; root /tls; #:80"),
			argument(0, "--tls=/tls; root /tls"), argument(0, "--store=/var/lib/joulevirt; root /tls"),
		},
		"Secret joulevirt-tls-*": {
			mounts(func(m *corev1.VolumeMount) { m.MountPath = "/share/x" }),
			mounts(func(m *corev1.VolumeMount) { m.SubPath = "tls.key" }),
			mounts(func(m *corev1.VolumeMount) { m.SubPathExpr = "tls.key" }),
			func(p *corev1.Pod) { p.Spec.Volumes[2].Secret.SecretName = "database" },
			func(p *corev1.Pod) { p.Spec.Volumes[2].Secret.Items = nil },
			func(p *corev1.Pod) { p.Spec.Volumes[2].Secret.Items[2].Key = "token" },
			func(p *corev1.Pod) {
				more := *p.Spec.Volumes[2].DeepCopy()
				more.Name = "more"
				p.Spec.Volumes = append(p.Spec.Volumes, more)
			},
			func(p *corev1.Pod) {
				p.Spec.Volumes[2].Projected = &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{Secret: &corev1.SecretProjection{
					LocalObjectReference: corev1.LocalObjectReference{Name: "joulevirt-tls-web"},
				}}}}
				p.Spec.Volumes[2].Secret = nil
			},
			func(p *corev1.Pod) {
				p.Spec.Containers[1].VolumeMounts = append(p.Spec.Containers[1].VolumeMounts, p.Spec.Containers[0].VolumeMounts[2])
			},
		},
	}
}

// sharedBreaks are what a manager that was taken over might try with a gateway that has a share, by words of
// the refusal.
func sharedBreaks() map[string][]func(*corev1.Pod) {
	type change = func(*corev1.Pod)
	return map[string][]change{
		"a second one alike where the VM has a share": {
			func(p *corev1.Pod) { p.Spec.Containers[1].Image = "example.org/miner" },
			func(p *corev1.Pod) {
				more := *p.Spec.Containers[1].DeepCopy()
				more.Name = "more"
				p.Spec.Containers = append(p.Spec.Containers, more)
			},
			func(p *corev1.Pod) { p.Spec.Containers = p.Spec.Containers[:1] },
		},
		"its flags alone": {
			func(p *corev1.Pod) {
				p.Spec.Containers[1].Args = append(p.Spec.Containers[1].Args, "--upstream=10.0.0.1:80")
			},
			func(p *corev1.Pod) { p.Spec.Containers[1].Command = []string{"/bin/sh"} },
			func(p *corev1.Pod) { p.Spec.Containers[1].Env = []corev1.EnvVar{{Name: "LD_PRELOAD", Value: "x"}} },
			func(p *corev1.Pod) {
				p.Spec.Containers[0].Args = append([]string{"evict"}, p.Spec.Containers[0].Args...)
			},
		},
		"first container only reads": {
			func(p *corev1.Pod) { p.Spec.Volumes[1].PersistentVolumeClaim.ClaimName = "data" },
			func(p *corev1.Pod) { p.Spec.Containers[0].VolumeMounts[1].ReadOnly = false },
		},
		"another user than root": {
			func(p *corev1.Pod) { p.Spec.SecurityContext.SupplementalGroups = []int64{0} },
			func(p *corev1.Pod) { p.Spec.SecurityContext.FSGroup = ptr.To[int64](0) },
			func(p *corev1.Pod) { p.Spec.Containers[1].SecurityContext.RunAsUser = ptr.To[int64](0) },
			func(p *corev1.Pod) { p.Spec.Containers[1].SecurityContext.ReadOnlyRootFilesystem = nil },
			func(p *corev1.Pod) { p.Spec.SecurityContext.SELinuxOptions.Type = "spc_t" },
			func(p *corev1.Pod) {
				p.Spec.Containers[1].SecurityContext.SELinuxOptions = &corev1.SELinuxOptions{User: "system_u"}
			},
		},
		"requests the memory that it is limited to": {
			func(p *corev1.Pod) { p.Spec.Containers[1].Resources.Limits = nil },
		},
	}
}

// gatewayBreaks are what a manager that was taken over might try, by words of the refusal.
func gatewayBreaks() map[string][]func(*corev1.Pod, *corev1.Container) {
	type change = func(*corev1.Pod, *corev1.Container)
	return map[string][]change{
		"one HybridWorkload owns": {
			func(p *corev1.Pod, _ *corev1.Container) { p.OwnerReferences = nil },
			func(p *corev1.Pod, _ *corev1.Container) { p.OwnerReferences[0].Controller = nil },
			func(p *corev1.Pod, _ *corev1.Container) { p.OwnerReferences[0].Kind = "VMNetworkProfile" },
			func(p *corev1.Pod, _ *corev1.Container) { p.OwnerReferences[0].APIVersion = "example.org/v1" },
		},
		"with label joulevirt.io/gateway": {
			func(p *corev1.Pod, _ *corev1.Container) { delete(p.Labels, v1alpha1.LabelGateway) },
			func(p *corev1.Pod, _ *corev1.Container) { p.Labels["kubevirt.io"] = "virt-launcher" },
			func(p *corev1.Pod, _ *corev1.Container) { p.Labels["app.kubernetes.io/name"] = "joulevirt" },
		},
		"one container with image": {
			func(_ *corev1.Pod, c *corev1.Container) { c.Image = "example.org/miner" },
			func(p *corev1.Pod, c *corev1.Container) {
				more := *c.DeepCopy()
				more.Name, more.Ports = "more", nil
				p.Spec.Containers = append(p.Spec.Containers, more)
			},
			func(p *corev1.Pod, c *corev1.Container) {
				more := *c.DeepCopy()
				more.Name, more.Ports, more.Lifecycle, more.LivenessProbe, more.ReadinessProbe = "first", nil, nil, nil, nil
				p.Spec.InitContainers = []corev1.Container{more}
			},
		},
		"its flags alone": {
			func(_ *corev1.Pod, c *corev1.Container) { c.Command = []string{"/bin/sh"} },
			func(_ *corev1.Pod, c *corev1.Container) { c.Args = append(c.Args, "--conf=/etc/passwd") },
			func(_ *corev1.Pod, c *corev1.Container) { c.Env = []corev1.EnvVar{{Name: "LD_PRELOAD", Value: "x"}} },
			func(_ *corev1.Pod, c *corev1.Container) {
				c.EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "tls"}}}}
			},
			func(_ *corev1.Pod, c *corev1.Container) {
				c.LivenessProbe.ProbeHandler = corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"/bin/sh"}}}
			},
			func(_ *corev1.Pod, c *corev1.Container) {
				c.Lifecycle.PostStart = &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"/bin/sh"}}}
			},
		},
		"one volume, an emptyDir in memory": {
			func(p *corev1.Pod, _ *corev1.Container) { p.Spec.AutomountServiceAccountToken = ptr.To(true) },
			func(p *corev1.Pod, _ *corev1.Container) { p.Spec.Volumes[0].EmptyDir.SizeLimit = nil },
			func(p *corev1.Pod, _ *corev1.Container) { p.Spec.Volumes[0].EmptyDir.Medium = "" },
			func(p *corev1.Pod, _ *corev1.Container) {
				p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "tls", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "tls"}}})
			},
		},
		"shares nothing with its node": {
			func(p *corev1.Pod, _ *corev1.Container) { p.Spec.NodeName = nodeA },
		},
		"has the priorityClassName": {
			func(p *corev1.Pod, _ *corev1.Container) { p.Spec.PriorityClassName = "joulevirt-manager" },
		},
		"requests the memory that it is limited to": {
			func(_ *corev1.Pod, c *corev1.Container) { c.Resources.Limits = nil },
			func(_ *corev1.Pod, c *corev1.Container) {
				c.Resources.Requests = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Mi")}
			},
		},
	}
}

func testGatewayPods(t *testing.T, c *cluster.Cluster) {
	account, admin := joulevirtClient(t, c.AsServiceAccount(namespace, manager)), joulevirtClient(t, c.RESTConfig())
	err := c.WaitFor(t.Context(), policyDelay, "admission policy refuses another pod", func(ctx context.Context) error {
		pod := gatewayOf(t, c, "foreign")
		pod.OwnerReferences = nil
		return isForbidden(account.Create(ctx, pod, client.DryRunAll))
	})
	if err != nil {
		t.Fatal(err)
	}
	for word, changes := range gatewayBreaks() {
		for i, change := range changes {
			pod := gatewayOf(t, c, "broken")
			change(pod, &pod.Spec.Containers[0])
			if err := account.Create(t.Context(), pod); err == nil {
				t.Errorf("%s: change %d is accepted", word, i)
			} else {
				wantForbidden(t, err, word)
			}
		}
	}
	for word, changes := range sharedBreaks() {
		for i, change := range changes {
			pod := gatewayOf(t, c, "broken")
			pod.Namespace = routed // where Pod Security does not refuse the same before
			addShare(pod)
			change(pod)
			if err := account.Create(t.Context(), pod); err == nil {
				t.Errorf("share, %s: change %d is accepted", word, i)
			} else {
				wantForbidden(t, err, word)
			}
		}
	}
	for word, changes := range tlsBreaks() {
		for i, change := range changes {
			pod := gatewayOf(t, c, "broken")
			pod.Namespace = routed
			addShare(pod)
			addTLS(pod)
			change(pod)
			if err := account.Create(t.Context(), pod); err == nil {
				t.Errorf("TLS, %s: change %d is accepted", word, i)
			} else {
				wantForbidden(t, err, word)
			}
		}
	}
	secure := gatewayOf(t, c, "secure")
	addTLS(secure)
	if err := account.Create(t.Context(), secure, client.DryRunAll); err != nil {
		t.Errorf("a gateway with a certificate, in a namespace of Pod Security level restricted: %v", err)
	}
	shared := gatewayOf(t, c, "shared")
	addShare(shared)
	addTLS(shared)
	if err := account.Create(t.Context(), shared, client.DryRunAll); err != nil {
		t.Errorf("a gateway with a share, in a namespace of Pod Security level restricted: %v", err)
	}
	own := gatewayOf(t, c, "own")
	if err := account.Create(t.Context(), own); err != nil {
		t.Fatalf("a gateway, in a namespace of Pod Security level restricted: %v", err)
	}
	const standby = `{"metadata":{"labels":{"joulevirt.io/serving":"standby"}}}`
	if err := mergePatch(t.Context(), account, own, standby); err != nil {
		t.Errorf("take a gateway out of the Service: %v", err)
	}
	wantForbidden(t, mergePatch(t.Context(), account, own, `{"metadata":{"labels":{"app":"other"}}}`), "only joulevirt.io/serving")
	if err := account.Delete(t.Context(), own); err != nil {
		t.Errorf("delete a gateway: %v", err)
	}
	for name, change := range map[string]func(*corev1.Pod){
		"unlabelled": func(p *corev1.Pod) { delete(p.Labels, v1alpha1.LabelGateway) },
		"unowned":    func(p *corev1.Pod) { p.OwnerReferences = nil },
	} {
		foreign := gatewayOf(t, c, name)
		change(foreign)
		if err := admin.Create(t.Context(), foreign); err != nil {
			t.Fatal(err)
		}
		wantForbidden(t, account.Delete(t.Context(), foreign), name)
		wantForbidden(t, mergePatch(t.Context(), account, foreign, standby), name)
	}
}

// testGatewayHardening runs where Pod Security does not refuse the same before: what the policy
// itself refuses.
func testGatewayHardening(t *testing.T, c *cluster.Cluster) {
	account := joulevirtClient(t, c.AsServiceAccount(namespace, manager))
	for i, change := range []func(*corev1.PodSpec, *corev1.SecurityContext){
		func(p *corev1.PodSpec, _ *corev1.SecurityContext) { p.SecurityContext.RunAsNonRoot = nil },
		func(p *corev1.PodSpec, _ *corev1.SecurityContext) { p.SecurityContext.RunAsUser = ptr.To[int64](0) },
		func(p *corev1.PodSpec, _ *corev1.SecurityContext) { p.SecurityContext.SeccompProfile = nil },
		func(p *corev1.PodSpec, _ *corev1.SecurityContext) {
			p.SecurityContext.Sysctls = append(p.SecurityContext.Sysctls, corev1.Sysctl{Name: "kernel.shm_rmid_forced", Value: "1"})
		},
		func(_ *corev1.PodSpec, s *corev1.SecurityContext) {
			s.Privileged, s.AllowPrivilegeEscalation = ptr.To(true), nil
		},
		func(_ *corev1.PodSpec, s *corev1.SecurityContext) { s.AllowPrivilegeEscalation = nil },
		func(_ *corev1.PodSpec, s *corev1.SecurityContext) { s.ReadOnlyRootFilesystem = nil },
		func(_ *corev1.PodSpec, s *corev1.SecurityContext) { s.Capabilities = nil },
		func(_ *corev1.PodSpec, s *corev1.SecurityContext) {
			s.Capabilities.Add = []corev1.Capability{"NET_ADMIN"}
		},
		func(_ *corev1.PodSpec, s *corev1.SecurityContext) { s.RunAsNonRoot = ptr.To(false) },
		func(_ *corev1.PodSpec, s *corev1.SecurityContext) {
			s.SeccompProfile = &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeUnconfined}
		},
	} {
		pod := gatewayOf(t, c, "broken")
		pod.Namespace = routed
		change(&pod.Spec, pod.Spec.Containers[0].SecurityContext)
		if err := account.Create(t.Context(), pod); err == nil {
			t.Errorf("hardening: change %d is accepted", i)
		} else {
			wantForbidden(t, err, "another user than root")
		}
	}
	for i, change := range []func(*corev1.Pod){
		func(p *corev1.Pod) { p.Spec.HostNetwork, p.Spec.SecurityContext.Sysctls = true, nil },
		func(p *corev1.Pod) { p.Spec.HostPID = true },
		func(p *corev1.Pod) { p.Spec.HostIPC = true },
		func(p *corev1.Pod) { p.Spec.ShareProcessNamespace = ptr.To(true) },
		func(p *corev1.Pod) { p.Spec.Containers[0].Ports[0].HostPort = 9465 },
	} {
		pod := gatewayOf(t, c, "broken")
		pod.Namespace = routed
		change(pod)
		if err := account.Create(t.Context(), pod); err == nil {
			t.Errorf("node: change %d is accepted", i)
		} else {
			wantForbidden(t, err, "shares nothing with its node")
		}
	}
}

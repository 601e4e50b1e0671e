//go:build e2e

package offload

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/test/cluster"
	"github.com/joulevirt/joulevirt/test/cluster/binaries"
	"github.com/joulevirt/joulevirt/test/env/node"
)

const (
	// soon bounds what a node on a busy machine does in some seconds, and the restart of a VM.
	soon = 10 * time.Minute
	// shareMiB is the size of the share. virtiofsd, which writes the files, is charged for them.
	shareMiB, virtiofsdMiB = 256, 512
	// product is the namespace and its release.
	product, release = "joulevirt-system", "joulevirt"
	secret           = "of another VM"
	claimName        = v1alpha1.SharePrefix + "stream"
)

// shareLives tells the life of a share with the product installed by its chart: 50 clients get
// from it what the guest wrote, nothing but its files is sent, both speak TLS for a while, what mounts it is killed, its node is
// drained, and the product is removed.
func shareLives(w *world) {
	t, s := w.T, w.shareServes(nil)
	for _, step := range []struct {
		name string
		run  func()
	}{
		{"Serve", func() { w.serveMany(s) }},
		{"Refuse", func() { w.refuseOthers(s) }},
		{"TLS", func() { s = w.secure(s) }},
		{"Kill", func() { w.killMounter(s) }},
		{"Drain", func() { s = w.drain(s) }},
		{"Uninstall", func() { w.uninstall(s) }},
	} {
		t.Run(step.name, func(t *testing.T) {
			w.T = t
			step.run()
		})
	}
}

// share is a VM's share as it serves.
type share struct {
	gateway *corev1.Pod
	claim   types.UID
	// files is its folder on the node.
	files string
}

// url is what clients ask the gateway for.
func (s share) url(path string) string { return "http://" + s.gateway.Status.PodIP + path }

// allowShares has KubeVirt share folders with VMs.
func allowShares(config *kubevirtv1.KubeVirtConfiguration) {
	config.DeveloperConfiguration.FeatureGates = append(config.DeveloperConfiguration.FeatureGates, "EnableVirtioFsStorageVolumes")
	config.SupportContainerResources = []kubevirtv1.SupportContainerResources{{
		Type: kubevirtv1.VirtioFS, Resources: kubevirtv1.ResourceRequirementsWithoutClaims{Limits: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourceMemory: resource.MustParse(fmt.Sprintf("%dMi", virtiofsdMiB)),
		}},
	}}
}

// startShared installs the product and starts a VM with a share.
func startShared(t *testing.T, e *node.Environment) *world {
	t.Helper()
	w := newWorld(t, e, "stream")
	w.must(v1alpha1.AddToScheme(w.Client().Scheme()))
	w.helm("install", release, "charts/joulevirt", "--create-namespace", "--set", "offload.enabled=true,offload.sharedMemory.enabled=true,manager.replicas=1",
		"--set", "manager.extraArgs={--rates-interval=5s,--replan-interval=5s,--review-interval=10s,--status-delay=1s}")
	labels := map[string]string{"app": w.vm.Name}
	for _, o := range []client.Object{
		&v1alpha1.EnergyPolicy{ObjectMeta: metav1.ObjectMeta{Name: "offload"}, Spec: v1alpha1.EnergyPolicySpec{
			Mode: v1alpha1.ModeEnforce, Levers: []v1alpha1.Lever{v1alpha1.LeverOffload}, Priority: 1,
			Energy:       v1alpha1.EnergySettings{AllowModelled: true},
			Verification: v1alpha1.Verification{Trials: v1alpha1.TrialsDisabled, HoldBackPercent: ptr.To[int32](0)},
		}},
		&corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: w.vm.Namespace, Name: w.vm.Name, Annotations: map[string]string{v1alpha1.AnnotationAdopt: "true"}},
			Spec:       corev1.ServiceSpec{Selector: labels, Ports: []corev1.ServicePort{{Port: 80}}},
		},
		&v1alpha1.HybridWorkload{ObjectMeta: metav1.ObjectMeta{Namespace: w.vm.Namespace, Name: w.vm.Name}, Spec: v1alpha1.HybridWorkloadSpec{
			Path: v1alpha1.PathSharedMemory, Selector: metav1.LabelSelector{MatchLabels: labels}, ServiceName: w.vm.Name, Port: 80,
			Memory:       v1alpha1.GatewayMemory{Min: resource.MustParse("16Mi"), Max: *resource.NewQuantity(shareMiB<<20, resource.BinarySI)},
			IdleEviction: &metav1.Duration{Duration: 5 * time.Second},
		}},
	} {
		w.must(w.Client().Create(t.Context(), o))
	}
	vmi, err := w.StartVM(t.Context(), w.NewVM(w.vm.Namespace, w.vm.Name, func(t *kubevirtv1.VirtualMachineInstanceTemplateSpec) {
		t.Spec.Domain.CPU = &kubevirtv1.CPU{Cores: 1}
		t.Spec.EvictionStrategy = ptr.To(kubevirtv1.EvictionStrategyNone)
		t.Spec.Domain.Devices.Filesystems = []kubevirtv1.Filesystem{{Name: v1alpha1.ShareName, Virtiofs: &kubevirtv1.FilesystemVirtiofs{}}}
		t.Spec.Volumes = append(t.Spec.Volumes, kubevirtv1.Volume{Name: v1alpha1.ShareName, VolumeSource: kubevirtv1.VolumeSource{
			PersistentVolumeClaim: &kubevirtv1.PersistentVolumeClaimVolumeSource{
				PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: claimName},
			},
		}})
	}))
	w.must(err)
	w.guest = vmi.Status.Interfaces[0].IP + ":80"
	return w
}

// helm runs Helm as people do.
func (w *world) helm(args ...string) {
	w.Helper()
	paths, err := binaries.FromEnvironment(os.Getenv, os.Stderr).Ensure(w.Context(), binaries.Helm)
	w.must(err)
	helm := cluster.Helm{Program: paths[binaries.Helm], Home: w.TempDir(), Dir: "../../..", Kubeconfig: w.Kubeconfig()}
	_, err = helm.Run(w.Context(), append(args, "--namespace", product, "--timeout", soon.String(), "--wait")...)
	w.must(err)
}

func (w *world) eventually(what string, condition func(context.Context) error) {
	w.Helper()
	w.must(w.WaitFor(w.Context(), soon, what, condition))
}

// onNode runs a command on the node.
func (w *world) onNode(program string, args ...string) string {
	w.Helper()
	out, err := w.Nodes()[0].Run(w.Context(), program, args...)
	w.must(err)
	return out
}

// mounts are the folders of shares that are mounted on the node.
func (w *world) mounts() (folders []string) {
	w.Helper()
	for line := range strings.Lines(w.onNode("cat", "/proc/mounts")) {
		if fields := strings.Fields(line); filepath.Dir(fields[1]) == v1alpha1.ShareRoot {
			folders = append(folders, filepath.Base(fields[1]))
		}
	}
	return folders
}

// shareServes waits until another gateway than before serves from the VM's share.
func (w *world) shareServes(before *corev1.Pod) share {
	w.Helper()
	s := share{gateway: &corev1.Pod{}}
	hybrid, claim := &v1alpha1.HybridWorkload{}, &corev1.PersistentVolumeClaim{}
	w.eventually("a gateway serves", func(ctx context.Context) error {
		if err := w.Client().Get(ctx, w.vm, hybrid); err != nil {
			return err
		}
		if len(hybrid.Status.Gateways) != 1 || !hybrid.Status.Gateways[0].Ready {
			return fmt.Errorf("status %+v", hybrid.Status)
		}
		err := w.Client().Get(ctx, types.NamespacedName{Namespace: w.vm.Namespace, Name: hybrid.Status.Gateways[0].Pod}, s.gateway)
		if err == nil && before != nil && s.gateway.UID == before.UID {
			err = errors.New("it is that of before")
		}
		return err
	})
	w.must(w.Client().Get(w.Context(), client.ObjectKey{Namespace: w.vm.Namespace, Name: claimName}, claim))
	s.claim = claim.UID
	s.files = filepath.Join(v1alpha1.ShareRoot, string(s.claim), v1alpha1.ShareFiles)
	if got := w.mounts(); len(got) != 1 || got[0] != string(s.claim) {
		w.Errorf("shares %q are mounted, want that of claim %s alone", got, s.claim)
	}
	return s
}

// serveMany has 50 clients download what the guest writes to its share while it computes. Its network
// sends next to nothing, and the files go when nobody asks for them.
func (w *world) serveMany(s share) {
	w.Helper()
	launchers := &corev1.PodList{}
	w.must(w.Client().List(w.Context(), launchers, client.InNamespace(w.vm.Namespace), client.MatchingLabels{"kubevirt.io": "virt-launcher"}))
	n := w.Nodes()[0]
	daemon, err := n.PodProcess(launchers.Items[0].UID, "/usr/libexec/virtiofsd")
	w.must(err)
	var helpers []int
	for _, program := range []string{"/joulevirt-gateway --", "/joulevirt-gateway evict"} {
		pid, err := n.PodProcess(s.gateway.UID, program)
		w.must(err)
		helpers = append(helpers, pid)
	}
	alone := w.measure(way{}, 0)
	r := w.measure(way{files: s.url("/made/%d"), helpers: append(helpers, daemon)}, 50)
	w.Logf("50 clients get %.1f MB/s from the share while the task takes %.1f s, alone %.1f s; the guest switches %.2f times per MB and sends %.3f MB per MB; CPU ms per MB: vCPU %.2f, rest of QEMU %.2f, gateway and virtiofsd %.2f",
		r.megabytes/r.taskSeconds, r.taskSeconds, alone.taskSeconds, r.switches/r.megabytes, r.sent/1e6/r.megabytes,
		1e3*(r.vcpu-alone.vcpu)/r.megabytes, 1e3*(r.qemu-alone.qemu)/r.megabytes, 1e3*r.helpers/r.megabytes)
	if r.megabytes < 50 || r.sent > 0.02*r.megabytes*1e6 {
		w.Errorf("clients got %.1f MB, and the VM sent %.0f bytes by its network, want at most 2 %%", r.megabytes, r.sent)
	}
	w.eventually("files that nobody asks for are gone", func(context.Context) error {
		if left := strings.TrimSpace(w.onNode("ls", s.files)); left != "" {
			return fmt.Errorf("there is %q", left)
		}
		return nil
	})
}

// refuseOthers has the guest ask for all that the gateway must not send: it is as if a guest was
// taken over.
func (w *world) refuseOthers(s share) {
	w.Helper()
	other := "5d0f6d3a-3f0e-4f53-8e6a-96f0a7a9b001"
	volume := w.foreignVolume(other)
	path := filepath.Join(v1alpha1.ShareRoot, other, v1alpha1.ShareFiles, "secret")
	w.onNode("sh", "-c", fmt.Sprintf("echo '%s' > %s; chmod 644 %[2]s", secret, path))
	w.onNode("ln", "-s", "/etc/passwd", s.files+"/passwd")
	w.onNode("ln", "-s", "../../"+other+"/files", s.files+"/folder")
	w.onNode("ln", "-s", path, s.files+"/file")
	for _, name := range []string{"passwd", "folder/secret", "file", "../../../etc/passwd", "%2e%2e/%2e%2e/etc/passwd", "../../" + other + "/files/secret", "absent"} {
		response, err := w.client.Get(s.url("/shared?path=" + name))
		w.must(err)
		text, err := io.ReadAll(response.Body)
		w.must(errors.Join(err, response.Body.Close()))
		if response.StatusCode != http.StatusNotFound || strings.Contains(string(text), secret) || strings.Contains(string(text), "root:") {
			w.Errorf("%s: %s %q, want 404", name, response.Status, text)
		}
	}
	w.must(w.Client().Delete(w.Context(), volume))
	w.onlyShare(s.claim)
}

// foreignVolume makes another VM's share.
func (w *world) foreignVolume(claim string) *corev1.PersistentVolume {
	w.Helper()
	volumes := &corev1.PersistentVolumeList{}
	w.must(w.Client().List(w.Context(), volumes, client.MatchingLabels{v1alpha1.LabelShare: "true"}))
	volume := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "foreign", Labels: volumes.Items[0].Labels, Annotations: volumes.Items[0].Annotations}, Spec: volumes.Items[0].Spec,
	}
	// The manager leaves it.
	volume.Spec.ClaimRef, volume.Spec.StorageClassName, volume.Spec.PersistentVolumeReclaimPolicy = nil, "foreign", corev1.PersistentVolumeReclaimRetain
	volume.Spec.Local = &corev1.LocalVolumeSource{Path: filepath.Join(v1alpha1.ShareRoot, claim, v1alpha1.ShareFiles)}
	w.must(w.Client().Create(w.Context(), volume))
	w.eventually("another share is mounted", func(context.Context) error {
		_, err := w.Nodes()[0].Run(w.Context(), "test", "-d", volume.Spec.Local.Path)
		return err
	})
	return volume
}

// onlyShare waits until one share is mounted.
func (w *world) onlyShare(claim types.UID) {
	w.Helper()
	w.eventually("one share is mounted", func(context.Context) error {
		if got := w.mounts(); len(got) != 1 || got[0] != string(claim) {
			return fmt.Errorf("mounted are %q, want %s", got, claim)
		}
		return nil
	})
}

// made has the guest write a file and clients get it.
func (w *world) made(s share, name string) {
	w.Helper()
	response, err := w.client.Get(s.url("/made/" + name))
	w.must(err)
	n, err := io.Copy(io.Discard, response.Body)
	w.must(errors.Join(err, response.Body.Close()))
	if response.StatusCode != http.StatusOK || n != fileSize || !strings.Contains(w.onNode("ls", s.files), name) {
		w.Errorf("file %s: %s, %d bytes, and the share has %q", name, response.Status, n, w.onNode("ls", s.files))
	}
}

// secure has the gateway and the guest speak TLS for a while. Until there is the Secret, the status says so.
func (w *world) secure(before share) share {
	secret := "joulevirt-tls-" + w.vm.Name
	set := func(port int32, tls string) {
		w.Helper()
		w.patch(&corev1.Service{}, fmt.Sprintf(`{"spec":{"ports":[{"port":%d,"targetPort":%d}]}}`, port, port))
		w.patch(&v1alpha1.HybridWorkload{}, fmt.Sprintf(`{"spec":{"port":%d,"tls":%s}}`, port, tls))
	}
	set(443, fmt.Sprintf(`{"secretName":%q}`, secret))
	hybrid := &v1alpha1.HybridWorkload{}
	w.eventually("the status says that the Secret is missing", func(ctx context.Context) error {
		err := w.Client().Get(ctx, w.vm, hybrid)
		if gateways := hybrid.Status.Gateways; err == nil && (len(gateways) != 1 || gateways[0].Reason != v1alpha1.ReasonGatewayTLS) {
			err = fmt.Errorf("status %+v", hybrid.Status)
		}
		return err
	})
	if got := hybrid.Status.Gateways[0].Message; !strings.Contains(got, "tls.crt: no such file") {
		w.Errorf("the message is %q", got)
	}
	guest := httptest.NewTLSServer(nil) // with the same certificate
	defer guest.Close()
	key, err := x509.MarshalPKCS8PrivateKey(guest.TLS.Certificates[0].PrivateKey)
	w.must(err)
	w.must(w.Client().Create(w.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.vm.Namespace, Name: secret}, Type: corev1.SecretTypeTLS,
		Data: map[string][]byte{
			corev1.TLSCertKey:       pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: guest.Certificate().Raw}),
			corev1.TLSPrivateKeyKey: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}),
		},
	}))
	s := w.shareServes(before.gateway)
	web := guest.Client()
	web.Transport.(*http.Transport).TLSClientConfig.ServerName = "example.com"
	for _, path := range []string{"/made/secure", "/file/secure"} {
		response, err := web.Get("https://" + s.gateway.Status.PodIP + path)
		w.must(err)
		size, err := io.Copy(io.Discard, response.Body)
		response.Body.Close()
		if err != nil || response.StatusCode != http.StatusOK || size != fileSize {
			w.Errorf("%s: %s, %d bytes, %v", path, response.Status, size, err)
		}
	}
	set(80, "null")
	return w.shareServes(s.gateway)
}

// patch changes an object of the VM's name.
func (w *world) patch(o client.Object, merge string) {
	w.Helper()
	o.SetNamespace(w.vm.Namespace)
	o.SetName(w.vm.Name)
	w.must(w.Client().Patch(w.Context(), o, client.RawPatch(types.MergePatchType, []byte(merge))))
}

// killMounter kills what mounts shares, as the kernel does when memory runs out: they stay.
func (w *world) killMounter(s share) {
	w.Helper()
	w.made(s, "before")
	pid, err := w.Nodes()[0].Process("/agent mount-shares")
	w.must(err)
	w.must(syscall.Kill(pid, syscall.SIGKILL))
	w.eventually("kubelet has started another", func(context.Context) error {
		again, err := w.Nodes()[0].Process("/agent mount-shares")
		if err == nil && again == pid {
			err = errors.New("it runs still")
		}
		return err
	})
	w.made(s, "after")
	w.onlyShare(s.claim)
}

// drain drains the node, which ends, and returns the share that the VM has when it starts again.
func (w *world) drain(before share) share {
	w.Helper()
	w.made(before, "of-the-first-start")
	n := w.Nodes()[0].Name
	_, err := w.RunKubectl(w.Context(), "drain", n, "--pod-selector=kubevirt.io=virt-launcher", "--delete-emptydir-data", "--force", "--timeout="+soon.String())
	w.must(err)
	_, err = w.RunKubectl(w.Context(), "uncordon", n)
	w.must(err)
	w.eventually("the VM starts with another share", func(ctx context.Context) error {
		claim := &corev1.PersistentVolumeClaim{}
		err := w.Client().Get(ctx, client.ObjectKey{Namespace: w.vm.Namespace, Name: claimName}, claim)
		if err == nil && claim.UID == before.claim {
			err = errors.New("it is that of before")
		}
		return err
	})
	vmi, err := w.WaitAnswers(w.Context(), w.vm)
	w.must(err)
	w.guest = vmi.Status.Interfaces[0].IP + ":80"
	after := w.shareServes(before.gateway)
	if left := strings.TrimSpace(w.onNode("ls", after.files)); left != "" {
		w.Errorf("the new share has %q", left)
	}
	w.made(after, "of-the-second-start")
	return after
}

// uninstall removes the product while the VM runs: the node has no share mounted, the VM keeps its own,
// and its volume goes when the VM does.
func (w *world) uninstall(s share) {
	w.Helper()
	w.helm("uninstall", release)
	if left := w.mounts(); len(left) > 0 {
		w.Errorf("shares %q are still mounted", left)
	}
	if left := strings.TrimSpace(w.onNode("ls", v1alpha1.ShareRoot)); left != "" {
		w.Errorf("folders of shares are left: %q", left)
	}
	request, err := http.NewRequestWithContext(w.Context(), http.MethodGet, "http://"+w.guest+"/made/without-gateway", http.NoBody)
	w.must(err)
	request.Header.Set(v1alpha1.HeaderShare, v1alpha1.ShareLocation)
	response, err := w.client.Do(request)
	w.must(err)
	w.must(response.Body.Close())
	if got, want := response.Header.Get("X-Accel-Redirect"), v1alpha1.ShareLocation+"without-gateway"; got != want {
		w.Errorf("the VM, which still runs, does not write to its share: %q, want %q", got, want)
	}
	w.must(w.Client().Delete(w.Context(), &kubevirtv1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: w.vm.Namespace, Name: w.vm.Name}}))
	w.eventually("the volume of claim "+string(s.claim)+" is gone", func(ctx context.Context) error {
		volumes := &corev1.PersistentVolumeList{}
		err := w.Client().List(ctx, volumes, client.MatchingLabels{v1alpha1.LabelShare: "true"})
		if err == nil && len(volumes.Items) > 0 {
			err = fmt.Errorf("there is %s in phase %s", volumes.Items[0].Name, volumes.Items[0].Status.Phase)
		}
		return err
	})
}

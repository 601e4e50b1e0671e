package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/test/cluster"
	"github.com/joulevirt/joulevirt/test/internal/fetch"
)

const (
	// runTimeout bounds the start of a VM on a busy machine: 5 to 20 s otherwise.
	runTimeout = 10 * time.Minute
	// migrationTimeout bounds a live migration on a busy machine: 7 to 20 s otherwise.
	migrationTimeout = 10 * time.Minute
	// answerTimeout bounds a request to a guest that waits for CPUs.
	answerTimeout = 30 * time.Second
	// kernelArguments give the guest the address that masquerade leads to, and a name.
	kernelArguments = "console=ttyS0 quiet panic=-1 mitigations=off tsc=reliable no_timer_check " +
		"guest.address=10.0.2.2/24 guest.gateway=10.0.2.1 guest.name="
)

// NewVM returns a VM of the tests' guest, which answers HTTP on port 80 with the VM's name
// (see package guest), with two vCPUs. change, when set, changes it first.
func (e *Environment) NewVM(namespace, name string, change func(*kubevirtv1.VirtualMachineInstanceTemplateSpec)) *kubevirtv1.VirtualMachine {
	template := &kubevirtv1.VirtualMachineInstanceTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": name}},
		Spec: kubevirtv1.VirtualMachineInstanceSpec{
			TerminationGracePeriodSeconds: ptr.To[int64](0),
			Networks:                      []kubevirtv1.Network{*kubevirtv1.DefaultPodNetwork()},
			Domain: kubevirtv1.DomainSpec{
				CPU:    &kubevirtv1.CPU{Cores: 2},
				Memory: &kubevirtv1.Memory{Guest: ptr.To(resource.MustParse("128Mi"))},
				Firmware: &kubevirtv1.Firmware{KernelBoot: &kubevirtv1.KernelBoot{
					KernelArgs: kernelArguments + name,
					Container: &kubevirtv1.KernelBootContainer{
						Image: e.set.Guest.Names[0], ImagePullPolicy: corev1.PullIfNotPresent,
						KernelPath: "/boot/vmlinuz", InitrdPath: "/boot/initrd",
					},
				}},
				Devices: kubevirtv1.Devices{
					AutoattachGraphicsDevice: ptr.To(false),
					Interfaces:               []kubevirtv1.Interface{*kubevirtv1.DefaultMasqueradeNetworkInterface()},
				},
			},
		},
	}
	if change != nil {
		change(template)
	}
	return &kubevirtv1.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: kubevirtv1.VirtualMachineSpec{
			RunStrategy: ptr.To(kubevirtv1.RunStrategyAlways),
			Template:    template,
		},
	}
}

// StartVM creates a VM and waits until it runs and its guest answers.
func (e *Environment) StartVM(ctx context.Context, vm *kubevirtv1.VirtualMachine) (*kubevirtv1.VirtualMachineInstance, error) {
	if err := e.Client().Create(ctx, vm); err != nil {
		return nil, fmt.Errorf("create VM %s: %w", client.ObjectKeyFromObject(vm), err)
	}
	return e.WaitAnswers(ctx, client.ObjectKeyFromObject(vm))
}

// WaitAnswers waits until a VM is Running and Ready and its guest answers HTTP.
func (e *Environment) WaitAnswers(ctx context.Context, key types.NamespacedName) (*kubevirtv1.VirtualMachineInstance, error) {
	return e.WaitForVMI(ctx, runTimeout, key, func(vmi *kubevirtv1.VirtualMachineInstance) error {
		if err := cluster.Ready(vmi); err != nil {
			return err
		}
		address, err := e.Address(ctx, vmi)
		if err != nil {
			return err
		}
		return Answers(ctx, address)
	})
}

// Address returns the address of a VM's pod on the VM's node. The VMI may have the address of the
// pod that it left for a quarter of an hour after a migration.
func (e *Environment) Address(ctx context.Context, vmi *kubevirtv1.VirtualMachineInstance) (string, error) {
	var pods corev1.PodList
	err := e.Client().List(ctx, &pods, client.InNamespace(vmi.Namespace), client.MatchingLabels{kubevirtv1.CreatedByLabel: string(vmi.UID)})
	if err != nil {
		return "", err
	}
	for _, pod := range pods.Items {
		if pod.Spec.NodeName == vmi.Status.NodeName && pod.Status.Phase == corev1.PodRunning && pod.Status.PodIP != "" {
			return pod.Status.PodIP, nil
		}
	}
	return "", fmt.Errorf("VM %s/%s has no pod with an address on node %q", vmi.Namespace, vmi.Name, vmi.Status.NodeName)
}

// Answers returns why the guest at an address does not answer HTTP; nil if it does.
func Answers(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	_, err := fetch.Body(ctx, fetch.Once(), "http://"+address+"/")
	return err
}

// Migrate live-migrates a VM to another node, waits for the end, and returns
// the VMI after it.
func (e *Environment) Migrate(ctx context.Context, key types.NamespacedName) (*kubevirtv1.VirtualMachineInstance, error) {
	migration := &kubevirtv1.VirtualMachineInstanceMigration{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, GenerateName: key.Name + "-"},
		Spec:       kubevirtv1.VirtualMachineInstanceMigrationSpec{VMIName: key.Name},
	}
	if err := e.Client().Create(ctx, migration); err != nil {
		return nil, fmt.Errorf("migrate %s: %w", key, err)
	}
	var failed error
	err := e.WaitFor(ctx, migrationTimeout, "migration of "+key.String(), func(ctx context.Context) error {
		if err := e.Client().Get(ctx, client.ObjectKeyFromObject(migration), migration); err != nil {
			return err
		}
		switch migration.Status.Phase {
		case kubevirtv1.MigrationSucceeded:
			return nil
		case kubevirtv1.MigrationFailed:
			failed = fmt.Errorf("migration of %s failed: %+v", key, migration.Status)
			return nil
		}
		return fmt.Errorf("it is in phase %q", migration.Status.Phase)
	})
	if err := errors.Join(err, failed); err != nil {
		return nil, err
	}
	vmi := &kubevirtv1.VirtualMachineInstance{}
	return vmi, e.Client().Get(ctx, key, vmi)
}

// QEMU returns the process id of a VM's QEMU on the node, as this machine sees
// it.
func (n *Node) QEMU(vmi types.NamespacedName) (int, error) {
	return n.Process("qemu-system", "guest="+vmi.Namespace+"_"+vmi.Name+",")
}

// Process returns the id, as this machine sees it, of the first process of the
// node's pods whose command line has all of the texts. Arguments are separated
// by spaces.
func (n *Node) Process(texts ...string) (int, error) { return n.processBelow("kubepods", texts) }

// PodProcess is Process among those of one pod.
func (n *Node) PodProcess(pod types.UID, texts ...string) (int, error) {
	return n.processBelow("pod"+string(pod), texts)
}

// processBelow is Process among those of cgroups with a name.
func (n *Node) processBelow(name string, texts []string) (int, error) {
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return 0, err
	}
	for _, process := range processes {
		// Processes end while we look.
		groups, err := os.ReadFile(filepath.Join(process, "cgroup"))
		if err != nil || !bytes.Contains(groups, []byte(":/"+n.sandbox.Group+"/kubepods")) || !bytes.Contains(groups, []byte("/"+name+"/")) {
			continue
		}
		command, err := os.ReadFile(filepath.Join(process, "cmdline"))
		if err != nil {
			continue
		}
		line := string(bytes.ReplaceAll(command, []byte{0}, []byte{' '}))
		if !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(line, text) }) {
			return strconv.Atoi(filepath.Base(process))
		}
	}
	return 0, fmt.Errorf("no process of node %s below cgroup %s has %q in its command line", n.Name, name, texts)
}

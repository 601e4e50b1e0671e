package linux

import "testing"

const (
	aPod         = "0f9a3c52-7d1e-4b7a-9c55-0123456789ab"
	otherPod     = "11111111-2222-3333-4444-555555555555"
	podOfSystemd = "0f9a3c52_7d1e_4b7a_9c55_0123456789ab"
	container    = "c0ffee0000000000000000000000000000000000000000000000000000000000"
)

func TestPodUIDOf(t *testing.T) {
	for name, test := range map[string]struct {
		cgroups string
		want    string
	}{
		"version 2, systemd, burstable":    {"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + podOfSystemd + ".slice/cri-containerd-" + container + ".scope\n", aPod},
		"version 2, systemd, guaranteed":   {"0::/kubepods.slice/kubepods-pod" + podOfSystemd + ".slice/crio-" + container + ".scope\n", aPod},
		"version 2, cgroupfs, burstable":   {"0::/kubepods/burstable/pod" + aPod + "/" + container + "\n", aPod},
		"version 2, cgroupfs, guaranteed":  {"0::/kubepods/pod" + aPod + "/" + container + "\n", aPod},
		"version 1":                        {"9:name=systemd:/kubepods/besteffort/pod" + aPod + "/x\n3:cpuset:/kubepods/besteffort/pod" + aPod + "/x\n0::/\n", aPod},
		"nested below libvirt's own":       {"0::/kubepods/burstable/pod" + aPod + "/" + container + "/machine.slice/emulator\n", aPod},
		"a node in a container (kind)":     {"0::/system.slice/docker-abc.scope/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/kubelet-kubepods-burstable-pod" + podOfSystemd + ".slice/cri-containerd-x.scope\n", aPod},
		"K3s":                              {"0::/k3s/kubepods/burstable/pod" + aPod + "/x\n", aPod},
		"a node in a pod: the inner pod":   {"0::/kubepods/burstable/pod" + otherPod + "/x/kubepods/burstable/pod" + aPod + "/y\n", aPod},
		"own cgroup namespace, systemd":    {"0::/../../kubepods-burstable-pod" + podOfSystemd + ".slice/cri-containerd-x.scope\n", aPod},
		"own cgroup namespace, cgroupfs":   {"0::/../../pod" + aPod + "/x\n", aPod},
		"hierarchies disagree":             {"3:cpuset:/kubepods/pod" + aPod + "/x\n0::/kubepods/pod" + otherPod + "/x\n", ""},
		"no pod":                           {"0::/system.slice/libvirtd.service\n", ""},
		"a pod's name outside of kubepods": {"0::/user.slice/pod" + aPod + "/x\n", ""},
		"kubepods too far above":           {"0::/kubepods/a/b/pod" + aPod + "/x\n", ""},
		"not a UID":                        {"0::/kubepods/burstable/podnginx/x\n", ""},
		"static pod":                       {"0::/kubepods/burstable/pod0123456789abcdef0123456789abcdef/x\n", ""},
		"an unrelated slice":               {"0::/evil-pod" + podOfSystemd + ".slice\n", ""},
		"empty":                            {"", ""},
		"no colons":                        {"nonsense\n\n:::\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := podUIDOf(test.cgroups); got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}

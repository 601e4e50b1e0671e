package doctor

// need is what a capability of a node is for.
type need struct{ costs, fix string }

// needOf says what is lost without a capability that agents report, and how to get it.
func needOf(capability string) need {
	agent := "run the agent as config/agent does, with its capabilities"
	switch capability {
	case "Affinity":
		return need{"levers Affinity and Slice do nothing there", agent}
	case "Buffering":
		return need{"lever Buffering does nothing there", "a kernel with sch_fq and, from 6.6, tcx or else cls_bpf, BTF (CONFIG_DEBUG_INFO_BTF), and the agent's NET_ADMIN and SYS_ADMIN"}
	case "BufferingKept":
		return need{"a restart of the agent lets go of held packets for a moment", "mount the BPF file system at /sys/fs/bpf on the node"}
	case "CgroupV2":
		return need{"weights of VMs are read from cgroup version 1, and what the kubelet confines is told less well", "boot the node with cgroup version 2 (systemd.unified_cgroup_hierarchy=1)"}
	case "EnergyCounters":
		return need{"the node's own counters measure nothing: its power comes from Prometheus or a model", "load intel_rapl_msr or use a server that has RAPL; inside a VM use Prometheus"}
	case "Libvirt":
		return need{"vCPUs are told by the names of threads alone", agent}
	case "SchedSlice":
		return need{"lever Slice does nothing there; affinity alone keeps the pools apart", "upgrade the node's kernel to 6.12 or newer"}
	case "Shaping":
		return need{"lever Shaping does nothing there: no turns, no ceilings", "a kernel with sch_htb, and the agent's NET_ADMIN and SYS_ADMIN"}
	case "TurnsByFq":
		return need{"deferrable VMs take turns by a coarser queue", "load module sch_fq on the node"}
	case "VhostNet":
		return need{"QEMU moves packets itself, which costs more", "load module vhost_net on the node"}
	case "VhostThreads":
		return need{"vhost workers are bound by their cgroup, not as the VM's own threads", "upgrade the node's kernel to 6.4 or newer"}
	case "WaitTimes":
		return need{"how long VMs wait for a CPU is not known, so that no guard sees steal", "a kernel with CONFIG_SCHED_INFO"}
	default:
		return need{"this program does not know what it is for: the agent is of a newer version", "upgrade kubectl joulevirt to the version of the agents"}
	}
}

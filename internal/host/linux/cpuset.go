package linux

import (
	"path"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/units"
)

// maxCpuset is above the longest list of units.MaxCPUs CPUs that is told by an open
// file: a longer one is read in the slow way.
const maxCpuset = 4096

// openCpuset is the file of a process's cpuset, kept open: to walk down to it takes
// more than all else that is read of a VM in a round. It does not keep the cgroup
// alive, and cannot be read any more when that is gone.
type openCpuset struct {
	// cgroups is the content of /proc/PID/cgroup for which the file was opened.
	cgroups []byte
	// fd is 0 while there is none.
	fd int
	// text that was read last, and the CPUs in it.
	text []byte
	cpus units.CPUSet
}

func (c *openCpuset) close() {
	if c.fd > 0 {
		unix.Close(c.fd)
	}
	*c = openCpuset{}
}

// read returns the cpuset when the file is that of these cgroups, and can be read.
func (c *openCpuset) read(cgroups, buf []byte) (units.CPUSet, bool) {
	if c.fd == 0 || string(cgroups) != string(c.cgroups) {
		return units.CPUSet{}, false
	}
	n, err := unix.Pread(c.fd, buf, 0)
	if err != nil || n <= 0 || n == len(buf) {
		return units.CPUSet{}, false
	}
	if string(buf[:n]) != string(c.text) {
		cpus, err := units.ParseCPUSet(string(buf[:n]))
		if err != nil {
			return units.CPUSet{}, false
		}
		c.text, c.cpus = slices.Clone(buf[:n]), cpus
	}
	return c.cpus, true
}

// cpusetOf reads the cpuset of a process that is in view. False: in another way.
func (h *Host) cpusetOf(id host.TaskID) (units.CPUSet, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p, known := h.processes[id]
	if !known {
		return units.CPUSet{}, false
	}
	// The folder is bound to the process: its number need not be checked.
	cgroups, err := readAt(p.dir, "cgroup", h.scratch[maxCpuset:])
	if err != nil {
		return units.CPUSet{}, false
	}
	buf := h.scratch[:maxCpuset]
	if cpus, ok := p.cpuset.read(cgroups, buf); ok {
		return cpus, true
	}
	p.cpuset.close()
	if fd, err := h.cgroups.openCpuset(string(cgroups)); err == nil {
		p.cpuset = openCpuset{cgroups: slices.Clone(cgroups), fd: fd}
	}
	return p.cpuset.read(cgroups, buf)
}

// openCpuset opens the file with the effective cpuset of the cgroups that a
// /proc/PID/cgroup file names. It fails where that is told by a cgroup above: the
// cgroup may get a file of its own at any time.
func (t *cgroupTree) openCpuset(cgroups string) (int, error) {
	dir, file, err := t.cpusetDir(cgroups)
	if err != nil {
		return 0, err
	}
	opened, err := t.root.Open(path.Join(dir, file))
	if err != nil {
		return 0, err
	}
	defer opened.Close()
	return unix.FcntlInt(opened.Fd(), unix.F_DUPFD_CLOEXEC, 3)
}

// Package container is the inside of a stand-in launcher pod: the program that
// builds the container's root file system and runs the processes that KubeVirt
// runs there. Its caller on the host uses only Spec and the file descriptors.
package container

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// Names of the two programs, as argv[0] and file name. One executable serves as
// both, so that comm and cmdline look like KubeVirt's.
const (
	MonitorName  = "virt-launcher-monitor"
	LauncherName = "virt-launcher"
)

// SocketPath is where KubeVirt's launcher keeps libvirt's socket, seen from
// inside the container.
const SocketPath = "/var/run/libvirt/virtqemud-sock"

// PrivateDir is KubeVirt's folder for a VMI's consoles.
const PrivateDir = "/var/run/kubevirt-private"

// File descriptors that the monitor inherits.
const (
	// LifelineFD delivers the Spec and then stays open: its end of file means
	// that the owner on the host is gone, and the container ends itself.
	LifelineFD = 3
	// ReadyFD takes one line: "ready", or why the container could not start.
	ReadyFD = 4
)

const readyLine = "ready"

// Bind is a file or folder of the host shown in the container.
type Bind struct {
	Source string `json:"source"`
	Target string `json:"target"`
	// ReadOnly also protects the owner and mode of the host's file, which
	// libvirt would otherwise set to its own.
	ReadOnly bool `json:"readOnly"`
}

// Spec is all that the container's first process needs to know.
type Spec struct {
	Hostname string `json:"hostname"`
	// Address is the pod's, for /etc/hosts: libvirt looks its host name up.
	Address string `json:"address"`
	// Root is an empty folder of the host for the container's root.
	Root  string `json:"root"`
	Binds []Bind `json:"binds"`
	// Devices are device nodes of the host, by path, shown at the same path.
	Devices []string `json:"devices"`
	// Program is the host path of the executable that holds this package.
	Program string `json:"program"`
	// LauncherArgs are the arguments of virt-launcher after argv[0].
	LauncherArgs []string `json:"launcherArgs"`
}

// Send writes spec for the container that reads the other end.
func (s Spec) Send(w io.Writer) error {
	if err := json.NewEncoder(w).Encode(s); err != nil {
		return fmt.Errorf("send the container its specification: %w", err)
	}
	return nil
}

// AwaitReady blocks until the container reports, and returns nil when its
// libvirt accepts connections.
func AwaitReady(r io.Reader) error {
	line, err := bufio.NewReader(r).ReadString('\n')
	switch line = strings.TrimSpace(line); {
	case line == readyLine:
		return nil
	case line != "":
		return errors.New(line)
	case errors.Is(err, io.EOF):
		return errors.New("the launcher ended before it was ready")
	default:
		return fmt.Errorf("wait for the launcher: %w", err)
	}
}

// report sends the single line of ReadyFD; err nil means ready.
func report(ready *os.File, err error) {
	line := readyLine
	if err != nil {
		line = strings.ReplaceAll(err.Error(), "\n", " ")
	}
	fmt.Fprintln(ready, line) // an owner that stopped listening is handled by the lifeline
	ready.Close()
}

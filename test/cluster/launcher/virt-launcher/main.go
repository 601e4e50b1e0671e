// Command virt-launcher imitates the two programs of KubeVirt's launcher
// container; the name it is run by decides which. It is started by package
// launcher only.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/joulevirt/joulevirt/test/cluster/launcher/internal/container"
)

func main() {
	switch name := filepath.Base(os.Args[0]); name {
	case container.MonitorName:
		os.Exit(container.Monitor())
	case container.LauncherName:
		os.Exit(container.Launch())
	default:
		fmt.Fprintf(os.Stderr, "%s: run as %s or %s\n", name, container.MonitorName, container.LauncherName)
		os.Exit(2)
	}
}

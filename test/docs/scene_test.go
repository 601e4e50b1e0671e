package docs

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/test/accelerated"
	"github.com/joulevirt/joulevirt/test/cluster"
	"github.com/joulevirt/joulevirt/test/cluster/binaries"
	"github.com/joulevirt/joulevirt/test/cluster/stack"
)

const (
	// startTimeout includes a cold build of the control planes.
	startTimeout = 20 * time.Minute
	// pause after each 15 s of the fleet, in which the controllers follow.
	pause = 5 * time.Millisecond
)

// scene is what the commands of the pages are run against: a real API server with the
// product installed, its controllers, and the agents of simulated nodes, whose time is
// faster than ours.
type scene struct {
	cluster *cluster.Cluster
	fleet   *accelerated.Fleet
	// dir is where commands run: a clone as far as pages name files of it.
	dir string
}

// start brings up the scene. It ends with the test.
func start(t *testing.T) *scene {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	c, err := cluster.Start(ctx, cluster.Options{Binaries: binaries.FromEnvironment(os.Getenv, os.Stderr), KubeVirt: cluster.KubeVirtAPI})
	must(err)
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	must(v1alpha1.AddToScheme(c.Client().Scheme()))
	must(stack.Install(ctx, c))
	f, err := accelerated.Start(ctx, accelerated.Options{
		Cluster: c, Namespace: "shop", Labels: map[string]string{"app": "web"}, Nodes: 2, VMs: 8, Seed: 1, Dir: t.TempDir(), Log: logr.Discard(),
	})
	must(err)
	t.Cleanup(func() {
		if err := f.Stop(); err != nil {
			t.Error(err)
		}
	})
	s := &scene{cluster: c, fleet: f, dir: t.TempDir()}
	here, err := filepath.Abs(root)
	must(err)
	for _, folder := range []string{"policies", "config"} {
		must(os.Symlink(filepath.Join(here, folder), filepath.Join(s.dir, folder)))
	}
	programs := filepath.Join(s.dir, "bin")
	must(os.Mkdir(programs, 0o700))
	must(os.Symlink(c.Kubectl(), filepath.Join(programs, "kubectl")))
	build := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-ldflags=-s -w", "-o", programs, "./cmd/kubectl-joulevirt")
	build.Dir = here
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build kubectl-joulevirt: %v\n%s", err, text)
	}
	return s
}

// run lets the fleet's time pass.
func (s *scene) run(t *testing.T, d time.Duration) {
	t.Helper()
	if err := s.fleet.Run(t.Context(), d, pause, func(time.Time) error { return nil }); err != nil {
		t.Fatal(err)
	}
}

// shell runs a line as a person would.
func (s *scene) shell(t *testing.T, line string) (output string, code int) {
	t.Helper()
	command := exec.CommandContext(t.Context(), "bash", "-o", "pipefail", "-c", asked().Replace(line))
	command.Dir = s.dir
	command.Env = append(os.Environ(), "KUBECONFIG="+s.cluster.Kubeconfig(), "PATH="+filepath.Join(s.dir, "bin")+string(os.PathListSeparator)+os.Getenv("PATH"))
	text, err := command.CombinedOutput()
	if err != nil && command.ProcessState == nil {
		t.Fatal(err)
	}
	return told().Replace(string(text)), command.ProcessState.ExitCode()
}

// asked are the names of the pages as the scene has them, and told the other way round.
func asked() *strings.Replacer {
	return strings.NewReplacer("worker-1", "fleet-000", "web-0", "fleet-00000")
}
func told() *strings.Replacer {
	return strings.NewReplacer("fleet-00000", "web-0", "fleet-000", "worker-1")
}

package docs

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
	// commandTimeout is more than any command of a page takes.
	commandTimeout = 2 * time.Minute
)

// scene is what the commands of the pages are run against: a real API server with the
// product installed, its controllers, and the agents of simulated nodes, whose time is
// faster than ours.
type scene struct {
	cluster *cluster.Cluster
	fleet   *accelerated.Fleet
	// dir is where commands run: a clone as far as pages name files of it.
	dir string
	// commands counts what was run, and ran has it with the fleet's time of its answer.
	commands int
	ran      map[string]time.Time
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
	s := &scene{cluster: c, fleet: f, dir: t.TempDir(), ran: map[string]time.Time{}}
	must(s.playKubelet(ctx))
	must(s.addShop(ctx))
	must(f.Run(ctx, time.Minute, pause, func(time.Time) error { return nil })) // agents report once they are installed
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
	ctx, cancel := context.WithTimeout(t.Context(), commandTimeout)
	defer cancel()
	command := exec.CommandContext(ctx, "bash", "-o", "pipefail", "-c", asked().Replace(line))
	command.Dir = s.dir
	command.Env = append(os.Environ(), "KUBECONFIG="+s.cluster.Kubeconfig(), "PATH="+filepath.Join(s.dir, "bin")+string(os.PathListSeparator)+os.Getenv("PATH"))
	command.WaitDelay = time.Second // what bash started may have its output open still
	text, err := command.CombinedOutput()
	if err != nil && command.ProcessState == nil {
		t.Fatal(err)
	}
	if ctx.Err() != nil {
		t.Fatalf("%s: it does not end: %v\n%s", line, ctx.Err(), text)
	}
	return told(string(text)), command.ProcessState.ExitCode()
}

// asked are the names of the pages as the scene has them, and told the other way round.
func asked() *strings.Replacer {
	return strings.NewReplacer(
		"worker-1", node, "web-0", vm,
		"approve POLICY", "approve recommend-affinity", // Observe has nothing to approve
		// What pages leave to be filled in.
		"NODE", node, "POLICY", "observe", "NAMESPACE", "shop", "PROFILE", "web", "NAME", vm, "POD", agentPod,
		"REVISION", revision, "7a625d409810dc4a", revision,
		// The reference calls a policy so.
		"approve web", "approve recommend-affinity", "pause web", "pause recommend-affinity",
		"resume web", "resume recommend-affinity", "savings web", "savings recommend-affinity",
	)
}
func told(output string) string {
	output = regexp.MustCompile(`\b`+vm+`\b`).ReplaceAllString(output, "web-0")
	return regexp.MustCompile(`\b`+node+`\b`).ReplaceAllString(output, "worker-1")
}

const (
	node, vm = "fleet-000", "fleet-00000"
	// revision is that of what is recommended for the node.
	revision = "$(kubectl get nplan " + node + " -o jsonpath={.spec.revision})"
	agentPod = "joulevirt-agent-0"
)

// policies that there are.
func (s *scene) policies(t *testing.T) []v1alpha1.EnergyPolicy {
	t.Helper()
	var list v1alpha1.EnergyPolicyList
	if err := s.cluster.Client().List(t.Context(), &list); err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// deletePolicies deletes those that were not there before.
func (s *scene) deletePolicies(t *testing.T, before []v1alpha1.EnergyPolicy) {
	t.Helper()
	for _, policy := range s.policies(t) {
		if slices.ContainsFunc(before, func(was v1alpha1.EnergyPolicy) bool { return was.UID == policy.UID }) {
			continue
		}
		if err := s.cluster.Client().Delete(t.Context(), &policy); client.IgnoreNotFound(err) != nil {
			t.Fatal(err)
		}
	}
}

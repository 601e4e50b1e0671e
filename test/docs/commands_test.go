//go:build e2e

package docs

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/joulevirt/joulevirt/test/accelerated"
	"github.com/joulevirt/joulevirt/test/cluster"
	"github.com/joulevirt/joulevirt/test/cluster/binaries"
)

// node and vm are the names of the test's cluster for worker-1 and web-0 of the pages.
const node, vm = "fleet-000", "fleet-00000"

// TestCommandsOfTheFirstPages runs the kubectl commands of the pages that people begin with,
// against a real API server with two simulated nodes.
func TestCommandsOfTheFirstPages(t *testing.T) {
	s := start(t)
	fileName := regexp.MustCompile(`^# ([a-z-]+\.yaml)\n`)
	block := regexp.MustCompile("(?ms)^```(\\w*)\n(.*?)^```")
	ran := 0
	for _, page := range []string{"docs/getting-started.md", "README.md"} {
		text, err := os.ReadFile(filepath.Join(root, page))
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range block.FindAllStringSubmatch(string(text), -1) {
			if file := fileName.FindStringSubmatch(match[2]); file != nil {
				if err := os.WriteFile(filepath.Join(s.dir, file[1]), []byte(match[2]), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			for _, c := range commandsOf(match[1], match[2]) {
				ran++
				s.obey(t, page, c)
			}
		}
	}
	if ran < 10 {
		t.Errorf("only %d commands were found", ran)
	}
}

// command is a line that a page has people run, and the answer that it shows.
type command struct{ line, answer string }

// commandsOf are those for kubectl in a block: after "$ " where answers are shown, else each
// line. What needs a kubelet, or does not end, is left out.
func commandsOf(language, text string) (commands []command) {
	separator := "\n"
	switch language {
	case "console":
		separator = "\n$ "
	case "sh":
	default:
		return nil
	}
	comment := regexp.MustCompile(`\s+#( .*)?$`)
	skipped := regexp.MustCompile(`^kubectl (joulevirt (page|doctor)\b|-n [a-z-]+ rollout status )`)
	for _, one := range strings.Split("\n"+strings.ReplaceAll(text, "\\\n", " "), separator)[1:] {
		line, answer, _ := strings.Cut(one, "\n")
		line = comment.ReplaceAllString(line, "")
		if strings.HasPrefix(line, "kubectl ") && !skipped.MatchString(line) {
			commands = append(commands, command{line, answer})
		}
	}
	return commands
}

// scene has the installed product, its controllers, and agents of simulated nodes whose time
// runs faster than the wall clock.
type scene struct {
	cluster *cluster.Cluster
	fleet   *accelerated.Fleet
	// dir is where commands run.
	dir string
}

func start(t *testing.T) *scene {
	t.Helper()
	log.SetLogger(logr.Discard())
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	c, f := accelerated.StartTest(ctx, t, binaries.FromEnvironment(os.Getenv, os.Stderr),
		accelerated.Options{Namespace: "shop", Labels: map[string]string{"app": "web"}, Nodes: 2, VMs: 8, Seed: 1})
	s := &scene{cluster: c, fleet: f, dir: t.TempDir()}
	here, err := filepath.Abs(root)
	must(err)
	must(os.Symlink(filepath.Join(here, "policies"), filepath.Join(s.dir, "policies")))
	programs := filepath.Join(s.dir, "bin")
	must(os.Mkdir(programs, 0o700))
	must(os.Symlink(c.Kubectl(), filepath.Join(programs, "kubectl")))
	build := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-o", programs, "./cmd/kubectl-joulevirt")
	build.Dir = here
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build kubectl-joulevirt: %v\n%s", err, text)
	}
	return s
}

// obey runs a command until it prints what the page shows, for at most five minutes of the
// fleet's time.
func (s *scene) obey(t *testing.T, page string, c command) {
	t.Helper()
	const patience, step, settle = 5 * time.Minute, 15 * time.Second, 2 * time.Second
	for began := s.fleet.Now(); ; {
		output, err := s.shell(t, c.line)
		missing := firstMissing(c.answer, output)
		if err == nil && missing == "" {
			return
		}
		if s.fleet.Now().Sub(began) > patience {
			t.Errorf("%s: %s: %v: it does not print %q, but\n%s", page, c.line, err, missing, output)
			return
		}
		if err := s.fleet.Run(t.Context(), step, settle/30, func(time.Time) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
}

// shell runs a line with the names of the scene, and returns its output with those of the pages.
func (s *scene) shell(t *testing.T, line string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	names := strings.NewReplacer("worker-1", node, "web-0", vm, "NODE", node, "POLICY", "recommend-affinity --dry-run=server")
	command := exec.CommandContext(ctx, "bash", "-o", "pipefail", "-c", names.Replace(line))
	command.Dir = s.dir
	command.Env = append(os.Environ(), "KUBECONFIG="+s.cluster.Kubeconfig(), "PATH="+filepath.Join(s.dir, "bin")+":"+os.Getenv("PATH"))
	text, err := command.CombinedOutput()
	return strings.NewReplacer(vm, "web-0", node, "worker-1").Replace(string(text)), err
}

// firstMissing is the first line that a page shows and that is not printed, in this order. Words
// with digits match any with digits, and a line of three dots any lines.
func firstMissing(want, got string) string {
	printed := strings.Split(got, "\n")
	for line := range strings.Lines(want) {
		if line = strings.TrimSpace(line); line == "" || line == "..." {
			continue
		}
		for len(printed) > 0 && !alike(strings.Fields(line), strings.Fields(printed[0])) {
			printed = printed[1:]
		}
		if len(printed) == 0 {
			return line
		}
		printed = printed[1:]
	}
	return ""
}

func alike(want, got []string) bool {
	if len(want) != len(got) {
		return false
	}
	for i := range want {
		if want[i] != got[i] && (!strings.ContainsAny(want[i], "0123456789") || !strings.ContainsAny(got[i], "0123456789")) {
			return false
		}
	}
	return true
}

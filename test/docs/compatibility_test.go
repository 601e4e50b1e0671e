package docs

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/joulevirt/joulevirt/test/cluster/binaries"
	"github.com/joulevirt/joulevirt/test/redfish"
)

const (
	compatibilityPage = "docs/compatibility.md"
	tableBegins       = "<!-- Generated from what the tests start, by make reference. -->\n"
	tableEnds         = "<!-- End of what is generated. -->\n"
	// mostNamed suites are named.
	mostNamed  = 6
	modulePath = "github.com/joulevirt/joulevirt/"
)

var update = flag.Bool("update", false, "write the table of "+compatibilityPage)

// part is something that tests run, beside the product.
type part struct {
	name    string
	version func(binaries.Source) (string, error)
	// starter is the package that starts it: whatever test imports it runs the part.
	starter string
	// only is the one test of a package that does, where others of the package do not.
	only string
}

func parts() []part {
	of := func(component binaries.Component) func(binaries.Source) (string, error) {
		return func(s binaries.Source) (string, error) { return s.Version(component) }
	}
	other := func(folder string, component binaries.Component) func(binaries.Source) (string, error) {
		return func(s binaries.Source) (string, error) { return s.Other(folder).Version(component) }
	}
	debian := func(release string) func(binaries.Source) (string, error) {
		return func(binaries.Source) (string, error) { return "Debian " + release + "'s", nil }
	}
	return []part{
		{name: "Kubernetes' control plane", version: of(binaries.APIServer), starter: "test/cluster"},
		{name: "kubelet, kube-proxy", version: of(binaries.Kubelet), starter: "test/env/node"},
		{name: "oldest Kubernetes, with its kubelet", version: other(binaries.OldestKubernetes, binaries.Kubelet), starter: "test/e2e/nodes", only: "TestVersions"},
		{name: "KubeVirt, with virt-handler and virt-launcher", version: of(binaries.VirtHandler), starter: "test/env/node"},
		{name: "newest KubeVirt", version: other(binaries.NewestKubeVirt, binaries.VirtHandler), starter: "test/e2e/nodes", only: "TestVersions"},
		{name: "libvirt and QEMU (TCG)", version: debian("13"), starter: "test/env/node"},
		{name: "containerd", version: of(binaries.Containerd), starter: "test/env/node"},
		{name: "Linux 6.1, with fq and KVM", version: debian("12"), starter: "test/e2e/kernels"},
		{name: "Linux 6.12, with fq and KVM", version: debian("13"), starter: "test/e2e/kernels"},
		{name: "Contour, with Envoy", version: of(binaries.Contour), starter: "test/dataplane/gateway"},
		{name: "Prometheus", version: debian("12"), starter: "test/prometheus"},
		{name: "sushy-emulator, with libvirt's test driver", version: func(binaries.Source) (string, error) { return redfish.Version, nil }, starter: "test/redfish"},
		{name: "Helm", version: of(binaries.Helm), starter: "test/install", only: "TestRelease"},
		{name: "Flux' kustomize-controller", version: of(binaries.KustomizeController), starter: "test/install", only: "TestFlux"},
		{name: "Argo CD's gitops-engine", version: of(binaries.ArgoCDSync), starter: "test/routing", only: "TestArgoCD"},
	}
}

// TestCompatibilityIsCurrent compares the table of what was run with the pinned versions, and with
// the tests that start them.
func TestCompatibilityIsCurrent(t *testing.T) {
	want, err := compatibilityTable(binaries.FromEnvironment(os.Getenv, io.Discard))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(root, compatibilityPage)
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, begins := strings.Cut(string(page), tableBegins)
	got, after, ends := strings.Cut(rest, tableEnds)
	if !begins || !ends {
		t.Fatalf("%s has no lines %q and %q", compatibilityPage, tableBegins, tableEnds)
	}
	if *update {
		if err := os.WriteFile(path, []byte(before+tableBegins+want+tableEnds+after), 0o644); err != nil {
			t.Fatal(err)
		}
		got = want
	}
	if got != want {
		t.Errorf("%s is not up to date: run make reference. Want\n%s", compatibilityPage, want)
	}
}

func compatibilityTable(source binaries.Source) (string, error) {
	starts, err := importsOfTests()
	if err != nil {
		return "", err
	}
	table := "| part | version | run by |\n|---|---|---|\n"
	for _, p := range parts() {
		version, err := p.version(source)
		if err != nil {
			return "", fmt.Errorf("version of %s: %w", p.name, err)
		}
		var tests []string
		for suite, imports := range starts {
			if suite == p.starter || p.only == "" && slices.Contains(imports, modulePath+p.starter) {
				tests = append(tests, "`"+suite+"`")
			}
		}
		slices.Sort(tests)
		if len(tests) == 0 {
			return "", fmt.Errorf("no test starts %s: package %s", p.name, p.starter)
		}
		run := strings.Join(tests, ", ")
		if len(tests) > mostNamed {
			run = fmt.Sprintf("%d suites", len(tests))
		}
		if p.only != "" {
			run += " " + p.only
		}
		table += fmt.Sprintf("| %s | %s | %s |\n", p.name, strings.TrimPrefix(version, "v"), run)
	}
	return table, nil
}

// importsOfTests returns, of each package with tests, all packages that these are built from.
func importsOfTests() (map[string][]string, error) {
	cmd := exec.Command("go", "list", "-tags=e2e", "-test", "-f", "{{.ImportPath}} {{join .Deps \" \"}}", "./...")
	cmd.Dir = root
	var problems bytes.Buffer
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("list the imports of tests: %w: %s", err, problems.String())
	}
	imports := map[string][]string{}
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		if suite, isTest := strings.CutSuffix(fields[0], ".test"); isTest {
			imports[strings.TrimPrefix(suite, modulePath)] = fields[1:]
		}
	}
	return imports, nil
}

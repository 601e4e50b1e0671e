package docs

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/verify/evidence"
)

// TestPagesOnACluster runs what pages tell people to run, in blocks of language console, and
// has a real API server check the objects that they show.
func TestPagesOnACluster(t *testing.T) {
	s := start(t)
	all := pages(t)
	t.Run("objects", func(t *testing.T) { s.checkObjects(t, all) })
	began := time.Now()
	first := "docs/getting-started.md"
	run := 0
	for _, p := range all {
		if p.path == first {
			run += s.follow(t, p)
		}
	}
	for _, p := range all {
		// Commands of runbooks have names in capitals to be filled in.
		if p.path != first && !strings.HasPrefix(p.path, "docs/runbooks/") {
			run += s.follow(t, p)
		}
	}
	t.Logf("%d commands in %s", run, time.Since(began))
	if run < 40 {
		t.Errorf("only %d commands were found", run)
	}
}

// checkObjects has the API server check each object of the product's kinds, without keeping it.
func (s *scene) checkObjects(t *testing.T, all []*page) {
	strict := client.WithFieldValidation(client.NewDryRunClient(s.cluster.Client()), metav1.FieldValidationStrict)
	checked := 0
	for _, p := range all {
		for _, b := range p.blocks {
			if b.language != "yaml" {
				continue
			}
			for _, object := range objectsOf(t, p.path, b.text) {
				checked++
				if object.GetKind() == evidence.Kind {
					if _, err := evidence.Import(p.path, []byte(b.text)); err != nil {
						t.Errorf("%s: %v", p.path, err)
					}
					continue
				}
				if name := object.GetNamespace(); name != "" {
					namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
					if err := client.IgnoreAlreadyExists(s.cluster.Client().Create(t.Context(), namespace)); err != nil {
						t.Fatal(err)
					}
				}
				if err := strict.Create(t.Context(), object); err != nil {
					t.Errorf("%s: %s %s: %v", p.path, object.GetKind(), object.GetName(), err)
				}
			}
		}
	}
	// One that finds few has lost the pages, or the blocks.
	if checked < 5 {
		t.Errorf("only %d objects were found", checked)
	}
}

// objectsOf a block that are of the product's kinds. What a page leaves out for brevity (version,
// name, and of a policy kind and mode) is filled in.
func objectsOf(t *testing.T, name, text string) (objects []*unstructured.Unstructured) {
	t.Helper()
	decoder := utilyaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096)
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(&object.Object)
		if errors.Is(err, io.EOF) {
			return objects
		}
		if err != nil {
			t.Fatalf("%s: %v\n%s", name, err, text)
		}
		if object.GetAPIVersion() != "" && object.GetAPIVersion() != v1alpha1.GroupVersion.String() {
			continue
		}
		if object.GetKind() == "" {
			object.SetKind("EnergyPolicy")
			if _, found, _ := unstructured.NestedString(object.Object, "spec", "mode"); !found {
				if err := unstructured.SetNestedField(object.Object, string(v1alpha1.ModeObserve), "spec", "mode"); err != nil {
					t.Fatalf("%s: %v\n%s", name, err, text)
				}
			}
		}
		object.SetAPIVersion(v1alpha1.GroupVersion.String())
		if object.GetName() == "" {
			object.SetName("of-a-page")
		}
		if object.GetNamespace() == "" && object.GetKind() == "VMNetworkProfile" {
			object.SetNamespace("default")
		}
		objects = append(objects, object)
	}
}

// mostPatience for what a page shows, and look how much of it passes between two looks.
const mostPatience, look = 2 * time.Hour, 5 * time.Minute

// looks is true of commands that change nothing.
func looks(command string) bool {
	for _, prefix := range []string{"kubectl get ", "kubectl joulevirt top ", "kubectl joulevirt explain ", "kubectl joulevirt plan ", "kubectl joulevirt savings"} {
		if strings.HasPrefix(command, prefix) {
			return true
		}
	}
	return false
}

// follow does what a page says, and returns how many commands it ran. YAML whose first line is
// a comment with the name of a file is that file.
func (s *scene) follow(t *testing.T, p *page) (run int) {
	t.Helper()
	file := regexp.MustCompile(`^# ([a-z-]+\.yaml)\n`)
	for _, b := range p.blocks {
		if match := file.FindStringSubmatch(b.text); match != nil && b.language == "yaml" {
			if err := os.WriteFile(filepath.Join(s.dir, match[1]), []byte(b.text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if b.language != "console" {
			continue
		}
		for _, one := range strings.Split("\n"+b.text, "\n$ ")[1:] {
			command, want, _ := strings.Cut(one, "\n")
			run++
			got, code := s.shell(t, command)
			line := missing(want, got)
			// What is only looked at may take its time, of the fleet's.
			for patience := mostPatience; line != "" && patience > 0 && looks(command); patience -= look {
				s.run(t, look)
				got, code = s.shell(t, command)
				line = missing(want, got)
			}
			if line != "" {
				t.Errorf("%s: %s: it does not print %q, but\n%s", p.path, command, line, got)
			}
			// The manager runs in the test and not as a Deployment, which doctor finds.
			if code != 0 && command != "kubectl joulevirt doctor" {
				t.Errorf("%s: %s: exit code %d\n%s", p.path, command, code, got)
			}
		}
	}
	return run
}

// missing is the first line of what a page shows that is not printed, in that order. Words with
// digits stand for any, and lines of three dots for what the page leaves out.
func missing(want, got string) string {
	lines := strings.Split(got, "\n")
	for line := range strings.Lines(want) {
		if line = strings.TrimSpace(line); line == "" || line == "..." {
			continue
		}
		for len(lines) > 0 && !alike(line, lines[0]) {
			lines = lines[1:]
		}
		if len(lines) == 0 {
			return line
		}
		lines = lines[1:]
	}
	return ""
}

func alike(want, got string) bool {
	w, g := strings.Fields(want), strings.Fields(got)
	if len(w) != len(g) {
		return false
	}
	const digits = "0123456789"
	for i := range w {
		if w[i] != g[i] && (!strings.ContainsAny(w[i], digits) || !strings.ContainsAny(g[i], digits)) {
			return false
		}
	}
	return true
}

func TestMissing(t *testing.T) {
	const got = "NAME   WATTS\nworker-1   61\nworker-2   70\n"
	for want, first := range map[string]string{
		"NAME WATTS\nworker-1 60\n":        "",
		"NAME WATTS\n...\nworker-2 60\n":   "",
		"NAME POWER\nworker-1 60\n":        "NAME POWER",
		"worker-1 60\nNAME WATTS\n":        "NAME WATTS",
		"NAME WATTS\nworker-1 60 RAPL\n":   "worker-1 60 RAPL",
		"NAME WATTS\nworker-1 <unknown>\n": "worker-1 <unknown>",
	} {
		if line := missing(want, got); line != first {
			t.Errorf("%q: missing is %q, want %q", want, line, first)
		}
	}
}

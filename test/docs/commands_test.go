package docs

import (
	"errors"
	"io"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/controllers"
	"github.com/joulevirt/joulevirt/internal/verify/evidence"
)

// TestPagesOnACluster runs all that pages tell people to run, but for what notRun names, and has
// a real API server check the objects that they show.
func TestPagesOnACluster(t *testing.T) {
	s := start(t)
	all := inOrder(pages(t))
	t.Run("objects", func(t *testing.T) { s.checkObjects(t, all) })
	began := time.Now()
	for _, p := range all {
		before := s.policies(t)
		s.follow(t, p)
		if p.path == startPage {
			s.checkFirstLook(t)
			continue
		}
		// Other pages begin where the start ends.
		s.deletePolicies(t, before)
	}
	t.Logf("%d commands in %s", s.commands, time.Since(began))
	if s.commands < 150 {
		t.Errorf("only %d commands were found", s.commands)
	}
}

// mostFirstLook is how long after policy and profile the start page promises a figure of what
// could be saved.
const mostFirstLook = 2 * time.Minute

// checkFirstLook wants what could be saved soon after preset observe was applied. Of statuses
// that follow figures the scene shortens the delay, so the shipped one is added.
func (s *scene) checkFirstLook(t *testing.T) {
	t.Helper()
	applied, seen := s.ran["kubectl apply -f policies/observe.yaml"], s.ran["kubectl joulevirt savings"]
	took := seen.Sub(applied) + controllers.DefaultFiguresDelay
	t.Logf("simulated: what could be saved is seen %s after preset observe, the shipped delay of figures in it", took)
	if applied.IsZero() || seen.IsZero() || took > mostFirstLook {
		t.Errorf("simulated: from preset observe to what could be saved it takes %s, and %s promises %s", took, startPage, mostFirstLook)
	}
}

// inOrder is the order in which pages are followed: the start first, the end last, and between
// them presets after the guides, whose policies they are to win against.
func inOrder(all []*page) []*page {
	rank := func(p *page) int {
		switch {
		case p.path == startPage:
			return 0
		case strings.HasPrefix(p.path, "docs/guides/"):
			return 1
		case p.path == "docs/removal.md":
			return 3
		default:
			return 2
		}
	}
	ordered := slices.DeleteFunc(slices.Clone(all), func(p *page) bool { return !isFollowed(p.path) })
	slices.SortStableFunc(ordered, func(a, b *page) int { return rank(a) - rank(b) })
	return ordered
}

// startPage is that of those who begin.
const startPage = "docs/getting-started.md"

// isFollowed is true of all pages but design notes and figures, which tell how things came to be,
// and of what other pages are made of.
func isFollowed(page string) bool {
	switch path.Dir(page) {
	case "docs/design", "hack/chart/static", "internal/cli/reasons":
		return false
	}
	return page != "docs/limitations.md" && page != "docs/benchmarks.md"
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

const (
	// mostPatience for what a page shows, of the fleet's time.
	mostPatience = 5 * time.Minute
	// look is how much of it passes between two looks, and settling how long the controllers
	// then have to write what follows, by the wall's clock.
	look, settling = 15 * time.Second, 10 * time.Second
)

// looks is true of commands that change nothing.
func looks(line string) bool {
	return regexp.MustCompile(`^kubectl (-n [a-z-]+ )?(get|describe|rollout status|joulevirt (top|explain|plan|savings|doctor)) `).MatchString(line + " ")
}

// follow does what a page says. YAML whose first line is a comment with the name of a file is
// that file.
func (s *scene) follow(t *testing.T, p *page) {
	t.Helper()
	file := regexp.MustCompile(`^# ([a-z-]+\.yaml)\n`)
	for _, b := range p.blocks {
		if match := file.FindStringSubmatch(b.text); match != nil && b.language == "yaml" {
			if err := os.WriteFile(filepath.Join(s.dir, match[1]), []byte(b.text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, c := range p.commands {
		if isException(c.line) {
			continue
		}
		// What sentences name again and again is run once.
		if c.inline && looks(c.line) && !s.ran[c.line].IsZero() {
			continue
		}
		s.commands++
		s.obey(t, p.path, c)
		s.ran[c.line] = s.fleet.Now()
	}
}

// obey runs a command of a page and wants the answer that the page shows.
func (s *scene) obey(t *testing.T, page string, c command) {
	t.Helper()
	began := s.fleet.Now()
	got, code := s.shell(t, c.line)
	line := missing(c.answer, got)
	// What is only looked at may take its time.
	for line != "" && looks(c.line) && s.fleet.Now().Sub(began) < mostPatience {
		s.run(t, look)
		for settled := time.Now().Add(settling); line != "" && time.Now().Before(settled); {
			got, code = s.shell(t, c.line)
			line = missing(c.answer, got)
		}
	}
	if line != "" {
		t.Errorf("%s: %s: it does not print %q, but\n%s", page, c.line, line, got)
	}
	if waited := s.fleet.Now().Sub(began); waited > 0 {
		t.Logf("simulated: %s: %s: after %s", page, c.line, waited)
	}
	if code != 0 {
		t.Errorf("%s: %s: exit code %d\n%s", page, c.line, code, got)
	}
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

func TestCommandsOf(t *testing.T) {
	for name, tc := range map[string]struct {
		block block
		want  []command
	}{
		"with answers":      {block{"console", "$ kubectl get a   # why\nNAME\n$ kubectl get b\n"}, []command{{line: "kubectl get a", answer: "NAME"}, {line: "kubectl get b", answer: ""}}},
		"without":           {block{"sh", "# first\nkubectl get a \\\n  -o wide\n\nvirtctl b"}, []command{{line: "kubectl get a -o wide"}, {line: "virtctl b"}}},
		"without language":  {block{"", "make a   # why\ncd b\n"}, []command{{line: "make a"}, {line: "cd b"}}},
		"a part of one":     {block{"", "  --set a=b\n"}, nil},
		"a picture":         {block{"", "api/   the kinds\nmake it\n"}, nil},
		"examples":          {block{"text", "  kubectl joulevirt a\n  kubectl joulevirt b # why\n"}, []command{{line: "kubectl joulevirt a"}, {line: "kubectl joulevirt b"}}},
		"what one takes":    {block{"text", "kubectl joulevirt a NAME\n"}, nil},
		"an object":         {block{"yaml", "kind: A\n"}, nil},
		"a quoted, no note": {block{"sh", "kubectl patch a -p '{\"b#c\":1}'\n"}, []command{{line: `kubectl patch a -p '{"b#c":1}'`}}},
	} {
		got := commandsOf(tc.block)
		for i := range got {
			got[i].answer = strings.TrimSpace(got[i].answer)
		}
		if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(command{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

//go:build e2e

package page

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/joulevirt/joulevirt/test/cluster/debian"
)

// TestPage goes from an empty cluster to one in which much happens, and to the end of the
// manager. The browser goes by the proxy of kubectl joulevirt page.
func TestPage(t *testing.T) {
	s := newScene(t)
	if s.shots = os.Getenv("JOULEVIRT_ARTIFACTS"); s.shots == "" {
		s.shots = filepath.Join(t.ArtifactDir(), "screenshots")
	}
	s.must(debian.Host().Ensure(t.Context(), nil, Packages()...))
	var err error
	s.browser, err = StartBrowser(t.Context())
	s.must(err)
	t.Cleanup(s.browser.Close)
	t.Logf("screenshots are in %s", s.shots)
	for _, step := range []struct {
		name string
		run  func(*scene)
	}{
		{"no policy", testNoPolicy}, {"views", testViews}, {"not installed", testNotInstalled}, {"no manager", testNoManager},
	} {
		if !t.Run(step.name, func(t *testing.T) {
			within := *s
			within.T = t
			step.run(&within)
		}) {
			return
		}
	}
}

// shows waits until the page has some words.
func (s *scene) shows(words ...string) {
	s.Helper()
	s.must(s.cluster.WaitFor(s.Context(), soon, "the page shows "+strings.Join(words, ", "), func(context.Context) error {
		text, err := Evaluate[string](s.browser, `document.body.innerText`)
		for _, word := range words {
			if err == nil && !strings.Contains(text, word) {
				err = fmt.Errorf("it shows %q", text)
			}
		}
		return err
	}))
}

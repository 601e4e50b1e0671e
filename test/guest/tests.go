package guest

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/test/guest/gobuild"
)

// RunTests compiles the tests of packages of this module, by the names that their programs
// have in the guest, with a build tag, and runs a job with them. It fails unless the console
// shows that the wanted tests passed.
func RunTests(t *testing.T, tag string, packages map[string]string, job Job, wanted ...string) {
	t.Helper()
	dir := t.TempDir()
	if job.Programs == nil {
		job.Programs = map[string]string{}
	}
	for name, pkg := range packages {
		job.Programs[name] = filepath.Join(dir, name)
		if err := gobuild.Tests(t.Context(), "github.com/joulevirt/joulevirt/"+pkg, tag, job.Programs[name]); err != nil {
			t.Fatal(err)
		}
	}
	// It takes a minute or two of one core.
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	console, err := Run(ctx, Options{}, job)
	t.Log(console)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range wanted {
		if !strings.Contains(console, "--- PASS: "+test) {
			t.Errorf("the console does not show that %s passed", test)
		}
	}
}

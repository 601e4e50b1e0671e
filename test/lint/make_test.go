package lint

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// TestMakeRunsPrograms: nothing of the gate runs these targets.
func TestMakeRunsPrograms(t *testing.T) {
	for target, program := range map[string]string{"demo": "hack/demo", "e2e": "hack/e2e", "setup": "hack/setup"} {
		make := exec.CommandContext(t.Context(), "make", "--dry-run", "--always-make", target)
		make.Dir = root
		out, err := make.CombinedOutput()
		if err != nil {
			t.Fatalf("make %s: %v: %s", target, err, out)
		}
		runs := regexp.MustCompile(` -o dist/` + program + ` \./` + program + ` && dist/` + program + `\b`)
		if _, err := os.Stat(filepath.Join(root, program, "main.go")); err != nil || !runs.Match(out) {
			t.Errorf("make %s does not compile and run %s: %v\n%s", target, program, err, out)
		}
	}
}

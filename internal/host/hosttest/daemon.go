package hosttest

import (
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// StartDaemon starts a program that idles under the name of another, and returns what
// ends it. It ends with the test at the latest.
func StartDaemon(t testing.TB, name string) (end func()) {
	t.Helper()
	program, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), name)
	if err := os.Symlink(program, path); err != nil {
		t.Fatal(err)
	}
	daemon := exec.Command(path, "3600")
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	end = sync.OnceFunc(func() {
		_ = daemon.Process.Kill() // it may have ended by itself
		_ = daemon.Wait()
	})
	t.Cleanup(end)
	return end
}

package cluster

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
)

func TestRemoveAbandonedKeepsWhatLives(t *testing.T) {
	parent := t.TempDir()
	ended := exec.Command("true")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	ours, err := makeDir(parent)
	if err != nil {
		t.Fatal(err)
	}
	abandoned := filepath.Join(parent, dirPrefix+strconv.Itoa(ended.Process.Pid)+"-1")
	foreign := filepath.Join(parent, dirPrefix+"no-number")
	for _, dir := range []string{abandoned, foreign} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}

	removeAbandoned(parent)

	for dir, want := range map[string]bool{ours: true, foreign: true, abandoned: false} {
		if _, err := os.Stat(dir); (err == nil) != want {
			t.Errorf("%s: stat error %v, want it to be there: %v", filepath.Base(dir), err, want)
		}
	}
}

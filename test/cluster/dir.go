package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// dirPrefix starts the names of data folders; the id of the process that the
// folder belongs to follows.
const dirPrefix = "joulevirt-cluster-"

// TempDir makes a folder for what goes with this process. When it is killed
// before it could remove the folder, the next cluster or TempDir does.
func TempDir() (string, error) {
	removeAbandoned(os.TempDir())
	return makeDir(os.TempDir())
}

func makeDir(parent string) (string, error) {
	dir, err := os.MkdirTemp(parent, fmt.Sprintf("%s%d-", dirPrefix, os.Getpid()))
	if err != nil {
		return "", fmt.Errorf("make the test cluster's folder: %w", err)
	}
	return dir, nil
}

// removeAbandoned deletes the data folders of processes that were killed before
// they could. Failing to is no reason to fail: another user's folder stays.
func removeAbandoned(parent string) {
	folders, _ := filepath.Glob(filepath.Join(parent, dirPrefix+"*"))
	for _, folder := range folders {
		owner, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(folder), dirPrefix), "-")
		pid, err := strconv.Atoi(owner)
		if err == nil && errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			_ = os.RemoveAll(folder)
		}
	}
}

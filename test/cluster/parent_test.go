package cluster_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/joulevirt/joulevirt/test/cluster"
)

// runForEver is the argument that makes the test binary start a cluster, print
// its process ids and its folder, and wait to be killed.
const runForEver = "run-a-cluster-for-ever"

func TestMain(m *testing.M) {
	if slices.Contains(os.Args[1:], runForEver) {
		if err := holdCluster(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	ctrllog.SetLogger(logr.New(ctrllog.NullLogSink{}))
	os.Exit(m.Run())
}

func holdCluster() error {
	c, err := cluster.Start(context.Background(), cluster.Options{Binaries: source(), ControllerManager: true})
	if err != nil {
		return err
	}
	fmt.Println(strings.Trim(fmt.Sprint(c.PIDs()), "[]"))
	fmt.Println(c.Dir())
	_, err = io.Copy(io.Discard, os.Stdin) // the test never closes it
	return err
}

func TestClusterEndsWithItsParent(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGINT} {
		t.Run(signal.String(), func(t *testing.T) {
			parent := exec.Command(os.Args[0], runForEver)
			parent.Stderr = os.Stderr
			if _, err := parent.StdinPipe(); err != nil {
				t.Fatal(err)
			}
			output, err := parent.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := parent.Start(); err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewScanner(output)
			pids, dir := nextLine(t, lines), nextLine(t, lines)
			t.Cleanup(func() { _ = os.RemoveAll(dir) })

			if err := parent.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			if err := parent.Wait(); err == nil {
				t.Error("the parent was not ended by the signal")
			}
			fields := strings.Fields(pids)
			if len(fields) != 3 {
				t.Errorf("process ids %q, want three", pids)
			}
			for _, field := range fields {
				waitGone(t, field)
			}
		})
	}
}

func nextLine(t *testing.T, lines *bufio.Scanner) string {
	t.Helper()
	if !lines.Scan() {
		t.Fatalf("the parent ended without a line: %v", lines.Err())
	}
	return lines.Text()
}

// waitGone waits until a process has ended. It may stay a zombie when the
// machine's first process reaps none.
func waitGone(t *testing.T, pid string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), stepTimeout)
	defer cancel()
	err := wait.PollUntilContextCancel(ctx, 10*time.Millisecond, true, func(context.Context) (bool, error) {
		stat, err := os.ReadFile(filepath.Join("/proc", pid, "stat"))
		_, state, _ := strings.Cut(string(stat), ") ")
		gone := errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH)
		return gone || strings.HasPrefix(state, "Z"), nil
	})
	if err != nil {
		t.Errorf("process %s outlived its parent by %s", pid, stepTimeout)
	}
}

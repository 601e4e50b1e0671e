package prometheus_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/joulevirt/joulevirt/test/cluster/binaries"
	"github.com/joulevirt/joulevirt/test/prometheus"
)

// aptGet is a new machine's: it knows no package before an update.
const aptGet = `#!/bin/sh
here=$(dirname "$0")
case "$*" in
*update) touch "$here/updated" ;;
*download*) [ -e "$here/updated" ] || { echo "E: Unable to locate package prometheus" >&2; exit 100; }
	echo package > prometheus_2.42.0_amd64.deb ;;
esac
`

const dpkgDeb = `#!/bin/sh
case "$1" in
--field) echo 1:2.42.0+ds-5 ;;
--extract) mkdir -p "$3/usr/bin" && cp "$2" "$3/usr/bin/prometheus" && cp "$2" "$3/usr/bin/promtool" ;;
esac
`

// fakeDebian puts programs before those of the machine.
func fakeDebian(t *testing.T, programs map[string]string) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range programs {
		if err := os.Chmod(write(t, dir, name, []byte(text)), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

func TestProgramOnANewMachine(t *testing.T) {
	if os.Geteuid() != 0 {
		// Lists of packages are root's to renew.
		fakeDebian(t, map[string]string{"apt-get": strings.Replace(aptGet, `[ -e "$here/updated" ]`, "true", 1), "dpkg-deb": dpkgDeb})
	} else {
		fakeDebian(t, map[string]string{"apt-get": aptGet, "dpkg-deb": dpkgDeb})
	}
	cache := filepath.Join(t.TempDir(), "cache", "joulevirt")
	want := filepath.Join(cache, "prometheus-1_2.42.0+ds-5", "prometheus")
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if got, err := prometheus.Program(t.Context(), cache, nil); err != nil || got != want {
				t.Errorf("Program = %q, %v, want %q", got, err, want)
			}
		})
	}
	all.Wait()
	if text, err := os.ReadFile(want); err != nil || string(text) != "package\n" {
		t.Errorf("the program is %q, %v", text, err)
	}
	if left, _ := filepath.Glob(filepath.Join(cache, "unpack-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestProgramFails(t *testing.T) {
	fakeDebian(t, map[string]string{"apt-get": "#!/bin/sh\necho no route to the mirror >&2; exit 100\n"})
	_, err := prometheus.Program(t.Context(), t.TempDir(), nil)
	if err == nil || !strings.Contains(err.Error(), "no route to the mirror") || !strings.Contains(err.Error(), "put it at") {
		t.Errorf("Program = %v, want apt-get's words and what else to do", err)
	}
}

// runForEver is the argument that makes the test binary start a server, print
// its process id, and wait to be killed.
const runForEver = "run-a-server-for-ever"

func holdServer(dir string) error {
	program, err := prometheus.Program(context.Background(), binaries.FromEnvironment(os.Getenv, nil).Cache, os.Stderr)
	if err != nil {
		return err
	}
	server, err := prometheus.Start(context.Background(), prometheus.Options{Program: program, Dir: dir})
	if err != nil {
		return err
	}
	fmt.Println(server.PID())
	_, err = io.Copy(io.Discard, os.Stdin) // the test never closes it
	return err
}

func TestServerEndsWithItsParent(t *testing.T) {
	t.Parallel()
	parent := exec.Command(os.Args[0], runForEver, t.TempDir())
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
	line := bufio.NewScanner(output)
	line.Scan()
	pid, err := strconv.Atoi(line.Text())
	if err := errors.Join(err, parent.Process.Kill()); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait() // killed, as it says
	poll(t, "the server's end", func() (bool, string) {
		// It may stay a zombie when the machine's first process reaps none.
		stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
		_, state, _ := strings.Cut(string(stat), ") ")
		gone := errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH)
		return gone || strings.HasPrefix(state, "Z"), state
	})
}

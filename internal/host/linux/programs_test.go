package linux

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/internal/model"
)

func TestPrograms(t *testing.T) {
	tr := newTree(t)
	tr.write("proc/7/comm", "tuned\n")
	tr.write("proc/8/comm", "nri-resource-po\n")
	tr.write("proc/9/comm", "nri-resource-po\n")
	tr.write("proc/10/comm", "tuned-gui\n")
	for task, comm := range map[string]string{"11": "ovs-vswitchd", "12": "pmd-c02/id:8", "13": "pmd-c03/id:9", "14": "revalidator7"} {
		tr.write("proc/11/task/"+task+"/comm", comm+"\n")
	}
	tr.write("proc/11/comm", "ovs-vswitchd\n")
	tr.write("proc/15/comm", "lcore-worker-1\n")
	tr.write("proc/15/task/15/comm", "lcore-worker-1\n")
	tr.write("proc/16/task/16/stat", "it ended after it was listed\n")
	got, err := tr.host().Programs()
	want := model.Programs{OtherWriters: []string{"nri-resource-po", "tuned"}, PollingThreads: 2}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

// TestRealPrograms looks for a process and a thread of this machine that bear the names.
func TestRealPrograms(t *testing.T) {
	h := realHost(t)
	before, err := h.Programs()
	if err != nil {
		t.Fatal(err)
	}
	sleep, err := os.ReadFile("/bin/sleep")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "numad")
	if err := os.WriteFile(path, sleep, 0o700); err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), path, "600")
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	named, looked, done := make(chan error), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // for good: the thread ends with this function
		named <- os.WriteFile("/proc/thread-self/comm", []byte("lcore-worker-7"), 0)
		<-looked
	}()
	if err := <-named; err != nil {
		t.Fatal(err)
	}
	after, err := h.Programs()
	close(looked)
	<-done
	if err != nil || after.PollingThreads <= before.PollingThreads || !slices.Contains(after.OtherWriters, "numad") {
		t.Errorf("%+v, before %+v (%v)", after, before, err)
	}
}

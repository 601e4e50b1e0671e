package dataplane

import (
	"context"
	"fmt"
	"testing"

	"github.com/joulevirt/joulevirt/test/dataplane/load"
	"github.com/joulevirt/joulevirt/test/dataplane/world"
)

// serving waits until new requests are answered by exactly the names.
func (s suite) serving(t *testing.T, url string, names []string) {
	t.Helper()
	err := s.WaitFor(t.Context(), world.Timeout, fmt.Sprintf("%s is served by %v", url, names), func(ctx context.Context) error {
		counts, err := load.Burst(ctx, s.Clients(4, url), 40*len(names))
		if err != nil {
			return err
		}
		for _, name := range names {
			if counts.Answers[name] == 0 {
				return fmt.Errorf("%s does not answer: %s", name, counts)
			}
		}
		if len(counts.Answers) != len(names) {
			return fmt.Errorf("others answer: %s", counts)
		}
		return counts.NoFailures()
	})
	if err != nil {
		t.Fatal(err)
	}
}

func (s suite) testEqualSplit(t *testing.T) {
	url := s.service(t, "equal", group, vms)
	counts, err := load.Burst(t.Context(), s.Clients(16, url), 5000)
	if err != nil {
		t.Fatal(err)
	}
	t.Log(counts)
	if err := counts.NoFailures(); err != nil {
		t.Error(err)
	}
	if worst := counts.Error(equal(s.names)); worst > 3 {
		t.Errorf("the split is %.1f points from equal: %s", worst, counts)
	}
}

package node

import (
	"fmt"
	"testing"
	"time"
)

func TestReviewsComeOncePerInterval(t *testing.T) {
	const every = 10 * time.Minute
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	reviews := NewReviews(every)
	first := map[time.Duration]int{}
	for i := range 200 {
		node := fmt.Sprint("node-", i)
		due, wait := reviews.due(node, start)
		if due || wait < every/2 || wait > every {
			t.Fatalf("%s: first review due %t, in %s; want within the second half of %s", node, due, wait, every)
		}
		if again, _ := reviews.due(node, start.Add(wait-time.Second)); again {
			t.Errorf("%s: due before its time", node)
		}
		if again, left := reviews.due(node, start.Add(wait+time.Hour)); !again || left != 0 {
			t.Errorf("%s: not due after its time, %s left", node, left)
		}
		if left := reviews.done(node, start.Add(wait)); left != every {
			t.Errorf("%s: the next review is in %s, want %s", node, left, every)
		}
		if again, _ := reviews.due(node, start.Add(wait+every-time.Second)); again {
			t.Errorf("%s: reviewed twice in one interval", node)
		}
		first[wait.Truncate(time.Minute)]++
	}
	if len(first) < 5 {
		t.Errorf("200 nodes are reviewed in %d different minutes: want them spread", len(first))
	}
}

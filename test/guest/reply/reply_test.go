package reply

import (
	"net"
	"testing"
	"time"
)

// echo answers datagrams as a guest does, after a delay; every dropEach-th is
// dropped, and the first answer comes twice.
func echo(t *testing.T, delay time.Duration, dropEach int64) string {
	t.Helper()
	conn, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	go func() {
		buffer := make([]byte, 100)
		for i := int64(1); ; i++ {
			n, from, err := conn.ReadFrom(buffer)
			if err != nil {
				return
			}
			if dropEach > 0 && i%dropEach == 0 {
				continue
			}
			payload := append([]byte(nil), buffer[:n]...)
			answers := 1
			if i == 1 {
				answers = 2
			}
			time.AfterFunc(delay, func() {
				for range answers {
					_, _ = conn.WriteTo(payload, from)
				}
			})
		}
	}()
	return conn.LocalAddr().String()
}

func start(t *testing.T, options Options) *Asker {
	t.Helper()
	a, err := Start(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Stop)
	return a
}

func TestAsk(t *testing.T) {
	const delay, patience = 30 * time.Millisecond, 3 * time.Second
	a := start(t, Options{Address: echo(t, delay, 4), PerSecond: 200, Patience: patience})
	begin := time.Now()
	r, err := a.During(t.Context(), 500*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	t.Log(r)
	if r.Sent == 0 || r.Sent > 101 {
		t.Errorf("%d were sent, want up to 100", r.Sent)
	}
	if off := 4*r.Lost() - r.Sent; off < -4 || off > 4 {
		t.Errorf("%d of %d are lost, want each fourth", r.Lost(), r.Sent)
	}
	if p := r.Percentile(0.01); p < delay {
		t.Errorf("an answer came after %v, before it was sent", p)
	}
	if p := r.Percentile(0.99); p != patience {
		t.Errorf("p99 is %v: what is lost must count as the patience", p)
	}
	if none, err := a.Between(begin.Add(-time.Hour), begin.Add(-time.Minute)); err != nil || none.Sent != 0 {
		t.Errorf("before the start: %v, %v", none, err)
	}
	a.Stop()
	if again, err := a.Between(begin, begin.Add(500*time.Millisecond)); err != nil || again.Sent != r.Sent {
		t.Errorf("after the end: %v, %v", again, err)
	}
}

func TestNobodyAnswers(t *testing.T) {
	conn, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := conn.LocalAddr().String()
	conn.Close() // now the kernel refuses
	a := start(t, Options{Address: address, PerSecond: 100, Patience: 100 * time.Millisecond})
	r, err := a.During(t.Context(), 100*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if r.Answered != 0 || r.Sent == 0 || r.Percentile(0.5) != 100*time.Millisecond {
		t.Errorf("got %v", r)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	good := Options{Address: "127.0.0.1:7", PerSecond: 1, Patience: time.Second}
	for name, spoil := range map[string]func(*Options){
		"pace": func(o *Options) { o.PerSecond = 0 }, "patience": func(o *Options) { o.Patience = 0 },
		"address": func(o *Options) { o.Address = "nowhere" },
	} {
		bad := good
		spoil(&bad)
		if a, err := Start(bad); err == nil {
			a.Stop()
			t.Errorf("a bad %s was taken", name)
		}
	}
}

func TestEvaluate(t *testing.T) {
	start := time.Unix(1000, 0)
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	sent := []time.Time{at(0), at(10), at(20), at(30)}
	// The second is lost, the third came too late, the fourth before it was sent by a
	// clock that was set.
	arrived := map[uint64]time.Time{0: at(5), 2: at(2000), 3: at(29), 9: at(1)}
	r := evaluate(sent, arrived, 0, 4, time.Second)
	if r.Sent != 4 || r.Answered != 2 || r.Lost() != 2 {
		t.Errorf("got %+v", r)
	}
	for p, want := range map[float64]time.Duration{0: 0, 0.25: 0, 0.5: 5 * time.Millisecond, 0.51: time.Second, 1: time.Second} {
		if got := r.Percentile(p); got != want {
			t.Errorf("percentile %v is %v, want %v", p, got, want)
		}
	}
	if part := evaluate(sent, arrived, 1, 3, time.Second); part.Sent != 2 || part.Answered != 0 {
		t.Errorf("the middle is %v", part)
	}
	both := Join(r, r)
	if both.Sent != 8 || both.Lost() != 4 || both.Percentile(0.5) != 5*time.Millisecond {
		t.Errorf("twice the same is %v", both)
	}
	if empty := (Result{}).Percentile(0.5); empty != 0 {
		t.Errorf("of nothing: %v", empty)
	}
}

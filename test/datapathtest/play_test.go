package datapathtest

import (
	"math"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/internal/datapath/bpf"
)

// TestPlay: of 10,000 packets a second a window of 500 us has five, and without one each is delivered alone.
func TestPlay(t *testing.T) {
	for name, c := range map[string]struct {
		config bpf.JvConfig
		want   float64
	}{
		"without a window": {bpf.JvConfig{Generation: 1}, 1},
		"500 us":           {Holding(500 * time.Microsecond), 5},
	} {
		if got, err := Play(c.config, 10_000); err != nil || math.Abs(got-c.want) > 0.01 {
			t.Errorf("%s: %.2f packets a delivery, %v; want %.0f", name, got, err, c.want)
		}
	}
}

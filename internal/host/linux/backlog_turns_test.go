package linux

import "testing"

func TestWhenQueuesAreLookedAt(t *testing.T) {
	for name, test := range map[string]struct {
		look           look
		round, packets uint64
		turn, want     bool
	}{
		"not yet":                        {look{next: 15, packets: 10}, 14, 20, false, false},
		"traffic since":                  {look{next: 15, packets: 10}, 15, 20, false, true},
		"no traffic since":               {look{next: 15, packets: 10}, 15, 10, false, false},
		"no traffic, something waited":   {look{next: 15, packets: 10, waiting: true}, 15, 10, false, true},
		"packets are held":               {look{next: 15, packets: 10}, 2, 20, true, true},
		"packets are held, none gets on": {look{next: 15, packets: 10}, 2, 10, true, true},
	} {
		if got := test.look.isDue(test.round, test.packets, test.turn); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// However many processes hold packets: each has its turn, and a round has few.
func TestTurnsOfProcessesThatHoldPackets(t *testing.T) {
	for _, test := range []struct{ holding, each int }{{1, 1}, {mostLooks, 1}, {mostLooks + 1, 2}, {200, 4}, {1000, 20}} {
		var turns lookTurns
		last := make([]int, test.holding)
		for round := 1; round < 100; round++ {
			looks := 0
			for i := range last {
				if turns.has(uint64(round)) {
					if round > 1+test.each && round-last[i] != test.each {
						t.Fatalf("%d hold packets: looked at again after %d rounds, want %d", test.holding, round-last[i], test.each)
					}
					last[i] = round
					looks++
				}
			}
			// All that begin at once are looked at once.
			if round > 1 && looks > mostLooks {
				t.Fatalf("%d hold packets: %d looks in round %d", test.holding, looks, round)
			}
		}
	}
}

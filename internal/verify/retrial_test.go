package verify_test

import (
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/internal/verify"
)

func TestRetrial(t *testing.T) {
	const day = 24 * time.Hour
	class := verify.Class{CPUModel: "Xeon", Kernel: "6.12", Workload: "web"}
	kernel, workload, model := class, class, class
	kernel.Kernel, workload.Workload, model.CPUModel = "6.13", "batch", "EPYC"
	seen := time.Unix(1e9, 0)
	effect := func(log float64) verify.Effect {
		return verify.Effect{Log: log, StdErr: 0.005, Freedom: 30, Units: 3, Pairs: 33}
	}
	for _, c := range []struct {
		name     string
		decision verify.Decision
		class    verify.Class
		held     verify.Effect
		age      time.Duration
		want     verify.Again
	}{
		{"adopted stands", verify.Adopted, class, verify.Effect{}, 29 * day, ""},
		{"adopted is confirmed", verify.Adopted, class, effect(-0.06), day, ""},
		{"the hold-back differs by less than both err", verify.Adopted, class, effect(-0.035), day, ""},
		{"the hold-back differs", verify.Adopted, class, effect(-0.02), day, verify.AgainHeldBack},
		{"it saves far more than was thought", verify.Adopted, class, effect(-0.1), day, verify.AgainHeldBack},
		{"adopted long ago", verify.Adopted, class, effect(-0.05), 30 * day, verify.AgainAge},
		{"the clock went back", verify.Adopted, class, effect(-0.05), -day, ""},
		{"another kernel", verify.Adopted, kernel, verify.Effect{}, 0, verify.AgainClass},
		{"another load", verify.Adopted, workload, verify.Effect{}, 0, verify.AgainClass},
		{"another CPU, though it was rejected", verify.Rejected, model, verify.Effect{}, 0, verify.AgainClass},
		{"rejected cools down", verify.Rejected, class, verify.Effect{}, 47 * time.Hour, ""},
		{"rejected has cooled down", verify.Rejected, class, verify.Effect{}, 48 * time.Hour, verify.AgainCooled},
		{"undecided goes on", verify.Undecided, kernel, effect(0.1), 99 * day, ""},
		{"nothing was decided", "", kernel, verify.Effect{}, 99 * day, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			standing := verify.Standing{Decision: c.decision, Class: class, Effect: effect(-0.05), Seen: seen, CoolDown: verify.CoolDown(1)}
			got, again := verify.Retrial(&standing, c.class, c.held, seen.Add(c.age))
			if got != c.want || again != (c.want != "") {
				t.Errorf("tried again: %v, %q, want %q", again, got, c.want)
			}
		})
	}
}

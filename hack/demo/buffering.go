package main

import (
	"context"
	"strings"
	"time"

	"github.com/joulevirt/joulevirt/internal/datapath/bpf"
	"github.com/joulevirt/joulevirt/test/datapathtest"
)

// buffer shows how many packets an interrupt brings, and whether this machine's kernel can hold any.
func (d *demo) buffer(ctx context.Context) error {
	missing, err := d.RunKubectl(ctx, "get", "nodereport", d.Nodes()[0].Name, "-o",
		`jsonpath={.status.capabilities[?(@.name=="Buffering")].message}`)
	if err != nil {
		return err
	}
	if missing != "" {
		d.say("   The node itself holds none:\n   %s.", strings.TrimPrefix(missing, "packets of taps are not held: "))
	}
	const perSecond, window = 10_000, 500 * time.Microsecond
	before, err := datapathtest.Play(bpf.JvConfig{Generation: 1}, perSecond)
	if err != nil {
		return err
	}
	after, err := datapathtest.Play(datapathtest.Holding(window), perSecond)
	if err != nil {
		return err
	}
	d.say("   The program ran in this kernel. It got %d packets a second, by a clock that was played.", perSecond)
	d.say("   Packets an interrupt: %.1f before, %.1f with a window of %s.", before, after, window)
	return nil
}

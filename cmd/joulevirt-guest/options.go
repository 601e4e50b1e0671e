package main

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/spf13/pflag"

	"github.com/joulevirt/joulevirt/internal/guesttools"
	"github.com/joulevirt/joulevirt/internal/model"
)

type options struct {
	maxWindow time.Duration
	cards     []string
	sysRoot   string
	stateDir  string
	pinRoot   string
}

func defaultOptions() *options {
	return &options{
		maxWindow: 500 * time.Microsecond,
		sysRoot:   "/sys", stateDir: "/run/joulevirt-guest", pinRoot: "/sys/fs/bpf/joulevirt-guest",
	}
}

func (o *options) addFlags(flags *pflag.FlagSet) {
	flags.DurationVar(&o.maxWindow, "max-window", o.maxWindow,
		"Longest time that packets may be held for, in each direction, from 125us to 1ms. 0: none, and the host holds none either.")
	flags.StringSliceVar(&o.cards, "interface", nil, "Cards to tend, by name. Empty: all whose driver is virtio_net.")
}

// addPlaces adds the flags that all commands have.
func (o *options) addPlaces(flags *pflag.FlagSet) {
	flags.StringVar(&o.sysRoot, "sys-root", o.sysRoot, "Where sysfs is mounted.")
	flags.StringVar(&o.stateDir, "state-dir", o.stateDir, "Folder in which changes are recorded, which a reboot empties.")
	flags.StringVar(&o.pinRoot, "pin-dir", o.pinRoot, "Folder in a BPF file system where programs are kept beyond this process.")
}

func (o *options) validate() error {
	if o.maxWindow != 0 && (o.maxWindow < model.ShortestWindow || o.maxWindow > model.LongestWindow) {
		return fmt.Errorf("--max-window must be 0 or from %v to %v, not %v", model.ShortestWindow, model.LongestWindow, o.maxWindow)
	}
	return nil
}

func (o *options) tools(holder guesttools.Holder, log *slog.Logger) guesttools.Options {
	start := time.Now()
	return guesttools.Options{
		SysRoot: o.sysRoot, StateDir: o.stateDir, Cards: o.cards, Longest: o.maxWindow, Holder: holder,
		Now: func() time.Duration { return time.Since(start) }, Log: log,
	}
}

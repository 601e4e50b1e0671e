package main

import (
	"strings"
	"testing"
	"time"
)

func TestValidate(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*options)
		// want is part of the error. Empty: none.
		want string
	}{
		"good":               {func(*options) {}, ""},
		"no node":            {func(o *options) { o.nodeName = "" }, "--node-name"},
		"no address":         {func(o *options) { o.advertiseAddress = "" }, "--advertise-address"},
		"sampled too often":  {func(o *options) { o.interval = time.Millisecond }, "--sample-interval must be from 100ms to 30s"},
		"sampled too seldom": {func(o *options) { o.interval = time.Minute }, "--sample-interval must be from 100ms to 30s"},
		"reverted at once":   {func(o *options) { o.staleAfter = 0 }, "--stale-after"},
		"begins before":      {func(o *options) { o.startDelay = -time.Second }, "--start-delay must not be below zero"},
	} {
		o := defaultOptions()
		o.nodeName, o.advertiseAddress = "node1", "192.0.2.1:9443"
		tc.change(o)
		err := o.validate()
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v, want one with %q", name, err, tc.want)
		}
	}
}

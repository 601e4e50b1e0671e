// Package guard decides whether a gateway harms the clients of its VM, by what it did over minutes.
//
// It does not compare the response times of hits and misses. They are of different answers, at
// different loads, and have the clients' links in them: 50 clients that download one file at once
// wait longer for each hit than the first one did for the miss, and longer still without a gateway.
package guard

import (
	"fmt"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
)

const (
	// Window is the time of which spans count, and FailureWindow that of failures.
	Window, FailureWindow = 5 * time.Minute, 10 * time.Minute

	// mostFailures within FailureWindow are too many: the kubelet needs 70 s for them.
	mostFailures = 3
	// A gateway answers with errors when this share of its requests has one, in enough spans: one that
	// lasts a moment is over before the VM could take its place.
	errorShare               = 0.01
	leastErrors, errorsLasts = 5, 3
	// A gateway delays when clients wait slower times as long for a first byte as the VM makes them wait,
	// by enough answers of the VM in enough spans.
	slower                   = 2
	leastAnswers, delayLasts = 30, 8
)

// Span is what a gateway did between two observations.
type Span struct {
	// Hits were answered from the store, Answers by the VM, and Errors are the gateway's own.
	Hits, Answers, Errors float64
	// FirstByte is the sum of the times that the VM took for the first byte of its answers, and
	// Delay the sum of those for which the gateway held requests back before.
	FirstByte, Delay time.Duration
}

// Observed is what is known of one gateway.
type Observed struct {
	// Spans within Window.
	Spans []Span
	// Failures is how often it was restarted, or ceased to be ready, within FailureWindow.
	Failures int
	// Target is the mean response time that the owner wants.
	Target time.Duration
}

// Harm is a sign that a gateway harms, and the evidence in words.
type Harm struct {
	Sign    v1alpha1.GuardSign
	Message string
}

// Decide returns how a gateway harms. Nil: it does not, as far as is known.
func Decide(o Observed) *Harm {
	if o.Failures >= mostFailures {
		return &Harm{v1alpha1.GuardReadiness, fmt.Sprintf("the gateway failed %d times within %v: it was restarted, or was not ready", o.Failures, FailureWindow)}
	}
	var sum Span
	withErrors, withAnswers := 0, 0
	for _, s := range o.Spans {
		sum.Hits, sum.Answers, sum.Errors = sum.Hits+s.Hits, sum.Answers+s.Answers, sum.Errors+s.Errors
		sum.FirstByte, sum.Delay = sum.FirstByte+s.FirstByte, sum.Delay+s.Delay
		if s.Errors > 0 {
			withErrors++
		}
		if s.Answers > 0 {
			withAnswers++
		}
	}
	all := sum.Hits + sum.Answers + sum.Errors
	if sum.Errors >= leastErrors && withErrors >= errorsLasts && sum.Errors >= errorShare*all {
		return &Harm{v1alpha1.GuardErrors, fmt.Sprintf("the gateway answered %.0f of %.0f requests with errors that the VM did not make", sum.Errors, all)}
	}
	if sum.Answers < leastAnswers || withAnswers < delayLasts {
		return nil
	}
	// What is stored has its first byte at once.
	by := time.Duration(float64(sum.FirstByte+sum.Delay) / (sum.Hits + sum.Answers))
	alone := time.Duration(float64(sum.FirstByte) / sum.Answers)
	if by > slower*alone && by > o.Target {
		return &Harm{v1alpha1.GuardDelay, fmt.Sprintf("clients waited %v for a first byte from the gateway, of which the VM took %v an answer",
			by.Round(time.Millisecond), alone.Round(time.Millisecond))}
	}
	return nil
}

// Package sample turns two rounds of counters into rates. Reading the
// counters (Sampler) and computing with them (Rates) are apart.
package sample

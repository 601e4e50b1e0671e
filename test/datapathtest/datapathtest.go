// Package datapathtest has the programs of package datapath with a clock that tests set:
// map jv_clock holds the time.
package datapathtest

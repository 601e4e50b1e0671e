// Package sim is a simulated node behind host.Host, so that the same agent code
// that runs on Linux runs on thousands of nodes in one process. Its clock moves
// only in Advance; reading has no effects. Its physics are its own, and contain
// effects that the product's model of power does not know; each can be switched
// off. It says that it is simulated wherever a host says what it is.
//
// docs/design/simulator.md has the formulas, their sources, and what is left
// out.
package sim

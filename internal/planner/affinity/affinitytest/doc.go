// Package affinitytest makes nodes with VMs at random, holds placements against what
// the design demands of them, and finds the best of all placements by trying them, all
// without the planner's own code: for its tests, and for measuring how far it is off.
package affinitytest
